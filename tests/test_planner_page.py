# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The output that ``docs/planner.md`` shows is what the command prints."""

import re
import shlex
from pathlib import Path

import pytest

from energon_pack.cli import main

PAGE = Path(__file__).parents[1] / "docs" / "planner.md"
SHOWN = re.findall(r"```console\n\$ energon-pack ([^\n]+)\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize(
    ("command", "shown"), [pair for pair in SHOWN if not pair[0].startswith("verify-hcp")]
)
def test_the_output_shown_is_the_command_s(command, shown, capsys):
    with pytest.raises(SystemExit):
        main(shlex.split(command))
    assert capsys.readouterr().out == shown
