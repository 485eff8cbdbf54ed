# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The monitor on the real path: Energon's loader, its workers, their packs."""

import io
import json
import os
import signal
import tarfile
import time
from dataclasses import replace
from itertools import islice

import pytest
import torch
from megatron.energon import WorkerConfig, get_loader, get_train_dataset
from megatron.energon.flavors.webdataset.prepare import WebdatasetPreparator

from energon_pack import MonitorConfig, build_loader
from energon_pack.monitor import MemoryMonitor, WorkerMemoryError
from energon_pack.monitor.snapshot import from_record


def snapshots(file):
    return [from_record(json.loads(line)) for line in file.open()]


def monitored(config, **settings):
    return replace(config, monitor=MonitorConfig(**{"interval_s": 0.1, **settings}))


def test_every_worker_of_an_energon_loader_is_seen_with_its_packs(demo_config, tmp_path):
    loader = build_loader(monitored(demo_config, jsonl=str(tmp_path)))
    packs = iter(loader)
    for _ in islice(packs, 24):
        time.sleep(0.05)
    packs.close()
    (file,) = tmp_path.iterdir()
    seen = snapshots(file)
    assert seen[-1].ended
    at_work = next(s for s in reversed(seen) if sum(w.packs_total > 0 for w in s.workers) == 2)
    assert [worker.name for worker in at_work.workers] == ["0", "1"]
    for worker in at_work.workers:
        assert worker.candidates > 0
        assert worker.buffer_bytes > 0
        assert worker.largest_bytes > 0
        assert worker.largest_key
        assert 0 < worker.fill_ratio <= 1
    assert not any(snapshot.events for snapshot in seen)


def test_an_unpacked_energon_loader_of_stock_samples_can_be_watched(tmp_path):
    shard_of_texts(tmp_path)
    dataset = get_train_dataset(
        tmp_path,
        worker_config=WorkerConfig(rank=0, world_size=1, num_workers=2),
        batch_size=2,
        shuffle_buffer_size=None,
        max_samples_per_sequence=None,
    )
    lines = tmp_path / "run.jsonl"
    with MemoryMonitor(MonitorConfig(interval_s=0.05, jsonl=str(lines))) as monitor:
        for _ in islice(monitor.watch(get_loader(dataset)), 60):
            time.sleep(0.01)
    seen = snapshots(lines)
    assert seen[-1].packs_total == 60
    assert max(len(snapshot.workers) for snapshot in seen) == 2
    assert not any(snapshot.events for snapshot in seen)


def shard_of_texts(folder):
    with tarfile.open(folder / "shard-0.tar", "w") as shard:
        for number in range(20):
            member = tarfile.TarInfo(f"{number:04d}.txt")
            member.size = 4
            shard.addfile(member, io.BytesIO(b"text"))
    WebdatasetPreparator.prepare_dataset(
        folder, ["shard-0.tar"], split_parts_ratio=[("train", 1.0)], workers=1
    )
    (folder / ".nv-meta" / "dataset.yaml").write_text(
        "__module__: megatron.energon\n__class__: TextWebdataset\nfield_map: {text: txt}\n"
    )


def read_slowly(loader, taken):
    for pack in loader:
        taken.append(pack)
        time.sleep(0.2)


def same(pack, other):
    return pack["__keys__"] == other["__keys__"] and torch.equal(
        pack["input_ids"], other["input_ids"]
    )


def test_after_a_fail_limit_ended_the_run_the_packs_continue_exactly(demo_config):
    plain = replace(demo_config.unmonitored(), packing_buffer_size=8, shuffle_buffer_size=1)
    expected = list(islice(build_loader(plain), 10))
    loader, taken = build_loader(monitored(plain, fail_worker="100MiB")), []
    with pytest.raises(WorkerMemoryError, match=r"above fail_worker \(100MiB\)"):
        read_slowly(loader, taken)
    assert len(taken) < len(expected)
    state = loader.save_state()
    resumed = build_loader(plain)
    resumed.restore_state(state)
    taken += islice(resumed, len(expected) - len(taken))
    assert len(taken) == len(expected)
    assert all(map(same, taken, expected))


@pytest.mark.parametrize("interval_s", [0.1, 1000])
def test_a_killed_worker_is_told_with_the_sample_in_work(interval_s, demo_config, tmp_path):
    # At 1000 the monitor has not looked since before there were workers.
    file = tmp_path / "run.jsonl"
    loader = build_loader(monitored(demo_config, jsonl=str(file), interval_s=interval_s))
    packs = iter(loader)
    pid = next(packs)["pack_info"].stream.pid
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="worker"):
        list(packs)
    (event,) = [event for s in snapshots(file) for event in s.events if event.kind == "died"]
    assert f"(pid {pid}) was killed by SIGKILL" in event.message
    assert "last sample " in event.message


def test_a_death_that_is_raised_amid_the_trainers_own_work_is_told(demo_config, tmp_path):
    # torch raises it in a signal handler, so anywhere; the error's frames hold the packs' iterator.
    file = tmp_path / "run.jsonl"
    loader = build_loader(monitored(demo_config, jsonl=str(file), interval_s=1000))

    def die_here(info):
        os.kill(info.stream.pid, signal.SIGKILL)
        time.sleep(10)

    loader.tap(die_here)
    with pytest.raises(RuntimeError, match="killed by signal") as _held:
        next(iter(loader))
    (event,) = [event for s in snapshots(file) for event in s.events if event.kind == "died"]
    assert "was killed by SIGKILL" in event.message
