# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0

import gc
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from loaders import MIB, Packs, loader_of, pack_of
from test_memory import in_cgroup, real_cgroup
from torch.utils.data import DataLoader

from energon_pack.choosing.ledger import Ledger
from energon_pack.config import MonitorConfig
from energon_pack.memory import read_process
from energon_pack.monitor import MemoryMonitor, WorkerMemoryError
from energon_pack.monitor.snapshot import from_record

QUICK_S = 0.05


@pytest.fixture(autouse=True)
def _workers_end_with_their_test():
    yield
    gc.collect()
    psutil.wait_procs(psutil.Process().children(), timeout=10)


class Memory:
    """A sink that keeps what it gets."""

    def __init__(self):
        self.snapshots = []

    def log(self, metrics, _):
        self.snapshots.append(from_record(metrics))

    def close(self):
        self.closed = True

    def last_at_work(self):
        return next(
            snapshot
            for snapshot in reversed(self.snapshots)
            if sum(worker.packs_total > 0 for worker in snapshot.workers) == 2
        )

    def events(self, *kinds):
        return [e for s in self.snapshots for e in s.events if not kinds or e.kind in kinds]


def monitor_of(**settings):
    sink = Memory()
    config = MonitorConfig(**{"interval_s": QUICK_S, "warn_total": None, **settings})
    return MemoryMonitor(config, sinks=[sink]), sink


def above_fork(mebibytes):
    """Return a limit that far above what a worker forked from this process starts with."""
    return f"{psutil.Process().memory_info().rss // MIB + mebibytes}MiB"


def read(monitor, loader, packs):
    """Read ``packs`` packs in a loop as a trainer would."""
    taken = 0
    with monitor:
        for _ in monitor.watch(loader):
            taken += 1
            if taken == packs:
                break
    return taken


def read_until_at_work(monitor, sink):
    """Read until two looks have seen both workers' packs, however slow this machine is."""
    with monitor:
        for _ in monitor.watch(loader_of(Packs(pause_s=0.005))):
            latest = sink.snapshots[-1] if sink.snapshots else None
            if latest and sum((w.packs_per_second or 0) > 0 for w in latest.workers) == 2:
                return latest
    raise AssertionError


def test_a_leaking_worker_is_named_with_its_rate_before_the_warning_level(caplog):
    monitor, sink = monitor_of(warn_worker=above_fork(750))
    packs = Packs(leaker=1, leak_bytes=MIB, pause_s=0.004)
    with monitor:
        for _ in monitor.watch(loader_of(packs)):
            if sink.events("grows", "warn"):
                break
    (first,) = sink.events("grows", "warn")
    assert (first.kind, first.worker) == ("grows", "1")
    rate = float(
        re.search(r"growth \+([\d,]+) MB per 1,000 packs", first.message)[1].replace(",", "")
    )
    assert rate == pytest.approx(1049, rel=0.3)
    told = r"worker 1 \(pid \d+\) keeps growing, now .*; largest candidate clip-\d+"
    assert re.search(told, caplog.text)


def test_flat_workers_are_not_accused_over_2000_packs(caplog):
    monitor, sink = monitor_of()
    assert read(monitor, loader_of(Packs(pause_s=0.002)), 2000) == 2000
    assert sink.events() == []
    assert caplog.messages == []
    seen = sink.last_at_work()
    assert seen.packs_total > 1900
    assert all(worker.growth_bytes_per_pack is not None for worker in seen.workers)


@pytest.mark.parametrize("trial", range(10))
def test_a_limit_below_the_need_ends_the_run_in_order_with_the_table(trial):
    monitor, sink = monitor_of(fail_worker=above_fork(250), interval_s=0.02)
    packs = Packs(leaker=trial % 2, leak_bytes=8 * MIB, pause_s=0.002)
    with pytest.raises(WorkerMemoryError) as caught:
        read(monitor, loader_of(packs), 10_000)
    message = str(caught.value)
    lines = message.splitlines()
    reason = rf"rank 0: worker {trial % 2} \(pid \d+\) holds \S+ \wiB, above fail_worker"
    assert re.match(reason, lines[-1])
    assert lines[1].split()[:4] == ["worker", "pid", "rss", "peak"]
    assert [line.split()[0] for line in lines[2:-1]] == ["0", "1"]
    assert monitor.stop_reason() == lines[-1]
    assert sink.snapshots[-1].ended
    assert sink.snapshots[-1].stop_reason == lines[-1]
    assert not sink.events("died")


