# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""``energon-pack plan``, ``verify-hcp`` and ``check-log``: numbers and groups of a topology."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import click

from energon_pack.plan import Topology, make_plan, plan_epochs
from energon_pack.planning.hcp import check_log as check_log_lines
from energon_pack.planning.hcp import factorise, parse_sizes
from energon_pack.planning.modes import MODES
from energon_pack.planning.plan_report import PlanReport
from energon_pack.settings import as_overrides, as_python, as_yaml

FAILED = 1
_SIZE = click.IntRange(1)
_WRITERS = {"python": as_python, "overrides": as_overrides, "yaml": as_yaml}


@click.command()
@click.option("--tp", "tensor", type=_SIZE, default=1, help="Tensor parallel size.")
@click.option("--cp", "context", type=_SIZE, default=1, help="Context parallel size.")
@click.option("--ep", "expert", type=_SIZE, default=1, help="Expert parallel size.")
@click.option("--pp", "pipeline", type=_SIZE, default=1, help="Pipeline parallel size.")
@click.option("--sp", "sequence_parallel", is_flag=True, help="Sequence parallelism.")
@click.option("--eval-cp", "eval_context", type=_SIZE, help="Context size of evaluation.")
@click.option("--world-size", type=_SIZE, default=8, show_default=True, help="Ranks.")
@click.option("--seq-length", type=_SIZE, default=8192, show_default=True, help="Tokens a pack.")
@click.option("--global-batch", type=_SIZE, default=32, show_default=True, help="Packs a step.")
@click.option("--mode", type=click.Choice(list(MODES)), default="online", show_default=True)
@click.option("--write", type=click.Choice(list(_WRITERS)), help="Write the mode's settings only.")
@click.option("--kv-heads", type=_SIZE, default=8, show_default=True, help="For splits of CP.")
@click.option("--gpus-per-node", type=_SIZE, default=8, show_default=True, help="Likewise.")
@click.option("--data", type=click.Path(path_type=Path), help="Dataset YAML, for packs an epoch.")
@click.option("--samples", type=_SIZE, help="Or its number of conversations,")
@click.option("--mean-tokens", type=float, help="and their mean length, from preview.")
@click.option("--epochs", type=float, default=1.0, show_default=True)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
def plan(
    mode: str,
    write: str | None,
    kv_heads: int,
    gpus_per_node: int,
    data: Path | None,
    samples: int | None,
    mean_tokens: float | None,
    epochs: float,
    form: str,
    **sizes: Any,
) -> None:
    """Print alignment, packs a step, lengths that fit, and the settings of a packing mode."""
    topology = Topology(**sizes)
    splits = factorise(
        topology.context, kv_heads=kv_heads, tensor=topology.tensor, gpus_per_node=gpus_per_node
    )
    settings = MODES[mode](topology, splits)
    if write:
        click.echo(_WRITERS[write](settings))
        return
    epoch = None
    if data:
        samples, mean_tokens = _measure(data, topology)
    if samples and mean_tokens:
        epoch = plan_epochs(topology, samples=samples, mean_tokens=mean_tokens, epochs=epochs)
    report = PlanReport(
        plan=make_plan(topology), mode=mode, settings=settings, splits=splits, epoch=epoch
    )
    click.echo(report.to_json() if form == "json" else report.text())


def _measure(data: Path, topology: Topology) -> tuple[int, float]:
    """Return a dataset's usable samples and their mean length, in rows of the topology."""
    from energon_pack.config import load_config
    from energon_pack.lengths import measure_lengths

    config = dataclasses.replace(
        load_config(data), seq_length=topology.seq_length, alignment=topology.alignment
    )
    lengths = measure_lengths(config)
    return lengths.samples, lengths.mean_tokens


@click.command()
@click.option("--sizes", required=True, metavar="A2A,P2P", help="Sizes of the levels, as 2,2.")
@click.option(
    "--flat", is_flag=True, help="Leave the sizes out, to see what a flat run looks like."
)
def verify_hcp(sizes: str, flat: bool) -> None:
    """Make the groups on this machine with Megatron Core, a gloo process a rank, and compare.

    Exit status: 0 every rank has its groups, 1 the hierarchy is absent or wrong, 2 could not run.
    """
    from energon_pack.planning.hcp_verify import verify_hierarchy

    check = verify_hierarchy(parse_sizes(sizes), flat=flat)
    for rank in check.ranks:
        groups = " ".join(f"level {level} {group}" for level, group in enumerate(rank.levels))
        click.echo(f"rank {rank.rank}: context {rank.context} {groups or 'no hierarchy'}")
    for problem in check.problems:
        click.echo(f"failed: {problem}", err=True)
    if not check.passed:
        sys.exit(FAILED)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def check_log(file: Path) -> None:
    """Tell from a training log whether hierarchical context-parallel groups were made.

    Exit status: 0 they were, 1 flat groups only or neither.
    """
    with file.open(encoding="utf-8", errors="replace") as lines:
        found = check_log_lines(lines)
    click.echo(found)
    if found.verdict != "hierarchical":
        sys.exit(FAILED)
