# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""``energon-pack demo-data`` and ``energon-pack demo``: a dataset and a run to try things on."""

from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from energon_pack.demo.conversations import KINDS
from energon_pack.demo.dataset import build_dataset


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.option("--kind", type=click.Choice(list(KINDS)), default="mixed", show_default=True)
@click.option("--samples", type=int, default=480, show_default=True, help="Conversations.")
@click.option("--seed", type=int, default=0, show_default=True)
def demo_data(folder: Path, kind: str, samples: int, seed: int) -> None:
    """Write a small prepared dataset of real photos and clips into DIR, with its data.yaml."""
    console = Console(stderr=True)
    steps = iter(track(range(samples), "Building the dataset", console=console))
    config = build_dataset(folder, kind, samples=samples, seed=seed, advance=lambda: next(steps))
    for _ in steps:  # ends the bar
        pass
    click.echo(f"{config} is ready; try: energon-pack preview {config}")
