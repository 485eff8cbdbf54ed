# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What a person has to hear about: dead workers, growing workers, crossed limits."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from energon_pack.config import MonitorConfig
from energon_pack.memory import read_oom_kills
from energon_pack.monitor.columns import duration_text, growth_text
from energon_pack.monitor.levels import Levels
from energon_pack.monitor.roster import Death
from energon_pack.monitor.snapshot import Event, Snapshot, WorkerSnapshot
from energon_pack.sizes import format_size

# Kinds that are no warning.
GOOD_NEWS: Final = frozenset({"steady"})


class LastWords(NamedTuple):
    """A death, with what is known of the worker from its packs and its ledger."""

    death: Death
    name: str
    key: str | None
    """Sample in work, or the last one in a pack that arrived."""


class Alarms:
    """Turns snapshots into events, each said once until it has passed."""

    def __init__(self, config: MonitorConfig) -> None:
        """Use the limits of ``config``."""
        self._levels = Levels(config)
        self._growing: set[int] = set()
        self._known: dict[int, WorkerSnapshot] = {}
        self._before: dict[int, WorkerSnapshot] = {}
        self._oom_kills = read_oom_kills()

    def events(self, snapshot: Snapshot, deaths: Sequence[LastWords]) -> list[Event]:
        """Return what is new in this snapshot, deaths before it included."""
        events = [*self._died(snapshot, deaths), *self._grown(snapshot)]
        workers = {worker.name: worker for worker in snapshot.workers}
        for crossing in self._levels.crossings(snapshot):
            kind = "fail" if crossing.fails else "warn"
            worker = workers.get(crossing.worker or "")
            suspect = _suspicion(worker, snapshot) if worker else _worst(snapshot)
            message = crossing.message + suspect
            events.append(
                Event(time=snapshot.time, kind=kind, message=message, worker=crossing.worker)
            )
        # A worker on its way out is missing from one look before its death is known.
        self._before, self._known = self._known, {w.pid: w for w in snapshot.workers}
        return events

    def _died(self, snapshot: Snapshot, deaths: Sequence[LastWords]) -> Iterator[Event]:
        if not deaths:
            return
        kills = read_oom_kills()
        hint = ""
        if kills > self._oom_kills:
            hint = "; the kernel has killed processes of this cgroup for want of memory"
        self._oom_kills = kills
        for death, name, key in deaths:
            known = self._known.get(death.pid) or self._before.get(death.pid)
            doing = f"; last sample {key}" if key else ""
            held = f"; it held {format_size(known.rss_bytes)}" if known else ""
            message = f"worker {name} (pid {death.pid}) {death}{doing}{held}{hint}"
            yield Event(time=snapshot.time, kind="died", message=message, worker=name)

    def _grown(self, snapshot: Snapshot) -> Iterator[Event]:
        growing = {worker.pid: worker for worker in snapshot.workers if worker.grows}
        for pid in growing.keys() - self._growing:
            worker = growing[pid]
            now = f"keeps growing, now {format_size(worker.rss_bytes)}"
            message = f"worker {worker.name} (pid {pid}) {now}{_suspicion(worker, snapshot)}"
            yield Event(time=snapshot.time, kind="grows", message=message, worker=worker.name)
        for worker in snapshot.workers:
            if worker.pid in self._growing and not worker.grows:
                message = f"worker {worker.name} (pid {worker.pid}) has stopped growing"
                yield Event(time=snapshot.time, kind="steady", message=message, worker=worker.name)
        self._growing = set(growing)


def _worst(snapshot: Snapshot) -> str:
    worst = max(snapshot.workers, key=lambda worker: worker.rss_bytes, default=None)
    if worst is None:
        return ""
    size = format_size(worst.rss_bytes)
    return f"; largest worker {worst.name} with {size}{_suspicion(worst, snapshot)}"


def _suspicion(worker: WorkerSnapshot, snapshot: Snapshot) -> str:
    """Say what may make this worker large."""
    reasons = []
    if growth := growth_text(worker):
        reasons.append(f"growth {growth}")
    if worker.seconds_to_limit is not None:
        when = duration_text(worker.seconds_to_limit)
        reasons.append(f"{snapshot.limit_source} full in {when} at this rate")
    if worker.largest_key:
        size = format_size(worker.largest_bytes or 0)
        reasons.append(f"largest candidate {worker.largest_key} with {size}")
    return "".join(f"; {reason}" for reason in reasons)
