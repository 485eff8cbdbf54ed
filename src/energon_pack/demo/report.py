# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Plots of a run that a person can read: fill, worker memory, loss."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from energon_pack.optional import require

WORKER_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette, which colour-blind people can tell apart."""
INK: Final = "#222222"
FAINT: Final = "#8A8A8A"

MIB: Final = 1 << 20


def plot_fill(path: Path, fills: Sequence[float], *, title: str = "Fill per pack") -> Path:
    """Draw each pack's real tokens as a share of seq_length, and their mean."""
    mean = sum(fills) / len(fills)
    with _axes(path, title, "pack", "real tokens / seq_length (%)") as axes:
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
    with _axes(
        path, "Memory per worker while packing", "seconds since the start", "resident memory (MiB)"
    ) as axes:
        for number, (worker, points) in enumerate(sorted(workers.items())):
            colour = WORKER_COLOURS[number % len(WORKER_COLOURS)]
            seconds_of, sizes = zip(*points, strict=True)
            label = f"worker {worker}, peak {max(sizes):.0f} MiB"
            axes.plot(seconds_of, sizes, "o-", color=colour, markersize=3, label=label)
        axes.set_ylim(0, 1.2 * max(size for points in workers.values() for _, size in points))
        axes.set_xlim(left=0)
        axes.legend(loc="lower right")
    return path


def plot_loss(path: Path, losses: Sequence[float]) -> Path:
    """Draw the loss of each step, a mean over the trained tokens of one pack."""
    with _axes(
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


def pyplot() -> Any:
    """Return ``matplotlib.pyplot`` without a display; raises ``MissingPackageError``."""
    require("matplotlib", "demo").use("Agg")
    return require("matplotlib.pyplot", "demo")


@contextmanager
def _axes(path: Path, title: str, across: str, up: str) -> Iterator[Any]:
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(9, 4.8), layout="constrained")
    axes.set_title(title, loc="left", fontsize=15, fontweight="bold", color=INK, pad=12)
    axes.set_xlabel(across, fontsize=12, color=INK)
    axes.set_ylabel(up, fontsize=12, color=INK)
    axes.tick_params(labelsize=11, colors=INK)
    axes.grid(axis="y", color="#E4E4E4")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    try:
        yield axes
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130)
    finally:
        plt.close(figure)
