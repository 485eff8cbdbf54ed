# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Looks at a trainer's processes: their memory, its growth, and which of them died."""

import platform
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import psutil

from energon_pack.memory import (
    Ceiling,
    ProcessMemory,
    read_ceiling,
    read_process,
    read_shared_memory,
)
from energon_pack.monitor.footprints import Footprints
from energon_pack.monitor.growth import GrowthTrack
from energon_pack.monitor.roster import Death, Roster
from energon_pack.monitor.snapshot import Snapshot, WorkerSnapshot

# A worker fills its buffers and caches meanwhile. Seconds count where no packs are seen.
WARMUP_PACKS: Final = 100
WARMUP_SECONDS: Final = 120
_RATE_LOOKS: Final = 7


@dataclass(frozen=True, slots=True)
class WorkDone:
    """What the packs of one worker say about it."""

    name: str
    packs: int
    last_key: str | None
    """Last sample in a pack that arrived."""
    figures: Mapping[str, Any]
    """Further fields of its ``WorkerSnapshot``."""


class Sampler:
    """Takes snapshots of one trainer process and its workers, one after the other."""

    def __init__(self, pid: int, *, rank: int, interval_s: float) -> None:
        """Look at process ``pid``. Raises ``psutil.Error`` when there is none."""
        self._roster = Roster(pid)
        self._identity: dict[str, Any] = {
            "pid": pid,
            "rank": rank,
            "host": platform.node(),
            "interval_s": interval_s,
        }
        self._footprints = Footprints()
        self._followed: dict[tuple[int, bool], _Followed] = {}
        self._used = GrowthTrack(WARMUP_SECONDS)
        self._peak_bytes = 0
        self._started = time.monotonic()

    def meet(self, pid: int) -> None:
        """Take note of a worker whose first pack has come."""
        self._roster.meet(pid)

    def sample(self, work: Mapping[int, WorkDone]) -> tuple[Snapshot, list[Death]]:
        """Look now; ``work`` is by the pids that packs carried.

        Raises ``psutil.Error`` when the trainer itself has ended.
        """
        deaths = self._roster.refresh(work)
        seen = self._read()
        total = self._total_bytes(seen)
        ceiling, shm = read_ceiling(self._roster.trainer.pid), read_shared_memory()
        workers = self._workers(seen, work, ceiling.left_bytes)
        snapshot = Snapshot(
            **self._identity,
            time=time.time(),
            step=0,
            trainer_rss_bytes=seen[self._roster.trainer.pid][1].rss_bytes,
            total_bytes=total,
            peak_bytes=self._peak_bytes,
            limit_bytes=ceiling.limit_bytes,
            used_bytes=ceiling.used_bytes,
            limit_source=ceiling.source,
            shm_used_bytes=shm.used_bytes if shm else None,
            shm_size_bytes=shm.size_bytes if shm else None,
            packs_per_second=sum(worker.packs_per_second or 0.0 for worker in workers),
            seconds_to_limit=self._seconds_to_limit(ceiling),
            workers=workers,
        )
        return snapshot, deaths

    def _total_bytes(self, seen: Mapping[int, tuple[psutil.Process, ProcessMemory]]) -> int:
        self._footprints.update(seen)
        total = sum(self._footprints.pss_bytes(pid, memory) for pid, (_, memory) in seen.items())
        self._peak_bytes = max(self._peak_bytes, total)
        return total

    def _seconds_to_limit(self, ceiling: Ceiling) -> float | None:
        """Return when the limit is reached by all that grows under it; None where nothing does."""
        self._used.add(time.monotonic() - self._started, ceiling.used_bytes)
        growth = self._used.growth
        if growth is None or not growth.keeps or growth.rate <= 0:
            return None
        return max(0.0, ceiling.left_bytes / growth.rate)

    def _read(self) -> dict[int, tuple[psutil.Process, ProcessMemory]]:
        trainer = self._roster.trainer
        seen = {trainer.pid: (trainer, read_process(trainer))}
        for pid, process in self._roster.workers.items():
            try:
                seen[pid] = process, read_process(process)
            except psutil.Error:  # it ended since; the next look says how
                continue
        return seen

    def _workers(
        self,
        seen: Mapping[int, tuple[psutil.Process, ProcessMemory]],
        work: Mapping[int, WorkDone],
        left_bytes: int,
    ) -> tuple[WorkerSnapshot, ...]:
        """Return the workers by name; the trainer is one where it makes packs itself."""
        pids = [pid for pid in seen if pid in self._roster.workers or pid in work]
        previous, self._followed = self._followed, {}
        workers = []
        for pid in pids:
            key = (pid, pid in work)
            followed = self._followed[key] = previous.get(key) or _Followed(by_packs=key[1])
            followed.look(seen[pid][1], work.get(pid))
            workers.append(self._worker(pid, seen[pid][1], followed, work.get(pid), left_bytes))
        return tuple(sorted(workers, key=lambda worker: (len(worker.name), worker.name)))

    def _worker(
        self,
        pid: int,
        memory: ProcessMemory,
        followed: "_Followed",
        work: WorkDone | None,
        left_bytes: int,
    ) -> WorkerSnapshot:
        footprint = self._footprints.of(pid)
        return WorkerSnapshot(
            name=work.name if work else f"pid {pid}",
            pid=pid,
            rss_bytes=memory.rss_bytes,
            peak_bytes=followed.peak_bytes,
            held_bytes=memory.held_bytes,
            shared_bytes=memory.shared_bytes,
            uss_bytes=footprint.uss_bytes if footprint else None,
            pss_bytes=footprint.pss_bytes if footprint else None,
            open_files=memory.open_files,
            threads=memory.threads,
            cpu_seconds_total=memory.cpu_seconds,
            packs_total=work.packs if work else 0,
            last_key=work.last_key if work else None,
            **followed.figures(left_bytes),
            **(work.figures if work else {}),
        )


class _Followed:
    """One worker over time: its peak, its packs a second, and how its memory grows."""

    def __init__(self, *, by_packs: bool) -> None:
        self.peak_bytes = 0
        self._by_packs = by_packs
        self._track = GrowthTrack(WARMUP_PACKS if by_packs else WARMUP_SECONDS)
        self._started = time.monotonic()
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RATE_LOOKS)

    def look(self, memory: ProcessMemory, work: WorkDone | None) -> None:
        now = time.monotonic()
        self.peak_bytes = max(self.peak_bytes, memory.rss_bytes, memory.peak_rss_bytes)
        self._track.add(work.packs if work else now - self._started, memory.held_bytes)
        self._recent.append((now, work.packs if work else 0))

    def figures(self, left_bytes: int) -> dict[str, Any]:
        (then, packs_then), (now, packs_now) = self._recent[0], self._recent[-1]
        packs_per_s = (packs_now - packs_then) / (now - then) if now > then else 0.0
        figures: dict[str, Any] = {"packs_per_second": packs_per_s} if self._by_packs else {}
        if growth := self._track.growth:
            per_s = growth.rate * packs_per_s if self._by_packs else growth.rate
            figures |= {"growth_bytes_per_second": per_s, "grows": growth.keeps}
            if self._by_packs:
                figures["growth_bytes_per_pack"] = growth.rate
            if growth.keeps and per_s > 0:
                figures["seconds_to_limit"] = max(0.0, left_bytes / per_s)
        return figures
