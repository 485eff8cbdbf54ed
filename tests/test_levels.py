# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0

import pytest

from energon_pack.config import ConfigError, MonitorConfig
from energon_pack.monitor.levels import Levels
from energon_pack.monitor.snapshot import Snapshot, WorkerSnapshot

MIB = 1 << 20


def snapshot(*, rss=(), total=0, used=0, limit=1000, shm=(0, 1000)):
    workers = tuple(
        WorkerSnapshot(
            name=str(number),
            pid=100 + number,
            rss_bytes=size * MIB,
            peak_bytes=size * MIB,
            held_bytes=size * MIB,
            shared_bytes=0,
            open_files=3,
            threads=1,
            cpu_seconds_total=1.0,
        )
        for number, size in enumerate(rss)
    )
    return Snapshot(
        time=0.0,
        interval_s=10.0,
        rank=0,
        host="node",
        pid=1,
        step=0,
        trainer_rss_bytes=0,
        total_bytes=total * MIB,
        peak_bytes=total * MIB,
        limit_bytes=limit * MIB,
        used_bytes=used * MIB,
        limit_source="cgroup",
        shm_used_bytes=shm[0] * MIB,
        shm_size_bytes=shm[1] * MIB,
        workers=workers,
    )


def levels(**limits):
    return Levels(MonitorConfig(**{"warn_total": None, **limits}))


def test_a_crossing_is_told_once_until_the_value_has_fallen_well_below():
    watch = levels(warn_worker="100MiB")
    told = [
        len(watch.crossings(snapshot(rss=(size,)))) for size in (90, 101, 99, 101, 150, 89, 101)
    ]
    assert told == [0, 1, 0, 0, 0, 0, 1]


def test_each_worker_crosses_on_its_own():
    watch = levels(warn_worker="100MiB", fail_worker="200MiB")
    first = watch.crossings(snapshot(rss=(150, 50)))
    second = watch.crossings(snapshot(rss=(150, 250)))
    assert [(c.worker, c.fails) for c in first] == [("0", False)]
    assert [(c.worker, c.fails) for c in second] == [("1", False), ("1", True)]
    assert "worker 1 (pid 101) holds 250 MiB, above fail_worker (200MiB)" in second[1].message


def test_a_share_counts_all_that_use_the_cgroup_and_an_amount_only_this_rank():
    seen = snapshot(total=300, used=850)
    (crossing,) = levels(warn_total="80%").crossings(seen)
    assert "the cgroup holds 850 MiB, above warn_total (80% = 800 MiB)" in crossing.message
    assert levels(warn_total="800MiB").crossings(seen) == []
    assert len(levels(fail_total="200MiB").crossings(seen)) == 1


def test_by_default_80_percent_of_the_cgroup_is_a_warning_and_nothing_fails():
    watch = Levels(MonitorConfig())
    (crossing,) = watch.crossings(snapshot(used=900))
    assert not crossing.fails


def test_nearly_full_shared_memory_is_a_warning():
    (crossing,) = levels().crossings(snapshot(shm=(60, 64)))
    assert "90% of /dev/shm" in crossing.message
    assert not crossing.fails


def test_limits_that_are_none_are_refused_together_each_with_its_setting():
    with pytest.raises(ConfigError) as caught:
        MonitorConfig(interval_s=0, warn_worker="lots", fail_total="120%")
    assert [problem.path for problem in caught.value.problems] == [
        "interval_s",
        "warn_worker",
        "fail_total",
    ]
    assert "'lots' is no amount of memory; write one like 512MiB" in str(caught.value)
