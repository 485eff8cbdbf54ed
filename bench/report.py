# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of ``README.md``, from the rows of ``results.json``."""

import os
import platform
from pathlib import Path
from typing import Any

import psutil
import torch

README = Path(__file__).parent / "README.md"
_START, _END = "<!-- results -->\n", "<!-- end of results -->\n"
_BYTES = (
    "peak_worker_rss_above_idle", "worker_uss", "peak_travelling_bytes", "pack_tensors_bytes",
)  # fmt: skip


def write(rows: list[dict[str, Any]]) -> None:
    """Put the machine and one table a dataset between the marks of the README."""
    text = README.read_text()
    head, rest = text.split(_START)
    tail = rest.split(_END)[1]
    README.write_text(head + _START + _body(rows) + _END + tail)


def _body(rows: list[dict[str, Any]]) -> str:
    tables = (
        f"\n### {data}\n\n" + _table([row for row in rows if row["data"] == data])
        for data in dict.fromkeys(row["data"] for row in rows)
    )
    return "\n".join([_machine(), *tables])


def _machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")),
        platform.machine(),
    )  # fmt: skip
    return (
        f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB of memory, Linux "
        f"{platform.release()}, Python {platform.python_version()}, torch {torch.__version__}.\n"
    )


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| metric | settings | baseline | ours | theirs | ours / theirs |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        settings = (
            f"{row['pixel_dtype']}, {row['preprocessing']}, buffer {row['buffer']}, "
            f"shuffle {row['shuffle']}, {row['seq_length']}"
        )
        baseline = row["baseline"]
        if row["micro_batch"] > 1:
            baseline += f", {row['micro_batch']}"
        ours, theirs = (_number(row["metric"], row[side]) for side in ("ours", "theirs"))
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.3g}"
        lines.append(f"| {row['metric']} | {settings} | {baseline} | {ours} | {theirs} | {ratio} |")
    return "\n".join(lines) + "\n"


def _number(metric: str, value: float) -> str:
    if metric in _BYTES:
        return f"{value / 1e6:,.0f} MB"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
