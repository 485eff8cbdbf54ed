# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""``energon-pack preview``: pack a prepared dataset and show fill, speed and memory."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from energon_pack.config import PackingConfig, load_config

if TYPE_CHECKING:
    from energon_pack.loader import Split
    from energon_pack.preview import Preview

MIB = 1 << 20


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--packs", type=click.IntRange(min=1), default=100, show_default=True, help="Packs to read."
)
@click.option("--workers", type=click.IntRange(min=0), help="Worker processes, for the YAML's own.")
@click.option("--split", type=click.Choice(["train", "val"]), default="train", show_default=True)
@click.option(
    "--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for PNG plots of fill, memory and one pack.",
)
def preview(
    data: Path, packs: int, workers: int | None, split: "Split", output: str, report: Path | None
) -> None:
    """Pack the dataset of DATA (its YAML) through the real loader, without training."""
    config = load_config(data)
    if workers is not None:
        config = dataclasses.replace(config, num_workers=workers, num_val_workers=workers)
    result = _read(config, packs, split, report)
    if output == "json":
        click.echo(json.dumps(result.as_dict()))
    else:
        show_preview(result)


def _read(config: PackingConfig, packs: int, split: "Split", report: Path | None) -> "Preview":
    from energon_pack.preview import read_preview

    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("packs, fill {task.fields[fill]:.2%}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("packing", total=packs, fill=0.0)

        def advance(so_far: "Preview") -> None:
            progress.update(task, completed=so_far.stats.packs, fill=so_far.stats.fill)

        return read_preview(config, packs=packs, split=split, report=report, progress=advance)


def show_preview(result: "Preview") -> None:
    """Print the figures of a preview as two tables."""
    console = Console()
    figures = result.as_dict()
    totals = Table.grid(padding=(0, 2))
    for label, text in (
        ("packs", f"{figures['packs']} of {figures['seq_length']} tokens"),
        ("samples", f"{figures['samples']}, {figures['samples_per_pack']:.1f} a pack"),
        ("fill", f"{figures['fill']:.2%}"),
        ("speed", f"{figures['tokens_per_s']:,.0f} tokens/s, {figures['packs_per_s']:.1f} packs/s"),
        ("first pack", f"{figures['first_pack_s']:.1f} s"),
        ("skipped", _counts(figures["skipped"])),
        ("noted", _counts(figures["notes"])),
    ):
        totals.add_row(f"[bold]{label}", text)
    console.print(totals)
    console.print(_worker_table(result))


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{cause} {count}" for cause, count in sorted(counts.items())) or "nothing"


def _worker_table(result: "Preview") -> Table:
    # Fits into 80 columns, which is what rich takes where there is no terminal.
    table = Table(title="Workers", title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for heading in (
        "worker",
        "packs",
        "fill",
        "samples\na pack",
        "in\nbuffer",
        "buffer\nMiB",
        "memory\nMiB",
        "peak\nMiB",
        "first\npack s",
    ):
        table.add_column(heading, justify="right")
    for worker in result.as_dict()["workers"]:
        table.add_row(
            str(worker["worker_id"]),
            str(worker["packs"]),
            f"{worker['fill']:.2%}",
            f"{worker['samples_per_pack']:.1f}",
            str(worker["candidates"]),
            f"{worker['buffer_bytes'] / MIB:.1f}",
            f"{worker['rss_bytes'] / MIB:.0f}",
            f"{worker['peak_rss_bytes'] / MIB:.0f}",
            f"{worker['first_pack_s']:.1f}",
        )
    return table
