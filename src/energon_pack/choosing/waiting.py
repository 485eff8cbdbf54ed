# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A worker's waiting candidates, oldest first, with what a policy knows of each.

Their media wait in memory, or on local disk in Energon's cache pool when a folder is given: then a
candidate costs its token ids only, and its media are read back when its pack is made.
"""

import logging
import pickle
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from megatron.energon import FileStoreCachePool

from energon_pack.candidate import Candidate, RestoreKey
from energon_pack.choosing.scratch import scratch_folder
from energon_pack.policies import Item

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Entry:
    candidate: Candidate
    item: Item
    media_bytes: int
    spilled: Any
    """Energon's lazy reference to the media, or None."""


class Waiting:
    """The candidates that no pack has taken yet."""

    def __init__(self, max_candidates: int, max_bytes: int | None, spill_dir: str | None) -> None:
        """Set the limits; ``spill_dir`` is a folder on local disk."""
        self._max_candidates = max_candidates
        self._max_bytes = max_bytes
        self._entries: list[_Entry] = []
        self._pool: FileStoreCachePool | None = None
        self._told = False
        if spill_dir is not None:
            folder = scratch_folder(self, "energon-pack-spill-", spill_dir)
            self._pool = FileStoreCachePool(parent_cache_dir=folder, num_workers=1)

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._entries)

    def clear(self) -> None:
        """Forget all of them."""
        self._entries = []

    @property
    def has_room(self) -> bool:
        """Whether another candidate may be read; one is always let in."""
        if not self._entries:
            return True
        within = self._max_bytes is None or self.media_bytes < self._max_bytes
        return within and len(self._entries) < self._max_candidates

    @property
    def media_bytes(self) -> int:
        """Compressed media of all of them, in memory or on disk."""
        return sum(entry.media_bytes for entry in self._entries)

    @property
    def bytes_in_memory(self) -> int:
        """Compressed media that take memory."""
        return sum(entry.media_bytes for entry in self._entries if entry.spilled is None)

    @property
    def largest(self) -> tuple[str, int]:
        """Key and media bytes of the candidate with the most."""
        entry = max(self._entries, key=lambda entry: entry.media_bytes, default=None)
        return (entry.candidate.__key__, entry.media_bytes) if entry else ("", 0)

    @property
    def items(self) -> list[Item]:
        """What a policy chooses from, oldest first."""
        return [entry.item for entry in self._entries]

    @property
    def keys(self) -> list[tuple[str, RestoreKey]]:
        """Key and restore key of each, oldest first."""
        return [(e.candidate.__key__, e.candidate.__restore_key__) for e in self._entries]

    def add(self, candidate: Candidate, item: Item) -> None:
        """Let a candidate wait."""
        media_bytes = candidate.media_bytes
        spilled = self._spilled(candidate) if self._pool and candidate.media else None
        if spilled is not None:
            candidate.media = tuple(replace(medium, data=b"") for medium in candidate.media)
        self._entries.append(_Entry(candidate, item, media_bytes, spilled))

    def _spilled(self, candidate: Candidate) -> Any:
        """Write the media of a candidate to disk; None where that fails, as on a full one."""
        assert self._pool
        try:
            return self._pool.to_cache(candidate.media, candidate.__key__)
        except OSError as error:
            whole = {entry.spilled.cache_path for entry in self._entries if entry.spilled}
            for partly_written in set(self._pool.cache_dir.glob("*")) - whole:
                partly_written.unlink(missing_ok=True)
            if not self._told:
                _LOGGER.warning(
                    "spill_dir: %s; media that cannot be written wait in memory", error.strerror
                )
            self._told = True
            return None

    def take(self, indices: Iterable[int]) -> list[Candidate]:
        """Take candidates out, oldest first, with their media."""
        chosen = set(indices)
        taken = [entry for index, entry in enumerate(self._entries) if index in chosen]
        self._entries = [e for index, e in enumerate(self._entries) if index not in chosen]
        return _with_media(taken)


def _with_media(entries: Sequence[_Entry]) -> list[Candidate]:
    for entry in entries:
        if entry.spilled is not None:
            # Without their bytes the media break when they are decoded, and are counted there.
            with suppress(OSError, EOFError, pickle.UnpicklingError):
                entry.candidate.media = entry.spilled.get()
    return [entry.candidate for entry in entries]
