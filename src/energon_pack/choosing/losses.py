# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The account of a worker's lost samples: by cause, an example of each, how many in a row."""

import logging
from dataclasses import dataclass, field
from typing import Any

from energon_pack.candidate import Refused
from energon_pack.refusal import CAUSES

_LOGGER = logging.getLogger(__name__)
_LOGGED_IN_FULL = 5
"""Losses of a cause that a worker logs in full; the rest are only counted."""


@dataclass(kw_only=True, slots=True)
class Losses:
    """Totals since the stream began, restored runs included; plain values only."""

    total: dict[str, int] = field(default_factory=dict)
    """Lost samples by cause."""
    carried: dict[str, int] = field(default_factory=dict)
    """How many of them packs have told the trainer about."""
    examples: dict[str, Refused] = field(default_factory=dict)
    """The latest loss of each cause."""
    in_a_row: dict[str, int] = field(default_factory=dict)
    """Losses of a stage, ``read`` or ``decode``, since it last went well."""

    def add(self, refused: Refused, stage: str) -> None:
        """Count a loss; log the first few of its cause."""
        self.total[refused.cause] = self.total.get(refused.cause, 0) + 1
        self.examples[refused.cause] = refused
        self.in_a_row[stage] = self.in_a_row.get(stage, 0) + 1
        if self.total[refused.cause] <= _LOGGED_IN_FULL:
            _LOGGER.warning(
                "lost sample %s (%s): %s", refused.__key__, refused.cause, refused.message
            )

    def pending(self) -> dict[str, int]:
        """Return the losses that no pack has carried yet."""
        news = {cause: n - self.carried.get(cause, 0) for cause, n in self.total.items()}
        return {cause: n for cause, n in news.items() if n}

    def take_pending(self) -> dict[str, int]:
        """Return the pending losses for the pack that carries them."""
        pending = self.pending()
        self.carried = dict(self.total)
        return pending

    def table(self) -> str:
        """Return a line a cause: count, meaning, and the latest example."""
        lines = []
        for cause, count in sorted(self.total.items(), key=lambda entry: -entry[1]):
            example = self.examples.get(cause)
            latest = f"; latest {example.__key__}: {example.message}" if example else ""
            lines.append(f"  {count:>8}  {cause} ({CAUSES[cause]}){latest}")
        return "\n".join(lines)

    def save_state(self) -> dict[str, Any]:
        """Return plain values."""
        return {"total": dict(self.total), "carried": dict(self.carried)}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> "Losses":
        """Continue a saved account."""
        return cls(total=dict(state["total"]), carried=dict(state["carried"]))
