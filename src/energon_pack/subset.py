# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Subset sum over a few hundred token lengths: which totals can be reached, and with which items.

1. Go from the youngest item to the oldest. Bit ``s`` of ``reach[i]`` says whether some of the items
   ``i, i + 1, ...`` sum to ``s`` tokens: ``reach[i] = reach[i + 1] | reach[i + 1] << length[i]``.
2. The highest bit of ``reach[0]`` is the fullest pack.
3. Walk from the oldest item on and take each one whose rest can still be reached by younger ones,
   so that of all subsets with that total the older items win.

Lengths 5, 3, 4 and room 8: totals 0, 3, 4, 5, 7, 8 can be reached; 8 is 5 + 3.
Cost: one shift and one "or" of ``room`` bits an item; 256 items and 32,768 tokens take 0.4 ms.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_NEVER = 16_383
"""Use of a total that cannot be reached; twice that still fits int16."""


class Subsets(Protocol):
    """The totals that subsets of some items reach."""

    @property
    def best(self) -> int:
        """Largest total in tokens."""

    def reaches(self, total: int) -> bool:
        """Say whether a subset has exactly this total."""

    def items(self, total: int) -> list[int]:
        """Return the indices of one such subset, in order; older items win."""


class ExactSubsets:
    """All totals up to ``room`` tokens."""

    def __init__(self, lengths: Sequence[int], room: int) -> None:
        """Build one bit set an item, from the youngest to the oldest."""
        within = (1 << (room + 1)) - 1
        reach = [1]
        for length in reversed(lengths):
            reach.append(reach[-1] | ((reach[-1] << length) & within))
        self._reach = reach[::-1]
        self._lengths = lengths

    @property
    def best(self) -> int:
        """Largest total in tokens."""
        return self._reach[0].bit_length() - 1

    def reaches(self, total: int) -> bool:
        """Say whether a subset has exactly this total."""
        return bool(self._reach[0] >> total & 1)

    def items(self, total: int) -> list[int]:
        """Return the indices of one such subset, in order; older items win."""
        chosen = []
        for index, length in enumerate(self._lengths):
            if not total:
                break
            if length <= total and self._reach[index + 1] >> (total - length) & 1:
                chosen.append(index)
                total -= length
        return chosen


class FrugalSubsets:
    """The totals up to ``room`` tokens that keep one further limit.

    Where ``ExactSubsets`` keeps a bit, this keeps the least use of the limit with which the total
    can be reached. Exact for one limit.
    """

    def __init__(
        self, lengths: Sequence[int], uses: Sequence[int], *, room: int, limit: int
    ) -> None:
        """Build one row of least uses an item; ``uses`` and ``limit`` come from ``shares``."""
        row = np.full(room + 1, _NEVER, dtype=np.int16)
        row[0] = 0
        rows = [row]
        for length, use in zip(reversed(lengths), reversed(uses), strict=True):
            row = row.copy()
            np.minimum(
                row[length:], rows[-1][: room + 1 - length] + np.int16(use), out=row[length:]
            )
            rows.append(row)
        self._rows: list[NDArray[np.int16]] = rows[::-1]
        self._lengths, self._uses, self._limit = lengths, uses, limit

    @property
    def best(self) -> int:
        """Largest total in tokens."""
        return int(np.flatnonzero(self._rows[0] <= self._limit)[-1])

    def reaches(self, total: int) -> bool:
        """Say whether a subset has exactly this total within the limit."""
        return bool(self._rows[0][total] <= self._limit)

    def items(self, total: int) -> list[int]:
        """Return the indices of one such subset, in order; older items win."""
        chosen = []
        left = self._limit
        for index, (length, use) in enumerate(zip(self._lengths, self._uses, strict=True)):
            if length <= total and self._rows[index + 1][total - length] + use <= left:
                chosen.append(index)
                total -= length
                left -= use
        return chosen


def shares(uses: Sequence[Sequence[int]], limits: Sequence[int]) -> tuple[list[int], int]:
    """Turn several limits into one that is at least as strict.

    An item's use is the largest share of a limit that it takes, in units of which the returned
    limit holds; subsets that keep the returned limit keep all of them.
    """
    common = math.lcm(*(limit for limit in limits if 0 < limit <= _NEVER))
    units = (_NEVER - 1) // common * common if common < _NEVER else _NEVER - 1
    return [max(map(_share, use, limits, [units] * len(limits))) for use in uses], units


def _share(use: int, limit: int, units: int) -> int:
    return -(-use * units // limit) if use else 0
