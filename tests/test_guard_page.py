# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""``docs/guard.md`` is what the rules say, and its examples break what they claim to break."""

import importlib.util
from pathlib import Path

import pytest

from energon_pack.guard import run_rules
from energon_pack.rules import RULES

SCRIPT = Path(__file__).parents[1] / "scripts" / "write_guard_page.py"
spec = importlib.util.spec_from_file_location("write_guard_page", SCRIPT)
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)


def test_the_page_is_current():
    assert script.PAGE.read_text() == script.page(), "run python scripts/write_guard_page.py"


def test_the_sound_example_breaks_no_rule():
    report = run_rules(script.facts_of({}), {})
    assert report.findings == ()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_each_rule_names_setting_value_consequence_and_way_out(rule):
    finding = script.finding_of(rule.code)
    assert finding.severity == rule.severity
    assert finding.setting.split(".")[0] in {
        "model",
        "dist",
        "train",
        "validation",
        "dataset",
        "ddp",
        "WORLD_SIZE",
        "forward step",
        "transformer-engine",
        "flash-linear-attention",
    }
    assert finding.value
    assert finding.consequence.endswith(".")
    assert finding.fix.endswith(".")
    assert finding.versions in str(finding)
