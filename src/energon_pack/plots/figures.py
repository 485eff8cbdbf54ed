# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Plots of a run that a person can read: fill, worker memory, loss."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from energon_pack.plots.axes import FAINT, INK, WORKER_COLOURS, axes_of, colour_of

MIB: Final = 1 << 20


def plot_fill(path: Path, fills: Sequence[float], *, title: str = "Fill per pack") -> Path:
    """Draw each pack's real tokens as a share of seq_length, and their mean."""
    mean = sum(fills) / len(fills)
    with axes_of(path, title, "pack", "real tokens / seq_length (%)") as axes:
        shares = [100 * fill for fill in fills]
        numbers = range(1, len(fills) + 1)
        axes.axhline(100, color=FAINT, linewidth=1, linestyle="--", label="full")
        axes.axhline(100 * mean, color=WORKER_COLOURS[1], linewidth=1.5, label=f"mean {mean:.2%}")
        axes.plot(numbers, shares, "o", color=WORKER_COLOURS[0], markersize=6, label="one pack")
        low = min(95.0, min(shares) - 1)
        axes.set_ylim(low, 100 + 0.08 * (100 - low))
        axes.set_xlim(0, len(fills) + 1)
        axes.legend(loc="lower right")
    return path


def plot_memory(path: Path, samples: Iterable[tuple[float, int, int]]) -> Path:
    """Draw resident memory; ``samples`` are (seconds since the start, worker id, bytes)."""
    workers: dict[int, list[tuple[float, float]]] = {}
    for seconds, worker, size in samples:
        workers.setdefault(worker, []).append((seconds, size / MIB))
    with axes_of(
        path, "Memory per worker while packing", "seconds since the start", "resident memory (MiB)"
    ) as axes:
        for number, (worker, points) in enumerate(sorted(workers.items())):
            colour = colour_of(number)
            seconds_of, sizes = zip(*points, strict=True)
            label = f"worker {worker}, peak {max(sizes):.0f} MiB"
            axes.plot(seconds_of, sizes, "o-", color=colour, markersize=3, label=label)
        axes.set_ylim(0, 1.2 * max(size for points in workers.values() for _, size in points))
        axes.set_xlim(left=0)
        axes.legend(loc="lower right")
    return path


def plot_loss(path: Path, losses: Sequence[float]) -> Path:
    """Draw the loss of each step, a mean over the trained tokens of one pack."""
    with axes_of(
        path,
        "Training loss of the tiny Qwen3-VL",
        "step (one pack each)",
        "loss per trained token (nats)",
    ) as axes:
        axes.plot(range(1, len(losses) + 1), losses, "o-", color=WORKER_COLOURS[0], markersize=4)
        for place, align in ((0, "left"), (-1, "right")):
            at = (1 if place == 0 else len(losses), losses[place])
            axes.annotate(
                f"{losses[place]:.2f}",
                at,
                xytext=(0, 9),
                textcoords="offset points",
                ha=align,
                color=INK,
                fontweight="bold",
            )
        axes.set_ylim(0, 1.1 * max(losses))
    return path
