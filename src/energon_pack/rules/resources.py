# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Rules about memory, buffers and resuming."""

from collections.abc import Iterator
from typing import Final

from energon_pack.alignment import ROW_BYTES
from energon_pack.config import PackingConfig
from energon_pack.facts import RunFacts
from energon_pack.rules.base import Fault, Rule, Unknown, packing_of, rule
from energon_pack.sizes import format_size, parse_size

_OURS: Final = "energon-pack 0.1, Megatron-Energon 7.4.1"
# Own pages of a worker with torch and transformers loaded; measured 190 MB, small buffers included.
_IDLE_WORKER_BYTES: Final = 256 << 20


@rule("buffer-of-one", "warning", versions=_OURS)
def buffer_of_one(facts: RunFacts) -> Iterator[Fault]:
    """Packing_buffer_size is above 1."""
    packing = packing_of(facts)
    if packing.packing_buffer_size == 1 and packing.packing_policy != "none":
        yield Fault(
            setting="dataset.packing_buffer_size",
            value=1,
            consequence="There is nothing to choose from, so every pack holds one sample.",
            fix="Set 64 or more; candidates hold compressed bytes, so they cost little.",
        )


@rule("inexact-resume", "warning", versions=_OURS)
def inexact_resume(facts: RunFacts) -> Iterator[Fault]:
    """A resumed run continues exactly."""
    packing = packing_of(facts)
    if packing.resume_mismatch == "warn":
        yield Fault(
            setting="dataset.resume_mismatch",
            value="warn",
            consequence="A checkpoint of other settings is continued with a warning: samples may "
            "be repeated or left out.",
            fix="Set dataset.resume_mismatch=error once the run has continued.",
        )


@rule("shared-memory", "warning", versions=_OURS)
def shared_memory(facts: RunFacts) -> Iterator[Fault | Unknown]:
    """Shared memory holds the rows that wait."""
    packing = packing_of(facts)
    need = _waiting_packs(facts, packing) * packing.seq_length * ROW_BYTES
    size = facts.machine.shared_bytes
    if size is None:
        yield Unknown("the size of /dev/shm")
    elif need > size:
        yield Fault(
            setting="dataset.num_workers x prefetch_factor",
            value=f"{_workers(packing)} x {packing.prefetch_factor}",
            consequence=f"Token ids and positions take up to {format_size(need)} of /dev/shm's "
            f"{format_size(size)}; a worker that finds it full dies of SIGBUS.",
            fix="Start the container with a larger --shm-size, or lower num_workers or "
            "prefetch_factor.",
        )


@rule("worker-memory", "warning", versions=_OURS)
def worker_memory(facts: RunFacts) -> Iterator[Fault | Unknown]:
    """Buffers and workers fit the machine."""
    packing = packing_of(facts)
    waiting = _waiting_bytes(facts, packing)
    limit, sample = facts.machine.memory_bytes, facts.machine.sample_bytes
    if waiting is None or limit is None or sample is None:
        yield Unknown("the mean size of a sample, or the memory limit")
        return
    workers = _workers(packing) * facts.parallel.ranks_per_node
    need = waiting + workers * (_IDLE_WORKER_BYTES + _held_bytes(packing, sample))
    if need > limit:
        yield Fault(
            setting="dataset.shuffle_buffer_size, packing_buffer_size, num_workers",
            value=f"{packing.shuffle_buffer_size}, {packing.packing_buffer_size}, "
            f"{packing.num_workers}",
            consequence=f"{workers} workers on this node hold about {format_size(need)} at "
            f"{format_size(sample)} a sample; the {facts.machine.memory_source} has "
            f"{format_size(limit)}, and the kernel kills above it.",
            fix="Lower the buffers or the workers; shards of smaller samples shuffle as well with "
            "a smaller buffer.",
        )


def _held_bytes(packing: PackingConfig, sample_bytes: int) -> int:
    """Compressed bytes in a worker's two buffers."""
    candidates = packing.packing_buffer_size * sample_bytes
    if packing.packing_buffer_bytes:
        candidates = min(candidates, parse_size(packing.packing_buffer_bytes))
    if packing.spill_dir:
        candidates = 0
    return packing.shuffle_buffer_size * sample_bytes + candidates


def _workers(packing: PackingConfig) -> int:
    """Training and validation workers of a rank, which live side by side."""
    validation = packing.num_val_workers
    return packing.num_workers + (packing.num_workers if validation is None else validation)


def _waiting_bytes(facts: RunFacts, packing: PackingConfig) -> int | None:
    """Patches of the packs on their way, over the node."""
    if facts.machine.pack_bytes is None:
        return None
    return _waiting_packs(facts, packing) * facts.machine.pack_bytes


def _waiting_packs(facts: RunFacts, packing: PackingConfig) -> int:
    """Packs in a worker's queue, the one it writes and the one being read, over the node."""
    return _workers(packing) * (packing.prefetch_factor + 2) * facts.parallel.ranks_per_node


RULES: Final[tuple[Rule, ...]] = (buffer_of_one, inexact_resume, shared_memory, worker_memory)
