# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Do the TP and CP ranks of one replica train on the same samples? They read them independently.

1. Each rank folds the keys of every pack it takes into one running hash, and keeps the recent keys.
2. Now and then the ranks of a tensor and of a context group compare their hashes.
3. Where they differ, the group's ranks exchange the recent keys, to tell the first that differs.
4. All ranks of the run agree on whether there was a difference, so that all stop.
"""

import hashlib
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.distributed as dist

_KEPT_PACKS: Final = 64


class ReplicaMismatchError(RuntimeError):
    """Ranks that have to train on the same packs had different ones."""


class KeyTrace:
    """The packs that this rank has taken: a running hash over all, the keys of the recent ones."""

    def __init__(self) -> None:
        """Start before the first pack."""
        self.packs = 0
        self.recent: deque[tuple[int, list[str]]] = deque(maxlen=_KEPT_PACKS)
        self._hash = hashlib.blake2b(digest_size=8)

    def add(self, keys: Sequence[str]) -> None:
        """Take in the sample keys of the next pack."""
        self._hash.update("\0".join([*keys, "\n"]).encode())
        self.recent.append((self.packs, list(keys)))
        self.packs += 1

    @property
    def value(self) -> int:
        """The hash as a number of 62 bits, so that its negative is one too."""
        return int.from_bytes(self._hash.digest()) >> 2


def check_replicas(trace: KeyTrace, groups: Sequence[dist.ProcessGroup]) -> None:
    """Compare with the ranks of each group; every rank of the run must call this at the same step.

    Raises ``ReplicaMismatchError`` on all ranks when two of any group differ.
    """
    shared = [group for group in groups if group.size() > 1]
    if not shared:
        return
    differences = [_difference(trace, group) for group in shared if not _agrees(trace, group)]
    if any_rank(bool(differences)):
        raise ReplicaMismatchError(
            differences[0] if differences else "ranks of another replica had different packs"
        )


def _agrees(trace: KeyTrace, group: dist.ProcessGroup) -> bool:
    ends = torch.tensor([trace.value, -trace.value], device=device_of(group))
    dist.all_reduce(ends, dist.ReduceOp.MAX, group=group)
    return int(ends.sum()) == 0


def _difference(trace: KeyTrace, group: dist.ProcessGroup) -> str:
    recent: list[Any] = [None] * group.size()
    dist.all_gather_object(recent, list(trace.recent), group=group)
    ranks = dist.get_process_group_ranks(group)
    for index, keys in recent[0]:
        for rank, others in zip(ranks[1:], recent[1:], strict=True):
            other = dict(others).get(index)
            if other != keys:
                return (
                    f"ranks {ranks[0]} and {rank} must train on the same packs, but their pack "
                    f"{index} differs: rank {ranks[0]} has {keys}, rank {rank} has {other}"
                )
    return f"ranks {ranks} must train on the same packs, but differed over {_KEPT_PACKS} packs ago"


def any_rank(flag: bool) -> bool:  # noqa: FBT001 - the flag is the message
    """Tell whether any rank of the run has ``flag`` set; every rank must call this."""
    world = dist.group.WORLD
    tensor = torch.tensor(int(flag), device=device_of(world))
    dist.all_reduce(tensor, dist.ReduceOp.MAX, group=world)
    return bool(tensor.item())


def device_of(group: dist.ProcessGroup | None) -> str:
    """Return the device on which a group's collectives run."""
    return "cuda" if "nccl" in dist.get_backend(group) else "cpu"
