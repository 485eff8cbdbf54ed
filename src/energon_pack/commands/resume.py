# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""``energon-pack verify-resume``: prove on the user's own shards that a resume is exact."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from energon_pack.config import load_config
from energon_pack.sizes import format_size

if TYPE_CHECKING:
    from energon_pack.loader import Split
    from energon_pack.verify import ResumePoint


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--split", type=click.Choice(["train", "val"]), default="train", show_default=True)
@click.option(
    "--packs", type=click.IntRange(min=2), default=24, show_default=True, help="Packs to compare."
)
@click.option(
    "--points", type=click.IntRange(min=1), default=3, show_default=True, help="States to save."
)
@click.option(
    "--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def verify_resume(data: Path, split: "Split", packs: int, points: int, output: str) -> None:
    """Save, resume in a new process, compare packs of DATA (its YAML); exit 1 on a difference."""
    from energon_pack import verify

    results = verify.verify_resume(load_config(data), split, points=points, packs=packs)
    if output == "json":
        click.echo(json.dumps([dataclasses.asdict(result) for result in results]))
    else:
        _show(results)
    sys.exit(any(result.first_difference for result in results))


def _show(results: "list[ResumePoint]") -> None:
    table = Table()
    for column in ("saved after pack", "state", "packs compared", "first pack after", "result"):
        table.add_column(column, justify="right")
    for point in results:
        same = point.first_difference is None
        table.add_row(
            str(point.after),
            format_size(point.state_bytes),
            str(point.compared),
            f"{point.first_pack_s:.1f} s",
            "identical" if same else f"differs from pack {point.first_difference} on",
        )
    Console().print(table)
