# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What all plots have in common: colours, and axes that are written to a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from energon_pack.optional import require

WORKER_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette, which colour-blind people can tell apart."""
INK: Final = "#222222"
FAINT: Final = "#8A8A8A"


def colour_of(number: int) -> str:
    """Return the colour of a worker or segment; they repeat after six."""
    return WORKER_COLOURS[number % len(WORKER_COLOURS)]


def pyplot() -> Any:
    """Return ``matplotlib.pyplot`` without a display; raises ``MissingPackageError``."""
    require("matplotlib", "demo").use("Agg")
    return require("matplotlib.pyplot", "demo")


@contextmanager
def axes_of(path: Path, title: str, across: str, up: str) -> Iterator[Any]:
    """Yield axes to draw on; the PNG ``path`` is written at the end."""
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
        save(figure, path, dpi=130)
    finally:
        plt.close(figure)


def save(figure: Any, path: Path, *, dpi: int = 110) -> None:
    """Write a figure as the PNG ``path``, and close it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)
    pyplot().close(figure)
