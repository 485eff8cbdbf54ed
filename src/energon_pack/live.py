# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The terminal view of worker memory: one rank in full, or a line for each of many."""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from energon_pack.monitor.columns import COLUMNS, duration_text, growth_cell
from energon_pack.monitor.runs import Curve, History, Source
from energon_pack.monitor.snapshot import Event, Snapshot
from energon_pack.sizes import format_size

_BLOCKS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 16
_BAR_WIDTH = 30
_LEFT = frozenset({"worker", "history", "largest candidate"})
# What a narrow terminal can do without, in this order.
_SHED = ("uss", "pid", "lost", "packs/s", "peak", "largest candidate", "fill", "buffer", "packs")
_BAD = {"died": "bold red", "fail": "bold red", "grows": "yellow", "warn": "yellow"}


def follow(source: Source, console: Console, *, every_s: float) -> None:
    """Show ``source`` until its runs end or the user interrupts; once where nobody can watch."""
    if not console.is_terminal or not any(history.runs for history in source.histories):
        console.print(render(source.histories, console.width))
        return
    try:
        view = render(source.histories, console.width)
        with Live(view, console=console, auto_refresh=False) as live:
            while any(history.runs for history in source.histories):
                time.sleep(every_s)
                source.poll()
                live.update(render(source.histories, console.width), refresh=True)
    except KeyboardInterrupt:
        return


def render(histories: Sequence[History], width: int) -> RenderableType:
    """Return the view of these ranks for a terminal of ``width`` columns."""
    known = [(history, history.latest) for history in histories if history.latest]
    if len(known) == 1:
        return _one_rank(*known[0], width)
    events = [
        replace(event, message=f"rank {latest.rank}: {event.message}")
        for history, latest in known
        for event in history.events
    ]
    return Group(_ranks(known), _events(events))


def sparkline(curve: Curve, width: int = _SPARK_WIDTH) -> str:
    """Return a curve as blocks; one that changes little beside its size stays low."""
    values = curve.resampled(width)
    low, high = min(values, default=0.0), max(values, default=0.0)
    span = max(high - low, 0.3 * high, 1.0)
    return "".join(_BLOCKS[min(7, int(8 * (value - low) / span))] for value in values)


def _one_rank(history: History, latest: Snapshot, width: int) -> RenderableType:
    workers = _workers(history, latest, width)
    return Group(_head(history, latest), workers, _events(list(history.events)))


def _head(history: History, latest: Snapshot) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    state = "running" if history.runs else "ended"
    when = datetime.fromtimestamp(latest.time).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    title = Text(f"rank {latest.rank} on {latest.host}, pid {latest.pid}", style="bold")
    title.append(f"   {state} {when}, {latest.step:,} packs", style="not bold")
    if latest.packs_per_second:
        title.append(f", {latest.packs_per_second:.2f} a second", style="not bold")
    total = f"{format_size(latest.total_bytes)}, peak {format_size(latest.peak_bytes)}"
    grid.add_row("this rank", sparkline(history.totals, _BAR_WIDTH), total)
    used = f"{format_size(latest.used_bytes)} of {format_size(latest.limit_bytes)}"
    if latest.seconds_to_limit is not None:
        used += f", full in {duration_text(latest.seconds_to_limit)} at this rate"
    grid.add_row(latest.limit_source, _bar(latest.used_bytes, latest.limit_bytes), used)
    if latest.shm_size_bytes and latest.shm_used_bytes is not None:
        shm = f"{format_size(latest.shm_used_bytes)} of {format_size(latest.shm_size_bytes)}"
        grid.add_row("shared memory", _bar(latest.shm_used_bytes, latest.shm_size_bytes), shm)
    return Group(title, grid)


def _bar(used: int, size: int) -> Text:
    share = min(1.0, used / size)
    colour = "green" if share < 0.6 else "yellow" if share < 0.8 else "red"
    full = round(share * _BAR_WIDTH)
    bar = Text("━" * full, style=colour)
    bar.append("━" * (_BAR_WIDTH - full), style="bright_black")
    return bar.append(f" {share:4.0%}")


def _workers(history: History, latest: Snapshot, width: int) -> RenderableType:
    if not latest.workers:
        return Text("no data workers\n", style="bright_black")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    cells = _cells(history, latest)
    for name in _SHED:
        if sum(max(map(len, (head, *column))) + 3 for head, column in cells.items()) <= width:
            break
        cells.pop(name, None)
    for name in cells:
        table.add_column(name, justify="left" if name in _LEFT else "right", no_wrap=True)
    for row, worker in zip(zip(*cells.values(), strict=True), latest.workers, strict=True):
        table.add_row(*row, style="yellow" if worker.grows else "")
    return table


def _cells(history: History, latest: Snapshot) -> dict[str, list[str]]:
    """Return the columns that have something to say."""
    cells: dict[str, list[str]] = {}
    for name, show in COLUMNS.items():
        column = [show(worker) for worker in latest.workers]
        if any(column):
            cells[name] = column
        if name == "rss":
            cells["history"] = [sparkline(history.workers[w.name]) for w in latest.workers]
    return cells


def _ranks(known: Sequence[tuple[History, Snapshot]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("rank", "host", "state", "workers", "total", "peak"):
        table.add_column(name, justify="left" if name in ("host", "state") else "right")
    table.add_column("history", no_wrap=True)
    for name in ("limit used", "packs", "packs/s", "largest worker", "growth", "events"):
        table.add_column(name, justify="right", no_wrap=True)
    for history, latest in sorted(known, key=lambda pair: pair[1].rank):
        worst = max(latest.workers, key=lambda worker: worker.rss_bytes, default=None)
        growing = max(
            latest.workers, key=lambda w: w.growth_bytes_per_second or float("-inf"), default=None
        )
        table.add_row(
            str(latest.rank),
            latest.host,
            "running" if history.runs else "ended",
            str(len(latest.workers)),
            format_size(latest.total_bytes),
            format_size(latest.peak_bytes),
            sparkline(history.totals),
            f"{latest.used_bytes / latest.limit_bytes:.0%}",
            f"{latest.step:,}",
            f"{latest.packs_per_second or 0:.2f}",
            f"{worst.name}: {format_size(worst.rss_bytes)}" if worst else "",
            f"{growing.name}: {growth_cell(growing)}" if growing and growing.grows else "",
            str(latest.warnings_total),
            style="yellow" if any(worker.grows for worker in latest.workers) else "",
        )
    return table


def _events(events: list[Event]) -> RenderableType:
    lines = Table.grid(padding=(0, 2))
    for event in sorted(events, key=lambda event: event.time)[-10:]:
        when = datetime.fromtimestamp(event.time).astimezone().strftime("%H:%M:%S")
        lines.add_row(when, Text(event.kind, style=_BAD.get(event.kind, "green")), event.message)
    return lines
