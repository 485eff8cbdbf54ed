# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Imports go down only: edges, composition, stages, leaves."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import energon_pack

ROOT = Path(energon_pack.__file__).parent
EDGES = {"__main__", "bridge", "cli", "commands", "demo", "lengths", "live", "preview", "verify"}
COMPOSITION = {
    "encoder", "guard", "loader", "monitor", "planning.hcp_verify", "read_facts", "rules",
}  # fmt: skip
LEAVES = {
    "alignment", "candidate", "choosing.losses", "choosing.selector", "choosing.subset", "config",
    "errors", "facts", "measuring.labels", "media", "memory", "plan", "policies",
    "reading.conversation", "reading.placement", "reading.unpickle", "refusal", "sizes", "stats",
    "strict",
}  # fmt: skip
PARTS = {"assembling", "choosing", "decoding", "measuring", "planning", "reading"}
STAGES = ("choosing", "assembling", "decoding", "measuring", "reading")
"""From the last that a sample reaches to the first; the module of each is its head."""
HEADS = {"window": "choosing", "thd": "assembling", "pixels": "decoding", "measure": "measuring"}
HEAVY = {"torch", "torchvision", "transformers", "megatron", "av"}


def imports_of(source: str) -> set[str]:
    """Return the dotted names that a module imports, wherever in it the import stands."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = parts & MODULES
            names |= modules if modules == parts else modules | {node.module}
    return names


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("energon_pack", *(part for part in parts if part != "__init__")))


FILES = {name_of(path): path for path in ROOT.rglob("*.py")}
MODULES = set(FILES)
IMPORTS = {name: imports_of(path.read_text()) for name, path in FILES.items()}


def area(module: str) -> str:
    """Return the file or folder under the package that a module belongs to.

    The parts of a stage stand each for themselves: some are leaves.
    """
    first, *rest = module.split(".")[1:]
    return ".".join((first, *rest[:1])) if first in PARTS else first


def assert_acyclic(imports: dict[str, set[str]]) -> None:
    own = {
        name: {other for other in others if other in imports} for name, others in imports.items()
    }
    graphlib.TopologicalSorter(own).prepare()


def upward(lower: set[str], upper: set[str]) -> list[tuple[str, str]]:
    return [
        (module, other)
        for module, others in IMPORTS.items()
        if module != "energon_pack" and area(module) in lower
        for other in others
        if other.startswith("energon_pack.") and area(other) in upper
    ]


def test_no_module_imports_itself_in_a_circle():
    front = {"energon_pack": set()}  # the front door imports its names on first use
    assert_acyclic(IMPORTS | front)


def test_a_circle_would_be_found():
    with pytest.raises(graphlib.CycleError):
        assert_acyclic({"a": {"b"}, "b": {"c"}, "c": {"a"}})


def test_every_name_in_the_layers_exists():
    areas = {area(module) for module in IMPORTS if module != "energon_pack"}
    assert areas >= EDGES | COMPOSITION | LEAVES


def test_imports_go_down_only():
    stages = {area(module) for module in IMPORTS if module != "energon_pack"}
    stages -= EDGES | COMPOSITION | LEAVES
    assert upward(COMPOSITION, EDGES) == []
    assert upward(stages, EDGES | COMPOSITION) == []
    assert upward(LEAVES, EDGES | COMPOSITION | stages) == []


def stage(module: str) -> str:
    first = module.split(".")[1]
    return HEADS.get(first, first)


def test_no_stage_imports_a_later_one():
    order = {name: place for place, name in enumerate(STAGES)}
    assert [
        (module, other)
        for module, others in IMPORTS.items()
        if module != "energon_pack" and stage(module) in order
        for other in others
        if other.startswith("energon_pack.")
        and order.get(stage(other), len(order)) < order[stage(module)]
    ] == []


def test_only_the_bridge_imports_megatron_bridge():
    importers = {
        area(module)
        for module, names in IMPORTS.items()
        if any(name.startswith("megatron.bridge") for name in names)
    }
    assert importers == {"bridge"}


def test_leaves_load_neither_torch_nor_a_host():
    modules = "; ".join(f"import energon_pack.{leaf}" for leaf in sorted(LEAVES))
    code = f"import sys; {modules}; print(sorted({HEAVY} & set(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "[]"
