# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Seconds by stage."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up wall seconds by stage until they are taken."""

    def __init__(self) -> None:
        """Start at zero."""
        self._seconds: dict[str, float] = {}

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        """Add what passes inside to a stage."""
        started = time.perf_counter()
        yield
        self._seconds[stage] = self._seconds.get(stage, 0.0) + time.perf_counter() - started

    def take(self) -> dict[str, float]:
        """Return the seconds by stage and start at zero again."""
        seconds, self._seconds = self._seconds, {}
        return seconds
