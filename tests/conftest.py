# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What tests share: real media as a prepared dataset and real processors, each built once."""

import os

# Before torch and transformers are imported: two cores, and no model hub.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import shutil
from pathlib import Path

import pytest
import transformers

from energon_pack.config import PackingConfig, load_config
from energon_pack.demo.dataset import PROCESSOR, build_dataset
from energon_pack.demo.processor import FAMILIES, build_processor
from energon_pack.family import Family, load_family

DEMO_SAMPLES = 72


@pytest.fixture(scope="session")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared dataset of 72 mixed samples with its ``data.yaml``; tests must not change it."""
    folder = tmp_path_factory.mktemp("demo") / "data"
    build_dataset(folder, "mixed", samples=DEMO_SAMPLES)
    return folder


@pytest.fixture(scope="session")
def processor_folder(demo_folder: Path) -> Path:
    """Real Qwen3-VL processor."""
    return demo_folder / PROCESSOR


@pytest.fixture(scope="session")
def demo_config(demo_folder: Path) -> PackingConfig:
    """Settings of the demo dataset: seq_length 4096, buffer 32, 2 workers."""
    return load_config(demo_folder / "data.yaml")


@pytest.fixture
def demo_copy(demo_folder: Path, tmp_path: Path) -> Path:
    """Copy of the demo dataset that a test may change."""
    return shutil.copytree(demo_folder, tmp_path / "data")


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


@pytest.fixture(scope="session")
def qwen3_folder(processors: dict[str, Path]) -> Path:
    """Folder of the Qwen3-VL processor."""
    return processors["qwen3_vl"]
