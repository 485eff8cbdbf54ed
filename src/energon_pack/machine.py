# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What the guard knows of this machine: installed versions, memory limits, sizes of the data."""

import json
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from energon_pack.config import PackingConfig
from energon_pack.facts import FamilyName, MachineFacts, Software
from energon_pack.memory import read_ceiling, read_shared_memory

# Numbers in one row of the patch tensor: channels * temporal patch * patch height * patch width.
_PATCH_NUMBERS: Final[dict[str, int]] = {"qwen2_5_vl": 3 * 2 * 14 * 14}
_OTHER_PATCH_NUMBERS: Final = 3 * 2 * 16 * 16
_PATCHES_PER_TOKEN: Final = 4
_NUMBER_BYTES: Final = {"float32": 4, "bfloat16": 2, "uint8": 1}


def read_software() -> Software:
    """Read the installed versions; what a machine without a GPU need not have is unknown."""
    import torch

    here = torch.cuda.is_available()
    return Software(
        bridge=_version("megatron-bridge"),
        core=_version("megatron-core"),
        transformer_engine=_version("transformer-engine") or ("" if here else None),
        linear_attention_kernels=find_spec("fla") is not None or (False if here else None),
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def read_machine(data: PackingConfig | None, family: FamilyName) -> MachineFacts:
    """Read the memory limits, and estimate what a sample and a pack of ``data`` take."""
    ceiling = read_ceiling()
    shared = read_shared_memory()
    return MachineFacts(
        memory_source=ceiling.source,
        memory_bytes=ceiling.limit_bytes,
        shared_bytes=shared.size_bytes if shared else None,
        sample_bytes=mean_sample_bytes(Path(data.path)) if data else None,
        pack_bytes=largest_pack_bytes(data, family) if data else None,
    )


def mean_sample_bytes(dataset: Path) -> int | None:
    """Return the mean size of a sample of a prepared dataset; None where it is no plain folder."""
    try:
        info = json.loads((dataset / ".nv-meta" / ".info.json").read_text(encoding="utf-8"))
        counts: dict[str, int] = info["shard_counts"]
        total = sum((dataset / shard).stat().st_size for shard in counts)
        return total // sum(counts.values())
    except (OSError, ValueError, KeyError, ZeroDivisionError):
        return None


def largest_pack_bytes(data: PackingConfig, family: FamilyName) -> int:
    """Return the bytes of a pack of visual tokens only, its pixels being nearly all of it."""
    tokens = min(data.seq_length, data.max_visual_tokens_per_pack or data.seq_length)
    numbers = _PATCH_NUMBERS.get(family, _OTHER_PATCH_NUMBERS)
    return tokens * _PATCHES_PER_TOKEN * numbers * _NUMBER_BYTES[data.pixel_dtype]