def test_a_killed_worker_is_reported_within_two_intervals_with_signal_and_last_key(caplog):
    monitor, sink = monitor_of(interval_s=0.5)
    loader = loader_of(Packs(pause_s=0.01))
    with monitor:
        packs = iter(loader)
        for _ in range(50):
            pack = next(packs)
            monitor.observe(pack["pack_info"], pack["__keys__"])
        victim = wait_for(lambda: worker_of(monitor, "0"))
        killed = time.time()
        with pytest.raises(RuntimeError, match="killed by signal"):
            kill(victim.pid)
        wait_for(lambda: sink.events("died"))
        del packs
    (event,) = sink.events("died")
    assert event.time - killed < 2 * 0.5
    assert re.fullmatch(
        rf"worker 0 \(pid {victim.pid}\) was killed by SIGKILL; "
        r"last sample sample-0-\d+; it held \S+ [MG]iB",
        event.message,
    )
    assert sink.snapshots[-1].worker_deaths_total == 1


def test_a_dead_worker_that_the_trainer_has_not_noticed_is_reported_once():
    monitor, sink = monitor_of()
    with monitor:
        packs = monitor.watch(loader_of(Packs(pause_s=0.01)))
        next(packs)
        handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.kill(wait_for(lambda: worker_of(monitor, "0")).pid, signal.SIGKILL)
        time.sleep(10 * QUICK_S)
        signal.signal(signal.SIGCHLD, handler)
        with pytest.raises(RuntimeError, match="exited unexpectedly"):
            list(packs)
    assert len(sink.events("died")) == 1


def kill(pid):
    """Kill a worker and wait for torch to raise from its signal handler."""
    os.kill(pid, signal.SIGKILL)
    time.sleep(2)


def wait_for(condition, seconds=10.0):
    until = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < until, "did not happen in time"
        time.sleep(0.01)
    return result


def worker_of(monitor, name):
    workers = monitor.latest.workers if monitor.latest else ()
    return next((worker for worker in workers if worker.name == name), None)


def test_the_last_key_of_a_dead_worker_is_the_sample_in_work_where_a_ledger_has_it(tmp_path):
    ledger = Ledger(tmp_path)

    class Working(Packs):
        def __iter__(self):
            for number, pack in enumerate(super().__iter__()):
                worker = pack["pack_info"].stream.worker_id
                if number == 0:
                    ledger.open(worker)
                ledger.work_on(f"clip-in-work-{worker}", "decode")
                yield pack

    monitor, sink = monitor_of()
    monitor.follow(ledger)
    with pytest.raises(RuntimeError, match="worker"), monitor:  # noqa: PT012 - a loop raises
        for number, _ in enumerate(monitor.watch(loader_of(Working(pause_s=0.01)))):
            if number == 40:
                os.kill(wait_for(lambda: worker_of(monitor, "1")).pid, signal.SIGKILL)
    (event,) = sink.events("died")
    assert "last sample clip-in-work-1 (decode)" in event.message


def test_any_dataloader_can_be_watched_and_its_workers_are_found_without_packs():
    monitor, sink = monitor_of()
    loader = DataLoader(list(range(400)), batch_size=4, num_workers=2, worker_init_fn=slow_start)
    assert read(monitor, loader, 400) == 100
    assert max(len(snapshot.workers) for snapshot in sink.snapshots) == 2
    assert all(w.name == f"pid {w.pid}" for s in sink.snapshots for w in s.workers)
    assert sink.snapshots[-1].packs_total == 100
    assert sink.events() == []


def slow_start(_):
    time.sleep(0.3)


def test_a_trainer_that_makes_its_packs_itself_is_its_own_worker():
    monitor, sink = monitor_of()
    with monitor:
        for number in range(20):
            monitor.observe(pack_of(0, number)["pack_info"])
            time.sleep(0.01)
    (worker,) = sink.snapshots[-1].workers
    assert (worker.name, worker.pid, worker.packs_total) == ("0", os.getpid(), 20)


def test_packs_tell_their_figures_and_lost_samples():
    monitor, sink = monitor_of()
    seen = read_until_at_work(monitor, sink)
    for worker in seen.workers:
        assert worker.fill_ratio == pytest.approx(0.99)
        assert worker.candidates == 16
        assert worker.buffer_bytes == 20 * MIB
        assert worker.largest_key.startswith("clip-")
        assert worker.skipped_samples_total == pytest.approx(worker.packs_total / 10, abs=1)
        assert worker.packs_per_second > 0
        assert worker.open_files > 3
        assert worker.cpu_seconds_total > 0
    assert seen.step == seen.packs_total


