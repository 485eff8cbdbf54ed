# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""``energon-pack demo-data`` and ``energon-pack demo``: a dataset and a run to try things on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from energon_pack.demo.conversations import KINDS
from energon_pack.demo.dataset import build_dataset

if TYPE_CHECKING:
    from energon_pack.config import PackingConfig
    from energon_pack.demo.dataset import Kind
    from energon_pack.demo.train import Comparison, Step
    from energon_pack.preview import Preview

FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("folder", type=FOLDER, metavar="DIR")
@click.option("--kind", type=click.Choice(list(KINDS)), default="mixed", show_default=True)
@click.option("--samples", type=int, default=480, show_default=True, help="Conversations.")
@click.option("--seed", type=int, default=0, show_default=True)
def demo_data(folder: Path, kind: "Kind", samples: int, seed: int) -> None:
    """Write a small prepared dataset of real photos and clips into DIR, with its data.yaml."""
    with _bar("building the dataset", samples) as bar:
        config = build_dataset(folder, kind, samples=samples, seed=seed, advance=bar.step)
    click.echo(f"{config} is ready; try: energon-pack preview {config}")


@click.command()
@click.argument("folder", type=FOLDER, metavar="DIR", default="demo")
def demo(folder: Path) -> None:
    """Pack real photos and clips, train a tiny Qwen3-VL on them, and write plots to DIR/report."""
    from energon_pack.commands.preview import show_preview

    report = folder / "report"
    config = _dataset(folder)
    show_preview(_preview(config, report))
    _show_training(*_training(config, report))
    click.echo("\nPlots")
    for plot in sorted(report.glob("*.png")):
        click.echo(f"  {plot}")


def _dataset(folder: Path) -> "PackingConfig":
    from energon_pack.demo.run import SAMPLES, demo_dataset

    with _bar("1/3 building the dataset", SAMPLES) as bar:
        return demo_dataset(folder, bar.step)


def _preview(config: "PackingConfig", report: Path) -> "Preview":
    from energon_pack.demo.run import PACKS
    from energon_pack.preview import read_preview

    with _bar("2/3 packing online", PACKS) as bar:
        return read_preview(config, packs=PACKS, report=report, progress=bar.show_fill)


def _training(config: "PackingConfig", report: Path) -> tuple[list["Step"], "Comparison"]:
    from energon_pack.demo.run import STEPS, demo_training

    with _bar("3/3 training a tiny Qwen3-VL", STEPS) as bar:
        return demo_training(config, report, bar.show_loss)


class _Bar:
    """A progress bar with a figure beside it."""

    def __init__(self, progress: Progress, label: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(label, total=total, figure="")

    def step(self) -> None:
        self._progress.advance(self._task)

    def show_fill(self, preview: "Preview") -> None:
        self._progress.update(self._task, advance=1, figure=f"fill {preview.stats.fill:.2%}")

    def show_loss(self, step: "Step") -> None:
        self._progress.update(self._task, advance=1, figure=f"loss {step.loss:.2f}")


@contextmanager
def _bar(label: str, total: int) -> Iterator[_Bar]:
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figure]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield _Bar(progress, label, total)


def _show_training(steps: "list[Step]", comparison: "Comparison") -> None:
    tokens = sum(step.trained_tokens for step in steps)
    difference = abs(comparison.packed_loss - comparison.alone_loss)
    click.echo(
        f"\nTraining: {len(steps)} steps, {tokens} trained tokens, "
        f"loss {steps[0].loss:.2f} to {steps[-1].loss:.2f}\n"
        f"One pack of {comparison.samples} samples: loss {comparison.packed_loss:.6f} packed, "
        f"{comparison.alone_loss:.6f} one by one\n"
        f"  difference {difference:.1e}; largest gradient difference "
        f"{comparison.gradient_difference:.1e} of the largest gradient"
    )
