# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What processes cost together, when the exact figure is too dear to read each time.

1. PSS counts each shared page once over all processes, but reading it walks their page tables:
   10 ms a gigabyte. So each is read when it appears, and else the one read longest ago, as often as
   a small share of one core allows. When a process comes or goes, which changes who shares what,
   that share may be drawn in advance.
2. In between, a process's PSS is its last one plus what its resident memory has changed by since.

Example: a worker forked from a trainer of 2 GB shows 2.1 GB resident and 1.1 GB PSS. Later it shows
2.6 GB resident: it is counted with 1.6 GB.
"""

import time
from collections.abc import Mapping
from typing import Final

import psutil

from energon_pack.memory import Footprint, ProcessMemory, read_footprint

_CORE_SHARE: Final = 0.002
_BURST_S: Final = 0.5


class Footprints:
    """The latest footprints of a set of processes, and their total."""

    def __init__(self) -> None:
        self._read_at: dict[int, tuple[Footprint | None, int]] = {}
        self._order: list[int] = []
        self._spent_s = 0.0
        self._started = time.monotonic()

    def update(self, seen: Mapping[int, tuple[psutil.Process, ProcessMemory]]) -> None:
        """Read new processes; of the others one, or all after a change, within the budget."""
        new = [pid for pid in seen if pid not in self._read_at]
        known = [pid for pid in self._order if pid in seen]
        changed = seen.keys() != self._read_at.keys()
        allowed_s = _CORE_SHARE * (time.monotonic() - self._started) + _BURST_S * changed
        self._read_at = {pid: self._read_at[pid] for pid in known}
        for pid in new:
            self._read(pid, *seen[pid])
        reads = 0
        while reads < (len(known) if changed else 1) and self._spent_s < allowed_s:
            self._read(known[reads], *seen[known[reads]])
            reads += 1
        self._order = known[reads:] + new + known[:reads]

    def _read(self, pid: int, process: psutil.Process, memory: ProcessMemory) -> None:
        before = time.thread_time()
        self._read_at[pid] = read_footprint(process), memory.rss_bytes
        self._spent_s += time.thread_time() - before

    def of(self, pid: int) -> Footprint | None:
        """Return the footprint last read; None where the platform forbids it."""
        return self._read_at[pid][0]

    def pss_bytes(self, pid: int, memory: ProcessMemory) -> int:
        """Return the present PSS, reckoned from the last one; without one, resident memory."""
        footprint, rss_then = self._read_at[pid]
        if footprint is None:
            return memory.rss_bytes
        return max(0, footprint.pss_bytes + memory.rss_bytes - rss_then)
