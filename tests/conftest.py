# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What tests share: real media as a prepared dataset, and a real processor, each built once."""

import os

# Before torch and transformers are imported: two cores, and no model hub.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import shutil
from pathlib import Path

import pytest

from energon_pack.config import PackingConfig, load_config
from energon_pack.demo.dataset import PROCESSOR, build_dataset

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
