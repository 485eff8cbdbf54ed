# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Hierarchical groups on this machine, with real processes and Megatron Core's own set-up.

1. One gloo process a rank is started from a server that has imported Megatron Core once.
2. Each calls ``parallel_state.initialize_model_parallel`` and reads its hierarchical groups back.
3. Each sums the ranks within every group, so that a group that only looks right is found out.
4. The parent compares with the groups that the sizes should give.

Four ranks take about 15 s on two cores, nearly all of it imports.
"""

import math
import multiprocessing
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from energon_pack.errors import UserError
from energon_pack.planning.hcp import level_groups

_TIMEOUT_S: Final = 120.0
_MAX_RANKS: Final = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class RankGroups:
    """What one rank found."""

    rank: int
    context: list[int]
    """Ranks of its flat context-parallel group."""
    levels: list[list[int]]
    """Ranks of its group in each hierarchical level; empty when there is no hierarchy."""
    sums: list[int]
    """Sum of the ranks that an all-reduce in each level gave."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HierarchyCheck:
    """Every rank's groups against those that the sizes should give."""

    sizes: tuple[int, ...]
    ranks: list[RankGroups]
    problems: list[str]

    @property
    def passed(self) -> bool:
        """Whether every rank has the groups that it should have."""
        return not self.problems


def verify_hierarchy(sizes: tuple[int, ...], *, flat: bool = False) -> HierarchyCheck:
    """Start a process a rank and compare its groups; ``flat`` leaves the sizes out.

    Raises ``UserError`` when Megatron Core is missing or there would be too many processes.
    """
    total = math.prod(sizes)
    if total > _MAX_RANKS:
        raise UserError(f"{total} processes are too many here; verify up to {_MAX_RANKS} ranks")
    if not (find_spec("megatron") and find_spec("megatron.core")):
        raise UserError("verify-hcp needs Megatron Core: pip install 'energon-pack[bridge]'")
    ranks = _run(total, None if flat else list(sizes))
    return HierarchyCheck(sizes=sizes, ranks=ranks, problems=_problems(sizes, ranks))


def _problems(sizes: tuple[int, ...], ranks: list[RankGroups]) -> list[str]:
    problems = []
    for found in ranks:
        wanted = [
            next(group for group in groups if found.rank in group) for groups in level_groups(sizes)
        ]
        if not found.levels:
            problems.append(f"rank {found.rank} has no hierarchy, only the flat {found.context}")
        elif found.levels != wanted:
            problems.append(f"rank {found.rank} has groups {found.levels}, wanted {wanted}")
        elif found.sums != [sum(group) for group in wanted]:
            problems.append(f"rank {found.rank} summed {found.sums} in groups {wanted}")
    return problems


def _run(total: int, sizes: list[int] | None) -> list[RankGroups]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "megatron.core.parallel_state"])
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        workers = []
        for rank in range(total):
            receiver, sender = context.Pipe(duplex=False)
            worker = context.Process(target=_rank, args=(rank, total, sizes, store, sender))
            worker.start()
            sender.close()
            workers.append((worker, receiver))
        try:
            return [_receive(rank, receiver) for rank, (_, receiver) in enumerate(workers)]
        finally:
            for worker, receiver in workers:
                worker.join(timeout=5)
                worker.kill()
                receiver.close()


def _receive(rank: int, receiver: "Connection[Any, Any]") -> RankGroups:
    if not receiver.poll(_TIMEOUT_S):
        raise UserError(f"rank {rank} did not answer in {_TIMEOUT_S:.0f} s")
    try:
        answer = receiver.recv()
    except EOFError:
        raise UserError(f"rank {rank} ended before it answered") from None
    if isinstance(answer, str):
        raise UserError(f"rank {rank}: {answer}")
    assert isinstance(answer, RankGroups)
    return answer


def _rank(
    rank: int, total: int, sizes: list[int] | None, store: str, sender: "Connection[Any, Any]"
) -> None:
    """Runs in the process of one rank."""
    try:
        sender.send(_groups(rank, total, sizes, store))
    except Exception as error:  # noqa: BLE001 - the parent says it
        sender.send(f"{type(error).__name__}: {error}")


def _groups(rank: int, total: int, sizes: list[int] | None, store: str) -> RankGroups:
    import torch
    from megatron.core import parallel_state
    from torch import distributed

    distributed.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=total,
        timeout=timedelta(seconds=_TIMEOUT_S),
    )
    parallel_state.initialize_model_parallel(
        context_parallel_size=total, hierarchical_context_parallel_sizes=sizes
    )
    groups = parallel_state.get_hierarchical_context_parallel_groups(check_initialized=False) or []
    sums = []
    for group in groups:
        value = torch.tensor([rank])
        distributed.all_reduce(value, group=group)
        sums.append(int(value))
    found = RankGroups(
        rank=rank,
        context=distributed.get_process_group_ranks(parallel_state.get_context_parallel_group()),
        levels=[distributed.get_process_group_ranks(group) for group in groups],
        sums=sums,
    )
    parallel_state.destroy_model_parallel()
    distributed.destroy_process_group()
    return found
