# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What the memory monitor costs the trainer: its thread's CPU time with 16 real worker processes.

    python bench/monitor_overhead.py --workers 16 --seconds 60 --worker-mib 300

The workers are forked by a torch DataLoader, hold memory of their own, and send a pack now and
then. The share is the monitor thread's CPU time over the wall time at the default interval; the
goal is below 0.5 % of one core.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from energon_pack.config import MonitorConfig
from energon_pack.monitor import MemoryMonitor
from energon_pack.monitor.snapshot import Snapshot
from energon_pack.stats import PackInfo, StreamInfo

MIB = 1 << 20


class Holding(IterableDataset[dict[str, Any]]):
    """Workers that hold ``mib`` each and send a pack every ``pause_s``."""

    def __init__(self, mib: int, pause_s: float) -> None:
        self.mib, self.pause_s = mib, pause_s

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield a pack now and then, for ever."""
        worker = get_worker_info().id
        held = os.urandom(MIB) * self.mib
        for number in count():
            time.sleep(self.pause_s)
            stream = StreamInfo(
                worker_id=worker, pid=os.getpid(), pack_index=number, buffer_bytes=len(held)
            )
            info = PackInfo(
                samples=1, tokens=1, trained_tokens=1, width=1, seq_length=1, stream=stream
            )
            yield {"pack_info": info, "__keys__": [str(number)]}


def measure(workers: int, seconds: float, mib: int, interval_s: float) -> dict[str, float]:
    """Return what the monitor's thread used in ``seconds`` after all workers have sent a pack."""
    loader = DataLoader(
        Holding(mib, 0.5), batch_size=None, num_workers=workers, multiprocessing_context="fork"
    )
    first: Snapshot | None = None
    with MemoryMonitor(MonitorConfig(interval_s=interval_s, log=False), rank=0) as monitor:
        for _ in monitor.watch(loader):
            latest = monitor.latest
            if latest is None:
                continue
            if first is None and sum(w.packs_total > 0 for w in latest.workers) == workers:
                first = latest
            if first is not None and latest.time - first.time >= seconds:
                break
    assert first is not None
    elapsed = latest.time - first.time
    used = latest.monitor_cpu_seconds_total - first.monitor_cpu_seconds_total
    return {
        "workers": workers,
        "worker_rss_mib": max(worker.rss_bytes for worker in latest.workers) / MIB,
        "interval_s": interval_s,
        "seconds": elapsed,
        "cpu_seconds_before": first.monitor_cpu_seconds_total,
        "cpu_seconds": used,
        "share_of_one_core": used / elapsed,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--worker-mib", type=int, default=300)
    parser.add_argument("--interval-s", type=float, default=MonitorConfig().interval_s)
    options = parser.parse_args()
    figures = measure(options.workers, options.seconds, options.worker_mib, options.interval_s)
    print(json.dumps({name: round(value, 5) for name, value in figures.items()}))
