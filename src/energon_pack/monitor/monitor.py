# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The worker-memory monitor: watches in a thread, explains, and asks the run to stop in order.

    with MemoryMonitor(MonitorConfig(fail_worker="8GiB", jsonl="runs/memory")) as monitor:
        for batch in monitor.watch(loader):
            ...

1. Each ``interval_s`` a thread of the trainer looks at the trainer and its data workers, joins what
   their packs said about themselves (``observe``), and hands the snapshot to the sinks.
2. Crossed limits, steady growth and dead workers are events: logged once, and in the snapshot.
3. A thread cannot stop the trainer. So a crossed ``fail`` limit leaves a reason: ``check`` raises
   it from the trainer's iterator; a distributed trainer instead agrees on ``stop_reason`` over its
   ranks, writes its checkpoint and exits.

Cost: ``bench/monitor_overhead.py``.
"""

import atexit
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Self

from energon_pack.choosing.ledger import Ledger
from energon_pack.config import MonitorConfig
from energon_pack.monitor.alarms import GOOD_NEWS, Alarms, LastWords
from energon_pack.monitor.columns import plain_table
from energon_pack.monitor.exporters import FanOut, Sink, sinks_of
from energon_pack.monitor.roster import Death
from energon_pack.monitor.sampler import Sampler, WorkDone
from energon_pack.monitor.snapshot import Event, Snapshot
from energon_pack.monitor.tally import Tally
from energon_pack.stats import PackInfo

_log = logging.getLogger(__name__)

# A fork waits for the look in progress: a worker that inherited a lock held in it would hang.
_LOOKING: Final = threading.RLock()
os.register_at_fork(
    before=_LOOKING.acquire, after_in_parent=_LOOKING.release, after_in_child=_LOOKING.release
)


_CLOSE_S: Final = 10


class WorkerMemoryError(RuntimeError):
    """A ``fail`` limit was crossed; the message has the reason and the table of workers."""

    def __init__(self, reason: str, snapshot: Snapshot) -> None:
        """Say why, with the snapshot that shows it."""
        super().__init__(f"{plain_table(snapshot)}\n{reason}")
        self.reason = reason
        self.snapshot = snapshot


class MemoryMonitor:
    """Watches the memory of this process and its data workers."""

    def __init__(
        self,
        config: MonitorConfig | None = None,
        *,
        rank: int | None = None,
        sinks: Sequence[Sink] | None = None,
    ) -> None:
        """Prepare; nothing runs before ``start``, ``watch`` or ``with``.

        ``rank`` defaults to the launcher's ``RANK`` or ``SLURM_PROCID``, ``sinks`` to what
        ``config`` asks for. Raises ``UserError`` for a package that is not installed.
        """
        self.config = config or MonitorConfig()
        self.rank = _launched_rank() if rank is None else rank
        self._sinks = FanOut(sinks_of(self.config, self.rank) if sinks is None else sinks)
        self._alarms = Alarms(self.config)
        self._lock = threading.Lock()
        self._tallies: dict[tuple[str, int], Tally] = {}
        self._ledgers: list[Ledger] = []
        self._batches = 0
        self._warnings = 0
        self._deaths = 0
        self._latest: Snapshot | None = None
        self._failed: WorkerMemoryError | None = None
        self._sampler: Sampler | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def start(self) -> None:
        """Start the thread; does nothing when it runs, or when the monitor is not enabled."""
        if not self.config.enabled or self._thread is not None:
            return
        self._sampler = Sampler(os.getpid(), rank=self.rank, interval_s=self.config.interval_s)
        self._thread = threading.Thread(target=self._run, name="energon-pack-memory", daemon=True)
        self._thread.start()
        # An error that ends the trainer may be the death of a worker, which the last look explains.
        atexit.register(self.close)

    def observe(self, info: PackInfo, keys: Sequence[str] = (), *, loader: str = "") -> None:
        """Take in a pack's figures, and the keys of its samples.

        ``loader`` names a loader other than the training one, such as ``val``, whose worker ids
        would be mistaken for the first one's.
        """
        with self._lock:
            key = (loader, info.stream.pid)
            if key not in self._tallies:
                self._tallies[key] = Tally(loader)
                if self._sampler is not None:
                    self._sampler.meet(info.stream.pid)
            self._tallies[key].add(info, keys)

    def follow(self, ledger: Ledger) -> None:
        """Read the sample in work of a dead worker from its loader's ledger."""
        self._ledgers.append(ledger)

    def watch(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield what ``loader`` does, packed or not.

        Raises ``WorkerMemoryError`` after a ``fail`` limit was crossed; it takes nothing more from
        the loader then, so a state saved after the error misses no pack.
        """
        self.start()
        for batch in loader:
            info = batch.get("pack_info") if isinstance(batch, dict) else None
            if isinstance(info, PackInfo):
                self.observe(info, batch.get("__keys__") or ())
            else:
                self._batches += 1
            yield batch
            self.check()

    def check(self) -> None:
        """Raise ``WorkerMemoryError`` when a ``fail`` limit was crossed; costs nothing."""
        if self._failed is not None:
            raise self._failed

    def stop_reason(self) -> str | None:
        """Return why the run should stop, for trainers whose ranks have to agree first."""
        return self._failed.reason if self._failed else None

    @property
    def latest(self) -> Snapshot | None:
        """The last snapshot; None before the first."""
        return self._latest

    def close(self) -> None:
        """Look a last time, and end the thread and the sinks."""
        if self._closing.is_set():
            return
        self._closing.set()
        atexit.unregister(self.close)
        if self._thread is not None:
            self._thread.join(timeout=_CLOSE_S)
        self._sinks.close()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _run(self) -> None:
        self._look_safely()
        while not self._closing.wait(self.config.interval_s):
            self._look_safely()
        self._look_safely()

    def _look_safely(self) -> None:
        """Never raise into training, whatever the platform answers."""
        try:
            with _LOOKING:
                snapshot = self._look()
            self._sinks.log(snapshot.record(), snapshot.step)
        except Exception:  # noqa: BLE001 - nothing here may stop training
            _log.exception("the memory monitor could not look")

    def _look(self) -> Snapshot:
        assert self._sampler is not None
        with self._lock:
            # A trainer that makes packs itself is shown as a worker of its training loader.
            tallies = dict(sorted(self._tallies.items(), reverse=True))
            work = {pid: tally.work() for (_, pid), tally in tallies.items()}
            packs = sum(tally.packs for tally in tallies.values()) + self._batches
            step = _packs_made(tallies.values()) + self._batches
        snapshot, deaths = self._sampler.sample(work)
        events = self._alarms.events(snapshot, self._last_words(deaths, work))
        self._deaths += len(deaths)
        self._warnings += sum(event.kind not in GOOD_NEWS for event in events)
        snapshot = replace(
            snapshot,
            step=step,
            packs_total=packs,
            warnings_total=self._warnings,
            worker_deaths_total=self._deaths,
            monitor_cpu_seconds_total=time.thread_time(),
            ended=self._closing.is_set(),
            events=tuple(events),
        )
        self._act(events, snapshot)
        self._latest = replace(snapshot, stop_reason=self.stop_reason())
        return self._latest

    def _last_words(self, deaths: Sequence[Death], work: Mapping[int, WorkDone]) -> list[LastWords]:
        if not deaths:
            return []
        in_work = {
            record.pid: f"{record.key} ({record.stage})"
            for ledger in self._ledgers
            for record in ledger.read()
            if record.key
        }
        known = [(death, work.get(death.pid)) for death in deaths]
        return [
            LastWords(
                death,
                done.name if done else "unknown",
                in_work.get(death.pid) or (done.last_key if done else None),
            )
            for death, done in known
        ]

    def _act(self, events: Sequence[Event], snapshot: Snapshot) -> None:
        for event in events:
            if self.config.log:
                level = logging.INFO if event.kind in GOOD_NEWS else logging.WARNING
                _log.log(level, "rank %d: %s", self.rank, event.message)
            if event.kind == "fail" and self._failed is None:
                self._failed = WorkerMemoryError(f"rank {self.rank}: {event.message}", snapshot)


def _packs_made(tallies: Iterable[Tally]) -> int:
    """Return the training packs of all lives; a worker started again goes on where it was."""
    made: dict[int, int] = {}
    for tally in tallies:
        if tally.trains:
            made[tally.worker_id] = max(made.get(tally.worker_id, 0), tally.made)
    return sum(made.values())


def _launched_rank() -> int:
    return int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0)
