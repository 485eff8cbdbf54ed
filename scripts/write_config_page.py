# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Write docs/config.md: every setting with its type, default and meaning, from config.py itself."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
SOURCE: Final = ROOT / "src/energon_pack/config.py"
TARGET: Final = ROOT / "docs/config.md"

INTRODUCTION: Final = """\
# Settings

% Made from src/energon_pack/config.py by scripts/write_config_page.py; change it there.

A dataset YAML is read strictly: an unknown key, a value of the wrong type, a key that stands
twice, an anchor or a custom tag is an error, and all problems are reported at once, each with its
path and a suggestion for a misspelt key. `path`, `model`, `spill_dir` and the file of
`cooker` may be relative to the YAML's folder.

```yaml
path: shards
model: Qwen/Qwen3-VL-8B-Instruct
seq_length: 8192
packing_buffer_size: 64
num_workers: 4
```

The same settings are the fields of `energon_pack.PackingConfig`.
"""

TITLES: Final = {
    "PackingConfig": "Dataset",
    "CostWeights": "cost",
    "MonitorConfig": "monitor",
}


class Setting(NamedTuple):
    """One field of a config dataclass."""

    name: str
    type: str
    default: str
    meaning: str


def page() -> str:
    """Return docs/config.md as it should be."""
    module = ast.parse(SOURCE.read_text(encoding="utf-8"))
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    return INTRODUCTION + "".join(_section(classes[name], title) for name, title in TITLES.items())


def _section(node: ast.ClassDef, title: str) -> str:
    heading = title if title == "Dataset" else f"`{title}:`"
    rows = [
        f"| `{setting.name}` | {setting.type} | {setting.default} | {setting.meaning} |"
        for setting in _settings(node)
    ]
    lines = [
        "",
        f"## {heading}",
        "",
        _escape(ast.get_docstring(node) or ""),
        "",
        "| setting | type | default | meaning |",
        "|---|---|---|---|",
        *rows,
        "",
    ]
    return "\n".join(lines)


def _settings(node: ast.ClassDef) -> Iterator[Setting]:
    for field, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            assert isinstance(field.target, ast.Name)
            assert isinstance(text.value, ast.Constant)
            yield Setting(
                field.target.id,
                _type(ast.unparse(field.annotation)),
                _default(field.value),
                _escape(" ".join(str(text.value.value).split())),
            )


def _type(annotation: str) -> str:
    words = {"int": "whole number", "float": "number", "str": "text", "bool": "true or false"}
    if annotation.startswith("Literal"):
        options = ast.literal_eval(f"[{annotation.removeprefix('Literal[').removesuffix(']')}]")
        return ", ".join(f"`{option}`" for option in options)
    if annotation in ("CostWeights", "MonitorConfig"):
        return "section"
    names = annotation.split(" | ")
    return " or ".join("null" if name == "None" else words[name] for name in names)


def _default(value: ast.expr | None) -> str:
    if value is None:
        return "required"
    if isinstance(value, ast.Call):
        return "see below"
    constant = ast.literal_eval(value)
    return f"`{'null' if constant is None else str(constant).lower()}`"


def _escape(text: str) -> str:
    return text.replace("``", "`").replace("None", "null").replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{TARGET.relative_to(ROOT)}\n")
