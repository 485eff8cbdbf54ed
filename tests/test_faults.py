# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A finite pass over a damaged dataset: packed and lost add up to it, a killed worker included."""

import dataclasses
import os
import signal
import tarfile
from collections import Counter

import pytest
import yaml

from energon_pack.choosing.ledger import WorkerDiedError
from energon_pack.encoder import PackingTaskEncoder
from energon_pack.loader import build_loader

SEQ_LENGTH = 1024
BROKEN_EVERY = 7


def members_of(shard):
    with tarfile.open(shard) as archive:
        return archive.getmembers()


@pytest.fixture
def damaged(demo_copy, demo_config):
    """Settings of a dataset whose every seventh image is no image, all of it validation."""
    shards = sorted(demo_copy.glob("*.tar"))
    members = [(shard, member) for shard in shards for member in members_of(shard)]
    images = [(shard, member) for shard, member in members if member.name.endswith(".jpg")]
    for shard, member in images[::BROKEN_EVERY]:
        with shard.open("r+b") as file:
            file.seek(member.offset_data)
            file.write(b"no image")
    split = demo_copy / ".nv-meta" / "split.yaml"
    parts = yaml.safe_load(split.read_text())
    parts["split_parts"] = {"train": [], "val": [shard.name for shard in shards]}
    split.write_text(yaml.safe_dump(parts))
    keys = {(shard.name, member.name.split(".")[0]) for shard, member in members}
    config = dataclasses.replace(
        demo_config, path=str(demo_copy), seq_length=SEQ_LENGTH, packing_buffer_size=8
    )
    return config.unmonitored(), len(keys)


@pytest.fixture
def encoder(damaged):
    config, _ = damaged
    return PackingTaskEncoder(config)


def lost(loader):
    total = Counter()
    for record in loader.worker_records():
        total.update(record.lost)
    return total


def read_and_kill(loader, saved):
    """Save after each pack; kill a worker after the fourth and read on."""
    packed = 0
    for pack in loader:
        packed += len(pack["__keys__"])
        saved.append((packed, loader.save_state()))
        if len(saved) == 4:
            os.kill(pack["pack_info"].stream.pid, signal.SIGKILL)


def test_packed_and_lost_add_up_to_the_dataset(damaged, encoder):
    config, samples = damaged
    loader = build_loader(config, "val", encoder=encoder)
    packs = list(loader)
    packed = sum(len(pack["__keys__"]) for pack in packs)
    causes = lost(loader)
    assert packed + causes.total() == samples
    assert causes["overlong"] > 0
    assert causes["bad_image"] > 0
    carried = Counter()
    for pack in packs:
        carried.update(pack["pack_info"].stream.skipped)
    for record in loader.worker_records():
        carried.update(record.pending)
    assert carried == causes


# torch raises from a signal handler, wherever this process is just then.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_killed_worker_costs_nothing_once_the_run_has_resumed(damaged, encoder):
    config, samples = damaged
    loader = build_loader(config, "val", encoder=encoder)
    saved = []
    with pytest.raises(RuntimeError):  # torch's own, outside of the loader's calls
        read_and_kill(loader, saved)
    packed, state = saved[-1]
    with pytest.raises(WorkerDiedError, match="Worker"):
        loader.save_state()
    again = build_loader(config, "val", encoder=encoder)
    again.restore_state(state)
    packed += sum(len(pack["__keys__"]) for pack in again)
    assert packed + lost(again).total() == samples
