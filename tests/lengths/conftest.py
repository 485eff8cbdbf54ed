# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Real processors of the three families, built once and kept in pytest's cache folder."""

from pathlib import Path

import pytest
import transformers

from energon_pack.demo.processor import FAMILIES, build_processor
from energon_pack.family import Family, load_family


@pytest.fixture(scope="session")
def processors(request: pytest.FixtureRequest) -> dict[str, Path]:
    """Folder of each family's processor."""
    root = request.config.cache.mkdir(f"processors-{transformers.__version__}")
    return {name: build_processor(name, root / name) for name in FAMILIES}


@pytest.fixture(scope="session", params=FAMILIES)
def family(request: pytest.FixtureRequest, processors: dict[str, Path]) -> Family:
    """Each family in turn."""
    return load_family(str(processors[request.param]))


@pytest.fixture(scope="session")
def qwen3(processors: dict[str, Path]) -> Family:
    """Qwen3-VL, for claims that hold whatever the family."""
    return load_family(str(processors["qwen3_vl"]))