def test_after_a_resume_the_step_goes_on_where_it_was():
    monitor, sink = monitor_of()
    with monitor:
        monitor.observe(pack_of(0, 499)["pack_info"])
        info = pack_of(0, 500)["pack_info"]
        monitor.observe(replace(info, stream=replace(info.stream, pid=1)))  # started again
        monitor.observe(pack_of(0, 7)["pack_info"], loader="val")
    assert sink.snapshots[-1].step == 501
    assert sink.snapshots[-1].packs_total == 3


def test_the_total_counts_pages_shared_by_fork_once():
    kept = b"x" * (300 << 20)
    monitor, sink = monitor_of()
    seen = read_until_at_work(monitor, sink)
    assert all(worker.rss_bytes > len(kept) for worker in seen.workers)
    resident = seen.trainer_rss_bytes + sum(worker.rss_bytes for worker in seen.workers)
    assert seen.total_bytes < resident - 2 * len(kept)
    assert seen.total_bytes > read_process(psutil.Process()).held_bytes


def test_workers_that_end_in_order_are_no_event():
    monitor, sink = monitor_of()
    with monitor:
        for _ in range(3):
            for number, _ in enumerate(monitor.watch(loader_of(Packs(pause_s=0.002)))):
                if number == 100:
                    break
            time.sleep(2 * QUICK_S)
    assert sink.events("died") == []


def test_nothing_that_fails_inside_reaches_the_trainer(caplog, monkeypatch):
    def broken(*_):
        raise PermissionError("hidden")

    monitor, _ = monitor_of()
    monkeypatch.setattr("energon_pack.monitor.sampler.read_process", broken)
    with caplog.at_level(logging.ERROR):
        assert read(monitor, loader_of(Packs()), 50) == 50
    assert "the memory monitor could not look" in caplog.text


def test_a_monitor_that_is_not_enabled_starts_nothing():
    monitor, sink = monitor_of(enabled=False)
    before = threading.active_count()
    with monitor:
        assert threading.active_count() == before
    assert sink.snapshots == []


def test_the_thread_and_the_sinks_end_with_the_block():
    monitor, sink = monitor_of()
    with monitor:
        wait_for(lambda: sink.snapshots)
    assert not any(thread.name == "energon-pack-memory" for thread in threading.enumerate())
    assert sink.closed
    monitor.close()


def test_the_rank_is_the_launchers(monkeypatch):
    monkeypatch.setenv("RANK", "5")
    assert MemoryMonitor(MonitorConfig(log=False)).rank == 5
    monkeypatch.delenv("RANK")
    monkeypatch.setenv("SLURM_PROCID", "7")
    assert MemoryMonitor(MonitorConfig(log=False)).rank == 7


LEAK_IN_CGROUP = """
import sys
sys.path.insert(0, {tests!r})
from loaders import MIB, Packs, loader_of
from energon_pack.config import MonitorConfig
from energon_pack.memory import read_process
from energon_pack.monitor import MemoryMonitor, WorkerMemoryError

config = MonitorConfig(interval_s=0.02, warn_total="60%", fail_total="85%", jsonl={jsonl!r})
try:
    with MemoryMonitor(config) as monitor:
        for _ in monitor.watch(loader_of(Packs(leaker=1, leak_bytes=4 * MIB, pause_s=0.01))):
            pass
except WorkerMemoryError as error:
    print(error)
    sys.exit(3)
"""


def test_in_a_real_cgroup_the_run_ends_in_order_before_the_kernel_kills(tmp_path):
    jsonl = tmp_path / "run.jsonl"
    code = LEAK_IN_CGROUP.format(tests=str(Path(__file__).parent), jsonl=str(jsonl))
    with real_cgroup(1600 * MIB) as group:
        result = in_cgroup(group, code)
    assert result.returncode == 3, result.stderr
    assert "the cgroup holds" in result.stdout
    assert "above fail_total (85% = 1.33 GiB); largest worker 1 with" in result.stdout
    kinds = [e["kind"] for line in jsonl.open() for e in json.loads(line)["events"]]
    assert kinds.index("warn") < kinds.index("fail")
    assert "died" not in kinds


def test_a_trainer_that_ends_with_an_error_leaves_a_last_look(tmp_path):
    script = (
        "import sys; from energon_pack import MonitorConfig\n"
        "from energon_pack.monitor import MemoryMonitor\n"
        "packs = MemoryMonitor(MonitorConfig(jsonl=sys.argv[1], interval_s=1000)).watch([1, 2])\n"
        "next(packs)\n"
        "raise RuntimeError('a worker has died')\n"
    )
    file = tmp_path / "run.jsonl"
    ended = subprocess.run([sys.executable, "-c", script, file], check=False, capture_output=True)
    assert ended.returncode == 1
    *_, last = (from_record(json.loads(line)) for line in file.open())
    assert last.ended
    assert last.packs_total == 1
