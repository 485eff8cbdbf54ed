# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Proof of an exact resume on a user's own data.

1. Read packs here, keep a hash of each, and save the loader's state at some of them.
2. In a new process, build the loader anew for each saved state and hash what comes next.
3. Compare, pack by pack.
"""

import hashlib
import itertools
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from energon_pack.config import PackingConfig
from energon_pack.encoder import Pack
from energon_pack.loader import Split, build_loader

_OF_THE_STREAM = frozenset({"pack_info"})
"""Holds clock times, so it is compared by its samples only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumePoint:
    """One saved state and what came after it."""

    after: int
    """Packs read before the state was saved."""
    state_bytes: int
    compared: int
    """Packs compared after it."""
    first_difference: int | None
    """Number of the first pack that is not identical, counted from the start of the run."""
    first_pack_s: float
    """Seconds from the restore to the first pack, with the start of the workers."""


def verify_resume(
    config: PackingConfig, split: Split = "train", *, points: int, packs: int
) -> list[ResumePoint]:
    """Save at ``points`` places within ``packs`` packs, resume each in a new process, compare."""
    with tempfile.TemporaryDirectory() as folder:
        hashes, states = _reference(config, split, points, packs, Path(folder))
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as fresh_process:
            return [
                fresh_process.submit(_resume, config, split, after, path, hashes).result()
                for after, path in states.items()
            ]


def _reference(
    config: PackingConfig, split: Split, points: int, packs: int, folder: Path
) -> tuple[list[str], dict[int, Path]]:
    loader = build_loader(config.unmonitored(), split)
    places = {max(1, packs * number // (points + 1)) for number in range(1, points + 1)}
    hashes: list[str] = []
    states: dict[int, Path] = {}
    for pack in itertools.islice(loader, packs):
        hashes.append(pack_hash(pack))
        if len(hashes) in places:
            states[len(hashes)] = folder / f"{len(hashes)}.pt"
            torch.save(loader.save_state(), states[len(hashes)])
    return hashes, states


def _resume(
    config: PackingConfig, split: Split, after: int, path: Path, hashes: list[str]
) -> ResumePoint:
    loader = build_loader(config.unmonitored(), split)
    loader.restore_state(torch.load(path, weights_only=False))
    started = time.perf_counter()
    first_pack_s = 0.0
    found = []
    for pack in itertools.islice(loader, len(hashes) - after):
        first_pack_s = first_pack_s or time.perf_counter() - started
        found.append(pack_hash(pack))
    pairs = itertools.zip_longest(hashes[after:], found)
    differing = (number for number, (one, other) in enumerate(pairs, after + 1) if one != other)
    return ResumePoint(
        after=after,
        state_bytes=path.stat().st_size,
        compared=len(hashes) - after,
        first_difference=next(differing, None),
        first_pack_s=first_pack_s,
    )


def pack_hash(pack: Pack) -> str:
    """Hash every value of a pack, tensors with type, shape and bytes."""
    digest = hashlib.sha256()
    for part in _parts({key: pack[key] for key in sorted(pack.keys() - _OF_THE_STREAM)}):
        digest.update(part)
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        yield f"{value.dtype}{tuple(value.shape)}".encode()
        yield value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield name.encode()
            yield from _parts(inner)
    elif isinstance(value, list | tuple):  # the loader turns tuples into lists
        yield f"{len(value)} of".encode()
        for inner in value:
            yield from _parts(inner)
    elif hasattr(value, "__dict__"):
        yield from _parts(vars(value))
    else:
        yield repr(value).encode()
