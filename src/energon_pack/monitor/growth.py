# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Tells memory that keeps growing from memory that is noisy, or still warming up.

1. Points (work done, bytes held) after the warm-up go into six tracks of 48: the last 48, every
   4th, every 16th and so on. So a leak of any speed that starts at any time fits into one.
2. The rate is the Theil-Sen slope: the median of the slopes of all pairs of points. One pack of
   400 MB among small ones moves it by nothing.
3. A track *rises* when Sen's lower confidence bound (z = 3, widened where neighbouring points
   stray together) is above zero; its last third lies above its first by ``MIN_RISE_BYTES``, by 5 %
   and by the noise; it lies above the past; and the second half of the way rose at three quarters
   of the first half's pace or more: a warm-up flattens, a leak does not.
4. Memory *keeps growing* from when one track has risen at four looks in a row until, at half a
   track's looks in a row, no track rises and that track's bound is not above zero.

Example: 48 points of 1 GB + 2 MB a pack + noise of 30 MB, a pack apart: the slope is 2 MB +- 0.3,
so 2,000 MB per 1,000 packs. Cost: 0.15 ms a point.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

MIN_RISE_BYTES: Final = 32 << 20
MIN_RISE_SHARE: Final = 0.05
_STRIDES: Final = (1, 4, 16, 64, 256, 1024)
_TRACK: Final = 48
_MIN_POINTS: Final = 32
_LOOKS: Final = 4
_STEADY: Final = 0.75
_Z: Final = 3.0

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Growth:
    """How memory follows the work done."""

    rate: float
    """Bytes per unit of work: per pack, or per second."""
    keeps: bool
    """Whether it is a steady growth rather than noise or a warm-up."""


class GrowthTrack:
    """The memory of one process over its work."""

    def __init__(self, warmup: float) -> None:
        """Ignore what comes before ``warmup`` units of work."""
        self._warmup = warmup
        self._tracks = [_Track() for _ in _STRIDES]
        self._seen = 0
        self._last_work = 0.0
        self._accused: _Track | None = None
        self._quiet_looks = 0

    def add(self, work: float, held_bytes: int) -> None:
        """Add a point; one without new work says nothing about growth and is left out."""
        if work < self._warmup or work <= self._last_work:
            return
        self._last_work = work
        due = [
            t for t, stride in zip(self._tracks, _STRIDES, strict=True) if not self._seen % stride
        ]
        self._seen += 1
        for track in due:
            track.add(work, held_bytes, past=self._tracks)
        self._judge()

    def _judge(self) -> None:
        # The longest track that shows it has the surest rate.
        rising = next((t for t in reversed(self._tracks) if t.looks >= _LOOKS), None)
        still = self._accused is not None and self._accused.low > 0
        self._quiet_looks = 0 if rising or still else self._quiet_looks + 1
        if rising or self._quiet_looks > _TRACK // 2:
            self._accused = rising

    @property
    def growth(self) -> Growth | None:
        """The present rate and the verdict; None while there are too few points."""
        fitted = [track.slope for track in self._tracks if track.slope is not None]
        if not fitted:
            return None
        if self._accused is None or self._accused.slope is None:
            return Growth(fitted[-1], keeps=False)
        return Growth(self._accused.slope, keeps=True)


class _Track:
    """A window of points, and at how many looks in a row it has risen."""

    def __init__(self) -> None:
        self.points: deque[tuple[float, int]] = deque(maxlen=_TRACK)
        self.slope: float | None = None
        self.low = 0.0
        self.looks = 0

    def add(self, work: float, held_bytes: int, past: list["_Track"]) -> None:
        self.points.append((work, held_bytes))
        if len(self.points) < _MIN_POINTS:
            return
        x, y = np.array(self.points, dtype=np.float64).T
        self.slope, self.low = theil_sen(x, y)
        before = [held for track in past for then, held in track.points if then < x[0]]
        rises = self.low > 0 and _is_above(before, y) and _rises_steadily(x, y)
        self.looks = self.looks + 1 if rises else 0


def _is_above(before: list[int], held: Floats) -> bool:
    """Say whether the last third lies above nearly all of the run before the window."""
    return not before or bool(np.median(held[-_TRACK // 3 :]) > np.quantile(before, 0.95))


def theil_sen(x: Floats, y: Floats) -> tuple[float, float]:
    """Return the median slope of all pairs of points and its lower confidence bound.

    ``x`` rises strictly and has three points at least.
    """
    num = len(x)
    first, second = np.triu_indices(num, 1)
    slopes = np.sort((y[second] - y[first]) / (x[second] - x[first]))
    slope = float(np.median(slopes))
    # Kendall's variance of rising minus falling pairs where there is no trend, for as many points
    # as are independent.
    spread = _Z * np.sqrt(num * (num - 1) * (2 * num + 5) / 18 * _dependence(y - slope * x))
    return slope, float(slopes[max(0, int((len(slopes) - spread) / 2))])


def _dependence(residuals: Floats) -> float:
    """Return how many neighbouring points tell what one independent point would."""
    centred = residuals - residuals.mean()
    power = float(centred @ centred)
    correlation = float(centred[1:] @ centred[:-1]) / power if power else 0.0
    correlation = min(max(correlation, 0.0), 0.9)
    return (1 + correlation) / (1 - correlation)


def _rises_steadily(work: Floats, held: Floats) -> bool:
    x0, x1, x2 = (float(np.median(part)) for part in np.array_split(work, 3))
    first, middle, last = np.array_split(held, 3)
    y0, y1, y2 = (float(np.median(part)) for part in (first, middle, last))
    if y2 - y0 < max(MIN_RISE_BYTES, MIN_RISE_SHARE * y0):
        return False
    if np.quantile(last, 0.1) < np.quantile(first, 0.9):
        return False
    return (y2 - y1) / (x2 - x1) >= _STEADY * (y1 - y0) / (x1 - x0)
