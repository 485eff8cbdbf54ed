# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What every file of the repository keeps to."""

import itertools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEADER = (
    "SPDX-FileCopyrightText: 2026 The energon-pack authors",
    "SPDX-License-Identifier: Apache-2.0",
)


def tracked(*suffixes: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False, text=True
    ).stdout
    if not listed:
        pytest.skip("no git checkout")
    return [ROOT / name for name in listed.split("\0") if name.endswith(suffixes)]


def test_every_source_file_starts_with_the_licence():
    sources = tracked(".py", ".c", ".sh")
    assert sources
    for path in sources:
        start = path.read_text().splitlines()[:4]
        assert all(any(line in text for text in start) for line in HEADER), path


def test_no_module_is_longer_than_300_lines():
    long = {
        path.name: count
        for path in tracked(".py")
        if "src" in path.parts and (count := len(path.read_text().splitlines())) > 300
    }
    assert long == {}


def pins() -> list[str]:
    return (ROOT / "constraints.txt").read_text().splitlines()


def requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    return [*project["dependencies"], *itertools.chain.from_iterable(extras)]


def test_constraints_are_plain_pins_one_a_package():
    pin = re.compile(r"([a-z0-9][a-z0-9._-]*)==[0-9][A-Za-z0-9.+!]*")
    names = [match[1] if (match := pin.fullmatch(line)) else line for line in pins()]
    assert [name for name in names if "==" in name or " " in name] == []
    assert names == sorted(set(names))


def test_every_dependency_of_every_extra_is_pinned():
    names = {re.match(r"[A-Za-z0-9._-]+", line)[0].lower() for line in requirements()}
    assert names - {"energon-pack"} <= {line.split("==")[0] for line in pins()}


def test_dependencies_have_no_upper_bounds():
    bounds = re.compile(r"[<~]|==")
    assert [line for line in requirements() if bounds.search(line.split(";")[0])] == []


def test_the_command_line_starts_without_torch():
    code = "import sys, energon_pack.cli; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
