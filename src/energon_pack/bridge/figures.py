# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What the packs of the last steps were, on one rank and then over all data-parallel ranks."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import psutil
import torch
import torch.distributed as dist

from energon_pack.bridge.replicas import device_of
from energon_pack.memory import read_process
from energon_pack.refusal import CAUSES
from energon_pack.stats import PackInfo, PackStats, StreamInfo

_TOTALS: Final = (
    "packs",
    "samples",
    "tokens",
    "trained_tokens",
    "capacity",
    "width",
    "visual_patches",
)


@dataclass(kw_only=True, slots=True)
class IntervalFigures:
    """One rank's packs since the last log line, and the latest of each of its workers."""

    stats: PackStats = field(default_factory=PackStats)
    streams: dict[int, StreamInfo] = field(default_factory=dict)
    """By process id of the worker."""
    seconds: float = 0.0
    """Wall seconds inside training steps; evaluation and checkpoints are not in it."""

    def add(self, info: PackInfo) -> None:
        """Count a pack as the trainer takes it."""
        self.stats.add(info)
        self.streams[info.stream.pid] = info.stream

    def start_interval(self) -> None:
        """Begin the next interval; the workers' latest figures stay."""
        self.stats = PackStats()
        self.seconds = 0.0

    def worker_bytes(self) -> list[int]:
        """Return the resident memory of each worker that is still there."""
        found = []
        for pid in self.streams:
            with contextlib.suppress(psutil.Error):
                found.append(read_process(psutil.Process(pid)).rss_bytes)
        return found

    def totals(self) -> dict[str, float]:
        """Return what adds up over ranks."""
        values: dict[str, float] = {name: getattr(self.stats, name) for name in _TOTALS}
        values["workers"] = len(self.streams)
        values["candidates"] = sum(stream.candidates for stream in self.streams.values())
        values["buffer_bytes"] = sum(stream.buffer_bytes for stream in self.streams.values())
        values |= {f"skipped/{cause}": self.stats.skipped[cause] for cause in CAUSES}
        return values


def reduce_figures(
    figures: IntervalFigures, group: dist.ProcessGroup
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the totals and the highest values over ``group``, whose ranks must all call this."""
    worker_bytes = figures.worker_bytes()
    totals = figures.totals() | {"worker_bytes": sum(worker_bytes)}
    highest = {"seconds": figures.seconds, "worker_bytes": max(worker_bytes, default=0)}
    _all_reduce(totals, dist.ReduceOp.SUM, group)
    _all_reduce(highest, dist.ReduceOp.MAX, group)
    return totals, highest


def _all_reduce(values: dict[str, float], op: Any, group: dist.ProcessGroup) -> None:
    tensor = torch.tensor(list(values.values()), dtype=torch.float64, device=device_of(group))
    dist.all_reduce(tensor, op, group=group)
    values.update(zip(values, tensor.tolist(), strict=True))


def metrics(totals: Mapping[str, float], highest: Mapping[str, float]) -> dict[str, float]:
    """Return what is logged, by its name there; nothing when no pack was taken."""
    packs, workers = totals["packs"], max(totals["workers"], 1)
    if not packs:
        return {}
    values = {
        "packing/fill": totals["tokens"] / totals["capacity"],
        "packing/padding": 1 - totals["tokens"] / totals["width"],
        "packing/samples_per_pack": totals["samples"] / packs,
        "packing/tokens_per_pack": totals["tokens"] / packs,
        "packing/trained_tokens_per_pack": totals["trained_tokens"] / packs,
        "packing/visual_patches_per_pack": totals["visual_patches"] / packs,
        "packing/candidates_per_worker": totals["candidates"] / workers,
        "packing/buffer_bytes_per_worker": totals["buffer_bytes"] / workers,
        "packing/worker_bytes_mean": totals["worker_bytes"] / workers,
        "packing/worker_bytes_max": highest["worker_bytes"],
    }
    if highest["seconds"] > 0:
        values["packing/tokens_per_second"] = totals["tokens"] / highest["seconds"]
    return values
