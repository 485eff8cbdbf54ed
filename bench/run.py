# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Run the benchmarks: ours against each baseline, in turn, each loader in a process of its own.

Writes ``results.json`` and the tables of ``README.md``. ``--full`` takes the larger grid;
``--only`` runs the comparisons with that in their name and keeps the other rows.
"""

import argparse
import json
import logging
import os
import sys
import time
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.update(
    OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TQDM_DISABLE="1"
)
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

from energon_pack.bridge.without_gpu import prepare_import  # noqa: E402

prepare_import()

import data  # noqa: E402 - Megatron-Bridge must not be imported before
import figures  # noqa: E402
import report  # noqa: E402
from eager import check  # noqa: E402
from loaders import Case, encoder  # noqa: E402

RESULTS = Path(__file__).parent / "results.json"

METRICS = (
    "tokens_per_s", "tokens_per_cpu_s", "packs_per_s", "fill", "first_batch_s",
    "peak_worker_rss_above_idle", "worker_uss", "peak_travelling_bytes", "pack_tensors_bytes",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One baseline and the settings of ours that are compared with it."""

    theirs: Case
    ours: tuple[Case, ...]
    seconds: float = 30

    @property
    def name(self) -> str:
        """Data, baseline and its buffer or micro batch."""
        size = self.theirs.micro_batch if self.theirs.micro_batch > 1 else self.theirs.buffer
        return f"{self.theirs.data} {self.theirs.loader} {size}"


def against_eager(data_name: str, *, full: bool, **settings: Any) -> Comparison:
    """Compare with processing before selection, at the same buffers."""
    theirs = Case(loader="eager", data=data_name, **settings)
    ours = replace(theirs, loader="ours")
    variants = [ours, replace(ours, pixel_dtype="bfloat16")]
    if data_name == "frames":  # the baselines' chain reads no encoded clips
        variants.append(replace(ours, preprocessing="bridge"))
    if theirs.shuffle < 100:  # theirs does not fit the memory with our own defaults
        variants.append(replace(ours, buffer=64, shuffle=100))
    if full:
        variants.append(replace(ours, pixel_dtype="uint8"))
    return Comparison(theirs=theirs, ours=tuple(variants), seconds=90 if full else 40)


def comparisons(*, full: bool) -> list[Comparison]:
    """Return what is run, longest waits last."""
    video = {"seq_length": 16_384, "shuffle": 16}
    chosen = [
        against_eager("photos", full=full),
        against_eager("frames", full=full, **video),
        against_eager("clips", full=full, **video),
        against_eager("mix", full=full, seq_length=16_384, shuffle=16),
    ]
    ours = Case(loader="ours", data="photos")
    for loader, sizes in (("in_batch", (4, 8)), ("unpacked", (1, 4) if full else (1,))):
        for micro_batch in sizes:
            theirs = Case(loader=loader, data="photos", micro_batch=micro_batch)
            chosen.append(Comparison(theirs=theirs, ours=(ours,)))
    wide = Case(loader="eager", data="photos", buffer=64)
    ours = replace(wide, loader="ours")
    chosen.append(Comparison(theirs=wide, ours=(ours, replace(ours, buffer=256))))
    return chosen


def rows_of(comparison: Comparison) -> list[dict[str, Any]]:
    """Measure one comparison and return its rows."""
    say(f"{comparison.theirs}")
    theirs = figures.in_new_process(figures.measure, comparison.theirs, comparison.seconds)
    rows = []
    for case in comparison.ours:
        say(f"{case}")
        ours = figures.in_new_process(figures.measure, case, comparison.seconds / 2)
        rows += [
            row(case, comparison.theirs, metric, ours[metric], theirs[metric]) for metric in METRICS
        ]
    return rows


def resume_rows() -> list[dict[str, Any]]:
    """Measure the first pack after a resume with 64 candidates in the buffer."""
    theirs = Case(loader="eager", data="photos", buffer=64, shuffle=1)
    times = {}
    for case in (replace(theirs, loader="ours"), theirs):
        say(f"resume: {case}")
        state = figures.in_new_process(figures.save, case, 2)
        times[case.loader] = figures.in_new_process(figures.resume, case, state)
    ours = replace(theirs, loader="ours")
    return [row(ours, theirs, "resume_s", times["ours"], times["eager"])]


def growth_rows() -> list[dict[str, Any]]:
    """Measure what one more candidate adds to the wait for the first batch."""
    case = Case(loader="ours", data="photos", shuffle=1)
    waits = []
    for buffer in (16, 256):
        case = replace(case, buffer=buffer)
        say(f"first batch: {case}")
        waits.append(min(figures.in_new_process(figures.first_batch, case) for _ in range(5)))
    added = (waits[1] - waits[0]) / (256 - 16)
    return [row(case, case, "first_batch_s_per_candidate", added, added)]


def row(ours: Case, theirs: Case, metric: str, our_value: float, value: float) -> dict[str, Any]:
    """Return one row of the results."""
    return {
        "name": f"{metric}, {ours} / {theirs}",
        "data": theirs.data,
        "baseline": theirs.loader,
        "metric": metric,
        "ours": our_value,
        "theirs": value,
        "ratio": our_value / value if value else None,
        "buffer": ours.buffer,
        "shuffle": ours.shuffle,
        "seq_length": ours.seq_length,
        "pixel_dtype": ours.pixel_dtype,
        "preprocessing": ours.preprocessing,
        "micro_batch": theirs.micro_batch,
    }


def say(message: str) -> None:
    """Print progress."""
    print(f"{time.strftime('%H:%M:%S')} {message}", flush=True)


def main() -> int:
    """Run what was asked for; a comparison that fails costs its own rows only."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the larger grid")
    parser.add_argument("--only", default="", help='part of a name such as "photos eager"')
    arguments = parser.parse_args()
    jobs = {c.name: partial(rows_of, c) for c in comparisons(full=arguments.full)}
    jobs |= {"photos resume": resume_rows, "photos growth": growth_rows}
    jobs = {name: job for name, job in jobs.items() if arguments.only in name}
    prepare({name.split()[0] for name in jobs})
    rows = json.loads(RESULTS.read_text()) if arguments.only and RESULTS.exists() else []
    failed = []
    for name, job in jobs.items():
        try:
            new = job()
        except (RuntimeError, OSError) as error:
            say(f"{name} failed: {error}")
            failed.append(name)
            continue
        names = {row["name"] for row in new}
        rows = [row for row in rows if row["name"] not in names] + new
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
        report.write(rows)
    say(f"{len(rows)} rows in {RESULTS.name} and README.md; failed: {', '.join(failed) or 'none'}")
    return bool(failed)


def prepare(kinds: set[str]) -> None:
    """Write the datasets, and check the eager baseline on each kind of media."""
    for kind in sorted(kinds | ({"clips_as_frames"} if "clips" in kinds else set())):
        say(f"data: {kind}")
        data.build(kind)
    for kind in sorted(kinds & {"photos", "frames"}):
        say(f"check: the eager baseline on {kind} gives Megatron-Bridge's own tensors")
        case = Case(loader="eager", data=kind, seq_length=16_384)
        figures.in_new_process(check, encoder(case), data.build(kind))


if __name__ == "__main__":
    sys.exit(main())
