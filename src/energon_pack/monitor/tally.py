# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What the packs of each worker add up to, kept by the pid that they carry."""

from collections.abc import Sequence
from typing import Any

from energon_pack.monitor.sampler import WorkDone
from energon_pack.stats import PackInfo, StreamInfo


class Tally:
    """The packs of one worker process."""

    def __init__(self, loader: str) -> None:
        """Count packs of the loader named ``loader``; the training loader has no name."""
        self._loader = loader
        self.packs = 0
        """Packs received in this life."""
        self._fill = 0.0
        self._skipped = 0
        self._stream = StreamInfo()
        self._last_key: str | None = None

    def add(self, info: PackInfo, keys: Sequence[str]) -> None:
        """Count a pack and remember what its stream looked like."""
        self.packs += 1
        self._fill += info.fill
        self._skipped += sum(info.stream.skipped.values())
        self._stream = info.stream
        self._last_key = keys[-1] if keys else self._last_key

    @property
    def trains(self) -> bool:
        """Whether it is a worker of the training loader."""
        return not self._loader

    @property
    def worker_id(self) -> int:
        """The worker's number in its loader."""
        return self._stream.worker_id

    @property
    def made(self) -> int:
        """Packs that this worker made in all lives of the run."""
        return max(self._stream.pack_index + 1, self.packs)

    def work(self) -> WorkDone:
        """Return the sum for the worker's snapshot."""
        stream = self._stream
        figures: dict[str, Any] = {
            "fill_ratio": self._fill / self.packs,
            "skipped_samples_total": self._skipped,
            "candidates": stream.candidates,
            "buffer_bytes": stream.buffer_bytes,
            "largest_bytes": stream.largest_bytes,
            "largest_key": stream.largest_key or None,
        }
        name = f"{self._loader} {stream.worker_id}".strip()
        return WorkDone(name, self.packs, self._last_key, figures)
