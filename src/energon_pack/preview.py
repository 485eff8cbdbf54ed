# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What a dataset's packs look like before a run: read some through the real loader and measure."""

import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from energon_pack.config import PackingConfig
from energon_pack.family import load_family
from energon_pack.loader import Split, build_loader
from energon_pack.memory import read_process
from energon_pack.stats import PackInfo, PackStats

MemorySample = tuple[float, int, int]
"""Seconds since the start, worker id, resident bytes."""


@dataclass(kw_only=True, slots=True)
class WorkerPreview:
    """One worker's share of a preview."""

    worker_id: int
    pid: int
    first_pack_s: float
    """Seconds from asking for the loader to this worker's first pack."""
    stats: PackStats = field(default_factory=PackStats)
    candidates: int = 0
    buffer_bytes: int = 0
    rss_bytes: int = 0
    peak_rss_bytes: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "worker_id": self.worker_id,
            "pid": self.pid,
            "packs": self.stats.packs,
            "samples": self.stats.samples,
            "fill": self.stats.fill,
            "samples_per_pack": self.stats.samples_per_pack,
            "candidates": self.candidates,
            "buffer_bytes": self.buffer_bytes,
            "rss_bytes": self.rss_bytes,
            "peak_rss_bytes": self.peak_rss_bytes,
            "first_pack_s": self.first_pack_s,
        }


@dataclass(kw_only=True, slots=True)
class Preview:
    """Figures over the packs read so far."""

    seq_length: int
    stats: PackStats = field(default_factory=PackStats)
    workers: dict[int, WorkerPreview] = field(default_factory=dict)
    memory: list[MemorySample] = field(default_factory=list)
    first_pack_s: float = 0.0
    last_pack_s: float = 0.0
    tokens_after_first: int = 0

    def add(self, info: PackInfo, seconds: float) -> None:
        """Count a pack that came ``seconds`` after the start."""
        if not self.stats.packs:
            self.first_pack_s = seconds
        else:
            self.tokens_after_first += info.tokens
        self.last_pack_s = seconds
        self.stats.add(info)
        stream = info.stream
        worker = self.workers.setdefault(
            stream.worker_id,
            WorkerPreview(worker_id=stream.worker_id, pid=stream.pid, first_pack_s=seconds),
        )
        worker.stats.add(info)
        worker.candidates = stream.candidates
        worker.buffer_bytes = stream.buffer_bytes
        with suppress(psutil.Error):  # a worker may end between its last pack and this line
            memory = read_process(psutil.Process(stream.pid))
            worker.rss_bytes, worker.peak_rss_bytes = memory.rss_bytes, memory.peak_rss_bytes
        self.memory.append((seconds, stream.worker_id, worker.rss_bytes))

    def _per_second(self, amount: float) -> float:
        elapsed = self.last_pack_s - self.first_pack_s
        return amount / elapsed if elapsed > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; rates are counted from the first pack on."""
        return {
            "packs": self.stats.packs,
            "samples": self.stats.samples,
            "fill": self.stats.fill,
            "samples_per_pack": self.stats.samples_per_pack,
            "overfull": self.stats.overfull,
            "seq_length": self.seq_length,
            "first_pack_s": self.first_pack_s,
            "packs_per_s": self._per_second(self.stats.packs - 1),
            "tokens_per_s": self._per_second(self.tokens_after_first),
            "peak_worker_rss_bytes": max(
                (worker.peak_rss_bytes for worker in self.workers.values()), default=0
            ),
            "skipped": dict(self.stats.skipped),
            "notes": dict(self.stats.notes),
            "workers": [worker.as_dict() for _, worker in sorted(self.workers.items())],
        }


def read_preview(
    config: PackingConfig,
    *,
    packs: int,
    split: Split = "train",
    report: Path | None = None,
    progress: Callable[[Preview], None] = lambda _: None,
) -> Preview:
    """Read up to ``packs`` packs of a split; write PNG plots into ``report`` when it is given."""
    start = time.perf_counter()
    preview = Preview(seq_length=config.seq_length)
    shown = None
    loader = build_loader(config, split)
    for pack in itertools.islice(loader, packs):
        preview.add(pack["pack_info"], time.perf_counter() - start)
        progress(preview)
        shown = shown or pack
    for record in loader.worker_records():
        preview.stats.skipped.update(record.pending)
    if report is not None and shown is not None:
        _write_report(report, preview, shown, config)
    return preview


def _write_report(
    report: Path, preview: Preview, pack: dict[str, Any], config: PackingConfig
) -> None:
    from energon_pack.plots.figures import plot_fill, plot_memory
    from energon_pack.plots.pack import plot_pack

    plot_fill(report / "fill.png", preview.stats.fills)
    plot_memory(report / "memory.png", preview.memory)
    plot_pack(report / "pack.png", pack, load_family(config.model))
