# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""From a topology to its numbers: alignment, packs and token slots a step, lengths that fit.

Example: TP 2 with sequence parallelism, CP 2, 16 ranks, seq_length 8192, global batch 16.
CP wants 2 * CP = 4, sequence parallelism CP * TP = 4, so segments have multiples of lcm(4, 4) = 4
tokens. 16 / (2 * 2) = 4 data-parallel ranks make 16 / 4 = 4 packs each, 131072 token slots a step.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from energon_pack.alignment import ParallelShape, required_multiple
from energon_pack.strict import ConfigError, Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """Parallel sizes and batch, as a recipe has them. Raises ``ConfigError`` when they clash."""

    tensor: int = 1
    context: int = 1
    expert: int = 1
    pipeline: int = 1
    sequence_parallel: bool = False
    eval_context: int | None = None
    """Context size of evaluation; None when it is that of training."""
    world_size: int = 1
    seq_length: int = 8192
    """Tokens a pack may hold."""
    global_batch: int = 1
    """Packs a step, over all ranks."""

    def __post_init__(self) -> None:
        """Check the sizes against each other; report everything at once."""
        problems = list(_problems(self))
        if problems:
            raise ConfigError(problems)

    @property
    def scatters_sequence(self) -> bool:
        """Sequence parallelism as resolved: experts with tensor parallelism switch it on."""
        return self.tensor > 1 and (self.sequence_parallel or self.expert > 1)

    @property
    def data(self) -> int:
        """Data-parallel size."""
        return self.world_size // (self.tensor * self.pipeline * self.context)

    @property
    def alignment(self) -> int:
        """Multiple of every segment, in tokens."""
        return required_multiple(
            ParallelShape(
                tensor=self.tensor,
                context=self.context,
                sequence_parallel=self.scatters_sequence,
                eval_context=self.eval_context,
            )
        )


def _problems(topology: Topology) -> Iterator[Problem]:
    names = ("tensor", "context", "expert", "pipeline", "world_size", "seq_length", "global_batch")
    small = [name for name in names if getattr(topology, name) < 1]
    for name in small:
        yield Problem(name, f"is {getattr(topology, name)}; it must be at least 1")
    if topology.eval_context is not None and topology.eval_context < 1:
        yield Problem("eval_context", f"is {topology.eval_context}; it must be at least 1")
    if small:
        return
    replica = topology.tensor * topology.pipeline * topology.context
    if topology.world_size % replica:
        yield Problem(
            "world_size",
            f"is {topology.world_size}, no multiple of TP * PP * CP = {replica}; "
            f"set {_up(topology.world_size, replica)}",
        )
    elif topology.global_batch % topology.data:
        yield Problem(
            "global_batch",
            f"is {topology.global_batch}, no multiple of the {topology.data} data-parallel ranks; "
            f"set {_up(topology.global_batch, topology.data)}",
        )


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a topology comes to."""

    topology: Topology
    alignment: int
    """Multiple of every segment, in tokens."""
    derivation: tuple[str, ...]
    data_parallel: int
    packs_per_rank: int
    """Micro batches of a data-parallel rank a step."""
    slots_per_step: int
    """Token slots a step, over all ranks."""
    valid_lengths: tuple[int, ...]
    """seq_lengths around the one asked for that divide as they must, rising."""
    equal_tokens: tuple[tuple[int, int], ...]
    """(seq_length, global batch) with as many token slots a step."""


def make_plan(topology: Topology) -> Plan:
    """Work out the plan of a topology."""
    return Plan(
        topology=topology,
        alignment=topology.alignment,
        derivation=tuple(_derivation(topology)),
        data_parallel=topology.data,
        packs_per_rank=topology.global_batch // topology.data,
        slots_per_step=topology.seq_length * topology.global_batch,
        valid_lengths=_valid_lengths(topology.seq_length, topology.alignment),
        equal_tokens=tuple(_equal_tokens(topology)),
    )


def _derivation(topology: Topology) -> Iterator[str]:
    contexts = {"training": topology.context}
    if topology.eval_context not in (None, topology.context):
        assert topology.eval_context is not None
        contexts["evaluation"] = topology.eval_context
    for use, context in contexts.items():
        if context > 1:
            yield f"{use}: CP {context} cuts each segment into 2 * CP = {2 * context} chunks"
        else:
            yield f"{use}: CP 1 cuts nothing"
        if topology.scatters_sequence:
            why = "" if topology.sequence_parallel else ", which experts with TP > 1 switch on"
            yield (
                f"{use}: sequence parallelism{why} scatters the row over "
                f"CP * TP = {context * topology.tensor} ranks"
            )
    yield f"least common multiple: {topology.alignment}"


def _valid_lengths(wanted: int, alignment: int) -> tuple[int, ...]:
    middle = wanted // alignment
    around = range(max(middle - 1, 1), middle + 3)
    return tuple(count * alignment for count in around)


def _equal_tokens(topology: Topology) -> Iterator[tuple[int, int]]:
    for power in (-2, -1, 1, 2):
        factor = 2.0**power
        length, batch = topology.seq_length * factor, topology.global_batch / factor
        if length % topology.alignment == 0 and batch >= 1 and batch % topology.data == 0:
            yield int(length), int(batch)


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochPlan:
    """What a dataset comes to at a fill: batch counts are packs, not conversations."""

    packs: int
    """Packs an epoch."""
    train_iters: int
    """Steps for all epochs."""
    conversations_per_step: float
    tokens_per_step: int
    """Useful tokens a step."""


def plan_epochs(
    topology: Topology, *, samples: int, mean_tokens: float, epochs: float = 1.0, fill: float = 0.99
) -> EpochPlan:
    """Estimate packs and steps from the number of samples and their mean length in tokens."""
    per_pack = topology.seq_length * fill / mean_tokens
    packs = math.ceil(samples / per_pack)
    return EpochPlan(
        packs=packs,
        train_iters=math.ceil(packs * epochs / topology.global_batch),
        conversations_per_step=per_pack * topology.global_batch,
        tokens_per_step=int(topology.seq_length * fill * topology.global_batch),
    )
