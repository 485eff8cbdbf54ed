# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Subset sum over a few hundred token lengths: the subsets that fill a room best.

1. Go from the youngest item to the oldest. Bit ``s`` of ``reach[i]`` says whether some of the items
   ``i, i + 1, ...`` sum to ``s`` tokens: ``reach[i] = reach[i + 1] | reach[i + 1] << length[i]``.
2. The highest bit of ``reach[0]`` is the fullest subset.
3. Walk from the oldest item on and take each one whose rest can still be reached by younger ones,
   so that of all subsets with that total the older items win.

Lengths 5, 3, 4 and room 8: totals 0, 3, 4, 5, 7, 8 can be reached; 8 is 5 + 3.
Cost: one shift and one "or" of ``room`` bits an item; 256 items and 32,768 tokens take 0.4 ms.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

_NEVER = 16_383
"""Use of a total that cannot be reached; twice that still fits int16."""
_STEPS = 4096
"""Token totals that the search under further limits tells apart."""
_EXAMINED = 16
"""Totals for which a subset is looked up, the largest first."""


def fillings(lengths: Sequence[int], room: int, tolerance: int) -> Iterator[list[int]]:
    """Yield subsets of at most ``room`` tokens, the fullest first, one for each of 16 totals.

    None is more than ``tolerance`` tokens emptier than the first, which is the fullest there is.
    """
    within = (1 << (room + 1)) - 1
    reach = [1]
    for length in reversed(lengths):
        reach.append(reach[-1] | ((reach[-1] << length) & within))
    reach.reverse()
    best = reach[0].bit_length() - 1
    totals = range(best, max(best - tolerance, 0) - 1, -1)
    for total in islice((total for total in totals if reach[0] >> total & 1), _EXAMINED):
        yield _walk(reach, lengths, total)


def _walk(reach: Sequence[int], lengths: Sequence[int], total: int) -> list[int]:
    chosen = []
    for index, length in enumerate(lengths):
        if not total:
            break
        if length <= total and reach[index + 1] >> (total - length) & 1:
            chosen.append(index)
            total -= length
    return chosen


def frugal_fillings(
    lengths: Sequence[int], uses: Sequence[int], limit: int, room: int, tolerance: int
) -> list[list[int]]:
    """Return subsets as ``fillings`` does whose uses sum to at most ``limit``.

    Where ``fillings`` keeps a bit for a total, this keeps the least use that reaches it. Totals are
    told apart in steps of ``room / 4096`` tokens, so the fullest may be missed by a few tokens.
    """
    step = -(-room // _STEPS)
    scaled = [(length + step // 2) // step for length in lengths]
    rows = _least_uses(scaled, uses, room // step + 2)
    totals = np.flatnonzero(rows[0] <= limit)[::-1][:_EXAMINED]
    found = [_frugal_walk(rows, scaled, uses, limit, int(total)) for total in totals]
    sums = {sum(lengths[i] for i in filling): filling for filling in reversed(found)}
    best = max((total for total in sums if total <= room), default=0)
    return [sums[t] for t in sorted(sums, reverse=True) if best - tolerance <= t <= best] or [[]]


def _least_uses(lengths: Sequence[int], uses: Sequence[int], most: int) -> list[NDArray[np.int16]]:
    row = np.full(most + 1, _NEVER, dtype=np.int16)
    row[0] = 0
    rows = [row]
    for length, use in zip(reversed(lengths), reversed(uses), strict=True):
        row = row.copy()
        if length <= most:
            np.minimum(row[length:], rows[-1][: most + 1 - length] + use, out=row[length:])
        rows.append(row)
    return rows[::-1]


def _frugal_walk(
    rows: Sequence[NDArray[np.int16]],
    lengths: Sequence[int],
    uses: Sequence[int],
    limit: int,
    total: int,
) -> list[int]:
    chosen = []
    for index, (length, use) in enumerate(zip(lengths, uses, strict=True)):
        if not total:
            break
        if length <= total and rows[index + 1][total - length] + use <= limit:
            chosen.append(index)
            total -= length
            limit -= use
    return chosen


def shares(uses: Sequence[Sequence[int]], limits: Sequence[int]) -> tuple[list[int], int]:
    """Turn several limits into one that is at least as strict, and exact for a single one.

    An item's use becomes the largest share of a limit that it takes, in units of which the returned
    limit holds.
    """
    common = math.lcm(*(limit for limit in limits if 0 < limit < _NEVER))
    most = (_NEVER - 1) // common * common if common < _NEVER else _NEVER - 1
    return [max(map(_share, use, limits, [most] * len(limits))) for use in uses], most


def _share(use: int, limit: int, most: int) -> int:
    return -(-use * most // limit) if use else 0
