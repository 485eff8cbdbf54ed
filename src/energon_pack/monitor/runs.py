# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Recorded and running monitors to look at: JSON lines of one rank or many, or a process."""

import json
import math
import platform
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import batched
from pathlib import Path
from statistics import fmean
from typing import Final, Protocol

import psutil

from energon_pack.config import MonitorConfig
from energon_pack.errors import UserError
from energon_pack.monitor.alarms import Alarms, LastWords
from energon_pack.monitor.sampler import Sampler
from energon_pack.monitor.snapshot import Event, Snapshot, from_record

_CURVE: Final = 64
_EVENTS: Final = 8
_TEARDOWN_LOOKS: Final = 4
# A record this many intervals old is from a run that is no more.
_STALE_INTERVALS: Final = 6


class RunError(UserError):
    """A file, folder or process that shows no run."""


class Curve:
    """A whole run in at most 64 numbers: each the mean over a stretch, which doubles when full."""

    def __init__(self) -> None:
        """Start without a number."""
        self._means: list[float] = []
        self._stretch = 1
        self._open: list[float] = []

    def add(self, value: float) -> None:
        """Take in the next number."""
        self._open.append(value)
        if len(self._open) == self._stretch:
            self._means.append(fmean(self._open))
            self._open.clear()
        if len(self._means) == _CURVE:
            self._means = [fmean(pair) for pair in batched(self._means, 2)]
            self._stretch *= 2

    def resampled(self, width: int) -> list[float]:
        """Return at most ``width`` means, the newest last."""
        numbers = [*self._means, *([fmean(self._open)] if self._open else [])]
        per_cell = max(1, math.ceil(len(numbers) / width))
        return [fmean(cell) for cell in batched(numbers, per_cell)]


class History:
    """What a view shows of one rank: the latest snapshot, and how it came to it."""

    def __init__(self, name: str) -> None:
        """Start without a snapshot."""
        self.name = name
        self.latest: Snapshot | None = None
        self.totals = Curve()
        self.workers: dict[str, Curve] = {}
        self.events: deque[Event] = deque(maxlen=_EVENTS)
        self._staffed: deque[Snapshot] = deque(maxlen=_TEARDOWN_LOOKS)

    def add(self, snapshot: Snapshot) -> None:
        """Take in the next snapshot; one of another process starts the curves again."""
        if self.latest is not None and snapshot.pid != self.latest.pid:
            self.totals, self.workers = Curve(), {}
            self._staffed.clear()
        if snapshot.ended and self._staffed:
            # By then the workers are going or gone; show them as they were.
            full = max(reversed(self._staffed), key=lambda staffed: len(staffed.workers))
            snapshot = replace(snapshot, workers=full.workers, total_bytes=full.total_bytes)
        elif snapshot.workers:
            self._staffed.append(snapshot)
        self.latest = snapshot
        self.totals.add(snapshot.total_bytes)
        self.events.extend(snapshot.events)
        for worker in snapshot.workers:
            self.workers.setdefault(worker.name, Curve()).add(worker.rss_bytes)

    @property
    def runs(self) -> bool:
        """Whether more is to come: neither ended, nor its process gone, nor its record stale."""
        latest = self.latest
        if latest is None:
            return True
        if latest.ended or (latest.host == platform.node() and not psutil.pid_exists(latest.pid)):
            return False
        return time.time() - latest.time < _STALE_INTERVALS * latest.interval_s


class Source(Protocol):
    """Where a view gets its histories from."""

    histories: list[History]

    def poll(self) -> None:
        """Bring the histories up to date."""


class RecordedRun:
    """The JSON lines of one rank, or of all in a folder; they may still grow."""

    def __init__(self, path: Path) -> None:
        """Open ``path``. Raises ``RunError`` when it has no records."""
        self.histories: list[History] = []
        self._tails: dict[Path, tuple[History, _Tail]] = {}
        self._path = path
        self.poll()
        if not any(history.latest for history in self.histories):
            raise RunError(f"{path} has no records of the memory monitor; set monitor.jsonl to it")

    def poll(self) -> None:
        """Read what was written since."""
        for file in _record_files(self._path):
            if file not in self._tails:
                self._tails[file] = History(file.stem), _Tail(file)
            history, tail = self._tails[file]
            for snapshot in tail.read():
                history.add(snapshot)
        self.histories = [history for history, _ in self._tails.values() if history.latest]


class LiveProcess:
    """A trainer that writes no records: its processes are looked at from outside."""

    def __init__(self, pid: int) -> None:
        """Look at ``pid``. Raises ``RunError`` when there is no such process."""
        try:
            self._sampler = Sampler(pid, rank=0, interval_s=1.0)
        except psutil.Error:
            raise RunError(f"there is no process {pid}; give the pid of a trainer") from None
        self._alarms = Alarms(MonitorConfig())
        self.histories = [History(f"pid {pid}")]
        self.poll()

    def poll(self) -> None:
        """Look again; the last snapshot is marked as such when the process has ended."""
        history = self.histories[0]
        try:
            snapshot, deaths = self._sampler.sample({})
        except psutil.Error:
            if history.latest:
                history.latest = replace(history.latest, ended=True)
            return
        last_words = [LastWords(death, "unknown", None) for death in deaths]
        events = self._alarms.events(snapshot, last_words)
        history.add(replace(snapshot, events=tuple(events)))


def read_snapshots(path: Path) -> list[Snapshot]:
    """Return all snapshots of one rank's file. Raises ``RunError`` when it has none."""
    if not path.is_file():
        raise RunError(f"{path} is no file; give one rank's JSON lines")
    snapshots = list(_Tail(path).read())
    if not snapshots:
        raise RunError(f"{path} has no records of the memory monitor")
    return snapshots


def _record_files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.rglob("*.jsonl"))
    if not path.exists():
        raise RunError(f"{path} does not exist; give a monitor's JSON lines or their folder")
    return [path]


class _Tail:
    """A file of records that another process may be writing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> Iterator[Snapshot]:
        """Yield the complete records added since; lines that are none are passed over."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                try:
                    yield from_record(json.loads(line))
                except (ValueError, TypeError, AttributeError):
                    continue
