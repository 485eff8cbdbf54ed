# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The documentation does not rot."""

import dataclasses
import importlib.util
import re
from pathlib import Path

import pytest
import yaml

from energon_pack.config import CostWeights, MonitorConfig, PackingConfig
from energon_pack.strict import parse_dataclass

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.fixture(scope="module")
def config_page():
    spec = importlib.util.spec_from_file_location(
        "config_page", ROOT / "scripts/write_config_page.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_settings_page_is_what_config_py_says(config_page):
    assert config_page.TARGET.read_text() == config_page.page(), "run scripts/write_config_page.py"


def test_every_setting_is_on_the_page(config_page):
    page = config_page.page()
    fields = [
        field
        for cls in (PackingConfig, CostWeights, MonitorConfig)
        for field in dataclasses.fields(cls)
    ]
    assert all(f"\n| `{field.name}` | " in page for field in fields)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_dataset_yamls_in_the_documentation_are_accepted(page):
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), flags=re.DOTALL):
        values = yaml.safe_load(block)
        if isinstance(values, dict) and {"path", "model"} <= values.keys():
            parse_dataclass(PackingConfig, values)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_of_the_repository_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
