# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Resume through the real loader, tensors included."""

import dataclasses
import importlib.util
import itertools
import json
from pathlib import Path

import megatron
import pytest
import torch
from click.testing import CliRunner

from energon_pack.commands.resume import verify_resume
from energon_pack.config import MonitorConfig
from energon_pack.encoder import PackingTaskEncoder
from energon_pack.loader import build_loader
from energon_pack.verify import pack_hash

PACKS = 8
# Megatron-Bridge's restricted loader reads the generators' states through it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]


@pytest.fixture(scope="module")
def encoder(demo_config):
    return PackingTaskEncoder(demo_config)


def bridge_load():
    """Return Megatron-Bridge's restricted loader, without importing all of that package."""
    (source,) = (
        file
        for folder in megatron.__path__
        if (file := Path(folder, "bridge", "utils", "safe_pickle.py")).is_file()
    )
    spec = importlib.util.spec_from_file_location("safe_pickle", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.energon_torch_load


def with_workers(config, workers, **values):
    quiet = MonitorConfig(enabled=False)
    return dataclasses.replace(
        config, num_workers=workers, num_val_workers=workers, monitor=quiet, **values
    )


def assert_resumes(config, split, encoder, tmp_path, *, every):
    load = bridge_load()
    loader = build_loader(config, split, encoder=encoder)
    hashes, files = [], []
    for pack in itertools.islice(loader, PACKS):
        hashes.append(pack_hash(pack))
        files.append(tmp_path / f"{len(hashes)}.pt")
        torch.save({"dataloader_state_dict": loader.save_state()}, files[-1])
    for done, file in list(enumerate(files, start=1))[::-every]:
        again = build_loader(config, split, encoder=encoder)
        again.restore_state(load(str(file))["dataloader_state_dict"])
        rest = [pack_hash(pack) for pack in itertools.islice(again, len(hashes) - done)]
        assert rest == hashes[done:], f"after {done} of {len(hashes)} packs"
        assert split == "train" or not list(again)


@pytest.mark.parametrize(("split", "workers", "every"), [("val", 0, 1), ("train", 2, 4)])
def test_tensors_are_the_same_after_a_resume(demo_config, encoder, tmp_path, split, workers, every):
    config = with_workers(demo_config, workers, seq_length=2048)
    assert_resumes(config, split, encoder, tmp_path, every=every)


@pytest.mark.full
@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_tensors_are_the_same_after_a_resume_at_every_pack(
    demo_config, encoder, tmp_path, split, workers
):
    config = with_workers(demo_config, workers, seq_length=2048, packing_buffer_size=64)
    assert_resumes(config, split, encoder, tmp_path, every=1)


@pytest.mark.full
def test_verify_resume_compares_in_a_new_process(demo_folder):
    arguments = [
        str(demo_folder / "data.yaml"),
        "--packs",
        "8",
        "--points",
        "2",
        "--format",
        "json",
    ]
    result = CliRunner().invoke(verify_resume, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    points = json.loads(result.stdout)
    assert [point["compared"] for point in points] == [6, 3]
    assert all(point["state_bytes"] < 400_000 for point in points)


def test_a_restored_pack_is_the_pack(demo_config, encoder):
    config = with_workers(demo_config, 0)
    pack = next(iter(build_loader(config, encoder=encoder)))
    again = build_loader(config, encoder=encoder).restore_sample(pack["__restore_key__"])
    assert pack_hash(again) == pack_hash(pack)
