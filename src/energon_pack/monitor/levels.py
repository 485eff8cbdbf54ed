# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The monitor's limits: which were crossed, said once for each crossing."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from energon_pack.config import MonitorConfig
from energon_pack.monitor.snapshot import Snapshot
from energon_pack.sizes import Limit, format_size, parse_limit

_LIMITS: Final = ("warn_worker", "fail_worker", "warn_total", "fail_total")
# A value has to fall this far below its limit before a new crossing counts.
_HYSTERESIS: Final = 0.9
# A full /dev/shm kills workers with SIGBUS, whatever memory there is; Docker's default is 64 MB.
_SHM: Final = Limit("90% of /dev/shm", None, 0.9)


class Crossing(NamedTuple):
    """A value that went above its limit."""

    fails: bool
    """Whether the run is to stop."""
    worker: str | None
    message: str


class _Reading(NamedTuple):
    setting: str
    limit: Limit
    whole_bytes: int
    worker: str | None
    subject: str
    value_bytes: int


class Levels:
    """The limits of one monitor and the values now above them."""

    def __init__(self, config: MonitorConfig) -> None:
        """Watch the limits that ``config`` sets."""
        texts = {name: getattr(config, name) for name in _LIMITS}
        self._limits = {name: parse_limit(text) for name, text in texts.items() if text}
        self._above: set[tuple[str, str | None]] = set()

    def crossings(self, snapshot: Snapshot) -> list[Crossing]:
        """Return what went above its limit since the last snapshot."""
        crossings, above = [], set()
        for reading in self._readings(snapshot):
            key = (reading.setting, reading.worker)
            level = reading.limit.level_bytes(reading.whole_bytes)
            if reading.value_bytes > level * (_HYSTERESIS if key in self._above else 1):
                above.add(key)
                if key not in self._above:
                    crossings.append(_crossing(reading, level))
        self._above = above
        return crossings

    def _readings(self, snapshot: Snapshot) -> Iterator[_Reading]:
        whole = snapshot.limit_bytes
        for name, limit in self._limits.items():
            if name.endswith("_total"):
                yield _total_reading(name, limit, snapshot)
                continue
            for worker in snapshot.workers:
                subject = f"worker {worker.name} (pid {worker.pid}) holds"
                yield _Reading(name, limit, whole, worker.name, subject, worker.rss_bytes)
        if snapshot.shm_size_bytes and snapshot.shm_used_bytes:
            size, used = snapshot.shm_size_bytes, snapshot.shm_used_bytes
            yield _Reading("the warning level", _SHM, size, None, "shared memory holds", used)


def _total_reading(name: str, limit: Limit, snapshot: Snapshot) -> _Reading:
    """Compare an amount with the rank's total, a share with all that is used of the whole."""
    subject, value = f"rank {snapshot.rank} holds", snapshot.total_bytes
    if limit.share is not None:
        subject, value = f"the {snapshot.limit_source} holds", snapshot.used_bytes
    return _Reading(name, limit, snapshot.limit_bytes, None, subject, value)


def _crossing(reading: _Reading, level_bytes: int) -> Crossing:
    share = f" = {format_size(level_bytes)}" if reading.limit.share is not None else ""
    message = (
        f"{reading.subject} {format_size(reading.value_bytes)}, "
        f"above {reading.setting} ({reading.limit.text}{share})"
    )
    return Crossing(reading.setting.startswith("fail"), reading.worker, message)
