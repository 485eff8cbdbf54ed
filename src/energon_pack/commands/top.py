# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""``energon-pack top`` and ``plot``: worker memory in the terminal and as a picture."""

import json
from pathlib import Path

import click
from rich.console import Console

from energon_pack.errors import UserError
from energon_pack.live import follow
from energon_pack.monitor.plot import plot_run
from energon_pack.monitor.runs import LiveProcess, RecordedRun, Source, read_snapshots


@click.command()
@click.argument("run", type=click.Path(path_type=Path), required=False, metavar="[RUN]")
@click.option("--pid", type=int, help="A trainer's process, where there are no records.")
@click.option("--every", "every_s", type=float, default=1.0, show_default=True, help="Seconds.")
@click.option(
    "--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def top(run: Path | None, pid: int | None, every_s: float, output: str) -> None:
    """Show workers' memory: RUN is a monitor's JSON lines, or the folder of many ranks."""
    source = _source(run, pid)
    if output == "json":
        latest = [history.latest for history in source.histories if history.latest]
        click.echo(json.dumps([snapshot.record() for snapshot in latest]))
    else:
        follow(source, Console(), every_s=every_s)


def _source(run: Path | None, pid: int | None) -> Source:
    if (run is None) == (pid is None):
        raise UserError("give either a file or folder of JSON lines, or --pid")
    return LiveProcess(pid) if pid is not None else RecordedRun(run or Path())


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="PNG to write; beside RUN by default.")
def plot(run: Path, out: Path | None) -> None:
    """Draw RUN, one rank's JSON lines, as a PNG: memory, packs a second, buffers."""
    picture = plot_run(read_snapshots(run), out or run.with_suffix(".png"))
    click.echo(str(picture))
