# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What Megatron-Bridge iterates: training packs with their state, and each evaluation's packs."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

from energon_pack.bridge.replicas import KeyTrace
from energon_pack.choosing.ledger import Ledger
from energon_pack.encoder import Pack
from energon_pack.loader import PackLoader
from energon_pack.reading.prepared import DatasetError

Tap = Callable[[Pack], None]


class TrainStream:
    """The endless packs of one data-parallel rank, with the state that its checkpoints keep."""

    def __init__(self, loader: PackLoader) -> None:
        """Read from ``loader``; its workers start with the first pack."""
        self._loader = loader
        self._packs: Iterator[Pack] | None = None
        self._taps: list[Tap] = []
        self.trace = KeyTrace()

    def __iter__(self) -> "TrainStream":
        """Return itself: there is one position in the stream."""
        return self

    def __next__(self) -> Pack:
        """Return the next pack."""
        if self._packs is None:
            self._packs = iter(self._loader)
        pack = next(self._packs)
        self.trace.add(pack["__keys__"])
        for tap in self._taps:
            tap(pack)
        return pack

    def tap(self, tap: Tap) -> None:
        """Show ``tap`` every pack before the trainer has it: ``vlm_step`` drops what it reports."""
        self._taps.append(tap)

    @property
    def ledger(self) -> Ledger:
        """What the workers note of the sample in work, for a monitor to name it when one dies."""
        return self._loader.ledger

    def save_state(self) -> Any:
        """Return the position; Megatron-Bridge writes it into one file a data-parallel rank."""
        return self._loader.save_state()

    def restore_state(self, state: Any) -> None:
        """Continue at a saved position; Megatron-Bridge calls it before the first pack."""
        self._loader.restore_state(state)

    def close(self) -> None:
        """End the workers; there is no pack and no state after that."""
        self._packs = None
        del self._loader
        _end_workers()


class EvalStream:
    """The validation packs, from the first one again for each evaluation.

    Megatron-Bridge never restarts its validation iterator, but takes the same number of packs for
    each evaluation. So after that many the workers are stopped, and the next pack starts new ones.
    """

    def __init__(self, open_loader: Callable[[], PackLoader], *, packs_per_evaluation: int) -> None:
        """Take what opens the validation split, and how many packs one evaluation reads."""
        self._open_loader = open_loader
        self._packs_per_evaluation = packs_per_evaluation
        self._packs: Iterator[Pack] | None = None
        self._taps: list[Tap] = []
        self._given = 0

    def __iter__(self) -> "EvalStream":
        """Return itself: there is one position in the stream."""
        return self

    def __next__(self) -> Pack:
        """Return the next pack of this evaluation, or the first one of the next."""
        if self._packs is None:
            self._packs = _cycle(self._open_loader())
        pack = next(self._packs)
        for tap in self._taps:
            tap(pack)
        self._given += 1
        if self._given == self._packs_per_evaluation:
            self._packs, self._given = None, 0
            _end_workers()
        return pack

    def tap(self, tap: Tap) -> None:
        """Show ``tap`` every pack before the trainer has it."""
        self._taps.append(tap)


def _end_workers() -> None:
    """End the workers of a loader that was let go.

    It refers to itself, and the stock recipes' ``train.manual_gc`` has switched the collector off.
    """
    gc.collect()


def _cycle(loader: PackLoader) -> Iterator[Pack]:
    while True:
        empty = True
        for pack in loader:
            empty = False
            yield pack
        if empty:
            raise DatasetError(
                "a data-parallel rank found no usable sample in the validation split; give the "
                "split more samples, or set validation.eval_iters to 0"
            )
