# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The columns of a table of workers, for the terminal, the log and the error alike."""

from collections.abc import Callable
from typing import Final

from energon_pack.monitor.snapshot import Snapshot, WorkerSnapshot
from energon_pack.sizes import format_size


def growth_text(worker: WorkerSnapshot) -> str:
    """Return the growth for a person, such as ``+1,020 MB per 1,000 packs``; empty if unknown."""
    if worker.growth_bytes_per_pack is not None:
        return f"{worker.growth_bytes_per_pack / 1e3:+,.0f} MB per 1,000 packs"
    if worker.growth_bytes_per_second is not None:
        return f"{worker.growth_bytes_per_second * 3600 / 1e6:+,.0f} MB an hour"
    return ""


def duration_text(seconds: float) -> str:
    """Return a duration for a person, such as ``40 s``, ``12 min``, ``3.5 h`` or ``9 days``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 100 * 3600 else f"{seconds / 86400:.0f} days"


def _size(value: int | None) -> str:
    return "" if value is None else format_size(value)


def _of(used_bytes: int, size_bytes: int) -> str:
    return f"{format_size(used_bytes)} of {format_size(size_bytes)}"


def growth_cell(worker: WorkerSnapshot) -> str:
    """Return the growth as short as a column wants it."""
    text = growth_text(worker)
    return text.replace(" per 1,000 packs", "/1k").replace(" an hour", "/h")


def _buffer(worker: WorkerSnapshot) -> str:
    if worker.candidates is None:
        return ""
    return f"{worker.candidates} / {format_size(worker.buffer_bytes or 0)}"


def _largest(worker: WorkerSnapshot) -> str:
    if not worker.largest_key:
        return ""
    return f"{worker.largest_key[-24:]} {format_size(worker.largest_bytes or 0)}"


COLUMNS: Final[dict[str, Callable[[WorkerSnapshot], str]]] = {
    "worker": lambda worker: worker.name,
    "pid": lambda worker: str(worker.pid),
    "rss": lambda worker: format_size(worker.rss_bytes),
    "peak": lambda worker: format_size(worker.peak_bytes),
    "uss": lambda worker: _size(worker.uss_bytes),
    "growth": growth_cell,
    "packs": lambda worker: f"{worker.packs_total:,}",
    "packs/s": lambda worker: (
        "" if worker.packs_per_second is None else f"{worker.packs_per_second:.2f}"
    ),
    "fill": lambda worker: "" if worker.fill_ratio is None else f"{worker.fill_ratio:.1%}",
    "lost": lambda worker: f"{worker.skipped_samples_total:,}",
    "buffer": _buffer,
    "largest candidate": _largest,
}
_LEFT: Final = frozenset({"worker", "largest candidate"})


def total_text(snapshot: Snapshot) -> str:
    """Return the rank's totals as one line."""
    parts = [
        f"rank {snapshot.rank} on {snapshot.host}: {format_size(snapshot.total_bytes)}",
        f"peak {format_size(snapshot.peak_bytes)}",
        f"{snapshot.limit_source} {_of(snapshot.used_bytes, snapshot.limit_bytes)}",
    ]
    if snapshot.seconds_to_limit is not None:
        parts.append(f"full in {duration_text(snapshot.seconds_to_limit)} at this rate")
    if snapshot.shm_size_bytes:
        parts.append(f"shared memory {_of(snapshot.shm_used_bytes or 0, snapshot.shm_size_bytes)}")
    return ", ".join(parts)


def plain_table(snapshot: Snapshot) -> str:
    """Return the rank's totals and a row for each worker as plain text."""
    rows = [list(COLUMNS)]
    rows += [[show(worker) for show in COLUMNS.values()] for worker in snapshot.workers]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [total_text(snapshot)]
    for row in rows:
        cells = [
            cell.ljust(width) if name in _LEFT else cell.rjust(width)
            for name, cell, width in zip(COLUMNS, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
