# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""How much memory packs take at most between a rank's workers and its trainer.

Each worker has ``prefetch_factor`` packs ready, one that it writes, and one that the trainer reads.
A pack of visual tokens only is the largest: 8192 of Qwen3-VL have 32,768 patches, 201 MB as
float32. Patches lie in memory files, which count against the container's memory; ids, labels,
masks and positions, 44 bytes a token, go through /dev/shm.
"""

import logging
from dataclasses import dataclass

from energon_pack.alignment import ROW_BYTES
from energon_pack.config import PackingConfig
from energon_pack.decoding.patchify import DTYPES
from energon_pack.family import Family
from energon_pack.memory import read_ceiling, read_shared_memory
from energon_pack.sizes import format_size

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class InFlight:
    """The most that one rank's packs take."""

    patch_bytes: int
    """In memory files."""
    row_bytes: int
    """In /dev/shm."""


def most_in_flight(config: PackingConfig, family: Family) -> InFlight:
    """Return what the training workers of one rank can have on the way."""
    packs = config.num_workers * (config.prefetch_factor + 2)
    visual_tokens = min(config.seq_length, config.max_visual_tokens_per_pack or config.seq_length)
    patch_numel = 3 * family.temporal_patch_size * family.patch_size**2
    token_bytes = family.merge_size**2 * patch_numel * DTYPES[config.pixel_dtype].itemsize
    return InFlight(
        patch_bytes=packs * visual_tokens * token_bytes,
        row_bytes=packs * config.seq_length * ROW_BYTES,
    )


def warn_where_short(config: PackingConfig, family: Family) -> None:
    """Log a warning for memory that full packs could fill, before the first worker starts."""
    need, ceiling, shared = most_in_flight(config, family), read_ceiling(), read_shared_memory()
    advice = "lower num_workers, prefetch_factor or max_visual_tokens_per_pack"
    if need.patch_bytes > ceiling.left_bytes:
        logger.warning(
            "packs on their way to the trainer can take %s, %s are left; %s, or set pixel_dtype "
            "to bfloat16 or uint8",
            format_size(need.patch_bytes),
            format_size(ceiling.left_bytes),
            advice,
        )
    if shared is not None and need.row_bytes > shared.size_bytes - shared.used_bytes:
        logger.warning(
            "token ids and positions on their way to the trainer can take %s of /dev/shm, %s are "
            "left, and a worker that finds it full dies; %s, or raise the container's --shm-size",
            format_size(need.row_bytes),
            format_size(shared.size_bytes - shared.used_bytes),
            advice,
        )
