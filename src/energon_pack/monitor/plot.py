# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A recorded run as one picture: memory, packs a second, and what the buffers hold."""

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from energon_pack.monitor.columns import growth_cell
from energon_pack.monitor.snapshot import Snapshot
from energon_pack.plots.axes import FAINT, INK, colour_of, pyplot, save
from energon_pack.sizes import format_size

_GIB: Final = 1 << 30
_EVENT_COLOURS: Final = {"died": "#B00020", "fail": "#B00020", "steady": "#009E73"}
_MOST_IN_LEGEND: Final = 12

Line = tuple[list[float], list[float]]


def plot_run(snapshots: Sequence[Snapshot], path: Path) -> Path:
    """Draw ``snapshots`` into the PNG ``path``.

    Raises ``MissingPackageError`` without matplotlib.
    """
    plt = pyplot()
    unit, seconds = _unit(snapshots[-1].time - snapshots[0].time)
    times = [(snapshot.time - snapshots[0].time) / seconds for snapshot in snapshots]
    style = {"axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": FAINT}
    with plt.rc_context(style):
        figure, axes = plt.subplots(
            3, sharex=True, figsize=(9, 7.5), height_ratios=(3, 1, 1), layout="constrained"
        )
        _draw_memory(axes[0], snapshots, times)
        _draw_packs(axes[1], snapshots, times)
        _draw_buffers(axes[2], snapshots, times)
        for axis in axes:
            axis.set_ylim(bottom=0)
            axis.grid(axis="y", color="#E6E6E6", linewidth=0.7)
        axes[2].set_xlabel(f"{unit} since the first look")
        axes[2].set_xlim(left=0)
        save(figure, path)
    return path


def _unit(span_s: float) -> tuple[str, int]:
    if span_s < 300:
        return "seconds", 1
    return ("minutes", 60) if span_s < 3 * 3600 else ("hours", 3600)


def _draw_memory(axis: Any, snapshots: Sequence[Snapshot], times: list[float]) -> None:
    last = snapshots[-1]
    total = [s.total_bytes / _GIB if s.workers else math.nan for s in snapshots]
    label = f"rank in all, peak {format_size(last.peak_bytes)}"
    axis.plot(times, total, color=INK, linewidth=1.8, label=label)
    lines = _worker_lines(snapshots, times, "rss_bytes")
    latest = {worker.name: worker for snapshot in snapshots for worker in snapshot.workers}
    for number, (name, (x, y)) in enumerate(lines.items()):
        worker = latest[name]
        label = f"worker {name}, peak {format_size(worker.peak_bytes)}"
        if worker.grows:
            label += f", {growth_cell(worker)}"
        hidden = number >= _MOST_IN_LEGEND
        colour = colour_of(number)
        axis.plot(x, y, color=colour, linewidth=1.2, label=None if hidden else label)
    if last.limit_bytes < 3 * last.peak_bytes:
        axis.axhline(last.limit_bytes / _GIB, color="#B00020", linestyle="--", linewidth=1)
        axis.annotate(f"{last.limit_source} limit", (0, last.limit_bytes / _GIB), va="bottom")
    _draw_events(axis, snapshots, times)
    axis.set_ylabel("memory (GiB)")
    title = f"Worker memory, rank {last.rank} on {last.host}"
    axis.set_title(title, loc="left", color=INK, pad=28)
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)


def _draw_events(axis: Any, snapshots: Sequence[Snapshot], times: list[float]) -> None:
    events = [
        (time, event)
        for time, snapshot in zip(times, snapshots, strict=True)
        for event in snapshot.events
    ]
    for number, (time, event) in enumerate(events):
        colour = _EVENT_COLOURS.get(event.kind, "#E69F00")
        axis.axvline(time, color=colour, linewidth=1, linestyle=":")
        axis.annotate(
            f"{event.kind} {event.worker or ''}",
            (time, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3 + 10 * (number % 2)),  # neighbours stand in two rows
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=colour,
        )


def _draw_packs(axis: Any, snapshots: Sequence[Snapshot], times: list[float]) -> None:
    packs = [snapshot.packs_per_second or 0.0 for snapshot in snapshots]
    axis.plot(times, packs, color=INK, linewidth=1.2)
    axis.set_ylabel("packs a second")


def _draw_buffers(axis: Any, snapshots: Sequence[Snapshot], times: list[float]) -> None:
    lines = _worker_lines(snapshots, times, "buffer_bytes")
    for number, (x, y) in enumerate(lines.values()):
        mib = [value * 1024 for value in y]
        axis.plot(x, mib, color=colour_of(number), linewidth=1.2)
    axis.set_ylabel("buffer (MiB)")


def _worker_lines(
    snapshots: Sequence[Snapshot], times: list[float], attribute: str
) -> dict[str, Line]:
    """Return each worker's times and GiB, under its name from its first pack on."""
    lines: dict[str, Line] = defaultdict(lambda: ([], []))
    named = {worker.pid for snapshot in snapshots for worker in snapshot.workers if _named(worker)}
    pids: dict[str, int] = {}
    for time, snapshot in zip(times, snapshots, strict=True):
        for worker in snapshot.workers:
            value = getattr(worker, attribute)
            if value is None or (worker.pid in named and not _named(worker)):
                continue
            x, y = lines[worker.name]
            if pids.setdefault(worker.name, worker.pid) != worker.pid:
                pids[worker.name] = worker.pid
                value = math.nan  # a gap: the run was resumed
            x.append(time)
            y.append(value / _GIB)
    return dict(lines)


def _named(worker: Any) -> bool:
    return not worker.name.startswith("pid ")
