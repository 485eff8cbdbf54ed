# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Which waiting samples share the next pack: pure functions on integers, by name in ``POLICIES``.

A policy gets the waiting items, oldest first, and returns the indices of one pack. ``window``:

1. The oldest item is always in, so none waits longer than there are places in the buffer.
2. Of the others it takes the subset that leaves the least room (``subset.py``).
3. Among subsets within ``fill_tolerance`` of the fullest it takes the one whose step cost is
   nearest to the running mean, so that the ranks of a data-parallel group finish together.

Waiting 5, 6, 3, 4 and capacity 12: 5 is in; of 6, 3, 4 the sum 7 = 3 + 4 fills the rest.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from energon_pack.choosing.subset import fillings, frugal_fillings, shares


class Item(NamedTuple):
    """What a policy knows of a candidate."""

    tokens: int
    """Physical length, alignment padding included."""
    visual_tokens: int = 0
    images: int = 0
    cost: float = 0.0
    """Estimated cost in a training step."""
    has_media: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a pack may hold."""

    tokens: int
    samples: int | None = None
    visual_tokens: int | None = None
    images: int | None = None
    tolerance: int = 0
    """Tokens of fill given up for an even step cost."""
    with_media: bool = False
    """Put an item with media into every pack where one fits."""


@dataclass(slots=True)
class Room:
    """What is left of the limits while a pack is put together."""

    tokens: int
    samples: int
    visual_tokens: int
    images: int

    @classmethod
    def of(cls, limits: Limits) -> Self:
        """Start with an empty pack."""
        further = (limits.samples, limits.visual_tokens, limits.images)
        return cls(limits.tokens, *(sys.maxsize if most is None else most for most in further))

    def holds(self, item: Item) -> bool:
        """Say whether the item still fits."""
        return (
            item.tokens <= self.tokens
            and self.samples >= 1
            and item.visual_tokens <= self.visual_tokens
            and item.images <= self.images
        )

    def take(self, item: Item) -> None:
        """Account for an item."""
        self.tokens -= item.tokens
        self.samples -= 1
        self.visual_tokens -= item.visual_tokens
        self.images -= item.images


Choose = Callable[[Sequence[Item], Limits, float | None], list[int]]


def window(items: Sequence[Item], limits: Limits, target_cost: float | None) -> list[int]:
    """Take the oldest item and the others that fill the rest of the pack best."""
    room = Room.of(limits)
    pack = _anchors(items, limits, room)
    others = [i for i, item in enumerate(items) if i not in pack and room.holds(item)]
    options = _fillings([items[i] for i in others], room, limits.tolerance)
    packs = [pack + [others[i] for i in filling] for filling in options]
    chosen = packs[0]
    if target_cost is not None:
        chosen = min(packs, key=lambda p: abs(sum(items[i].cost for i in p) - target_cost))
    return sorted(_topped_up(chosen, items, limits))


def first_fit_decreasing(
    items: Sequence[Item], limits: Limits, target_cost: float | None
) -> list[int]:
    """Return the first bin of first-fit-decreasing; asked for the rest, the next one."""
    del target_cost
    order = sorted(range(len(items)), key=lambda i: (-items[i].tokens, i))
    return sorted(_first_fit(order, items, Room.of(limits)))


def sequential(items: Sequence[Item], limits: Limits, target_cost: float | None) -> list[int]:
    """Take items as they came until one does not fit."""
    del target_cost
    room = Room.of(limits)
    pack = []
    for index, item in enumerate(items):
        if not room.holds(item):
            break
        room.take(item)
        pack.append(index)
    return pack


def one_sample(items: Sequence[Item], limits: Limits, target_cost: float | None) -> list[int]:
    """Take the oldest item alone."""
    del items, limits, target_cost
    return [0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """A way to choose packs."""

    choose: Choose
    empties_buffer: bool = False
    """Use the buffer up before it is filled again."""


POLICIES: dict[str, Policy] = {
    "window": Policy(choose=window),
    "first_fit_decreasing": Policy(choose=first_fit_decreasing, empties_buffer=True),
    "sequential": Policy(choose=sequential),
    "none": Policy(choose=one_sample),
}


def _anchors(items: Sequence[Item], limits: Limits, room: Room) -> list[int]:
    """Return what must be in the pack: the oldest item and, if asked for, one with media."""
    room.take(items[0])
    if not limits.with_media or items[0].has_media:
        return [0]
    fitting = (i for i, item in enumerate(items) if item.has_media and room.holds(item))
    anchor = next(fitting, None)
    if anchor is None:
        return [0]
    room.take(items[anchor])
    return [0, anchor]


def _fillings(items: Sequence[Item], room: Room, tolerance: int) -> Iterable[list[int]]:
    """Return subsets that fill the room within the tolerance of the best, the fullest first."""
    lengths = [item.tokens for item in items]
    uses, limits = _scarce(items, room)
    if not limits:
        return fillings(lengths, room.tokens, tolerance)
    spent, limit = shares(uses, limits)
    return frugal_fillings(lengths, spent, limit, room.tokens, tolerance)


def _scarce(items: Sequence[Item], room: Room) -> tuple[list[list[int]], list[int]]:
    """Return every item's use of the limits that all items together would break, and these."""
    columns = [
        ([1] * len(items), room.samples),
        ([item.visual_tokens for item in items], room.visual_tokens),
        ([item.images for item in items], room.images),
    ]
    binding = [(uses, limit) for uses, limit in columns if sum(uses) > limit]
    uses = [list(use) for use in zip(*(uses for uses, _ in binding), strict=True)]
    return uses, [limit for _, limit in binding]


def _topped_up(pack: list[int], items: Sequence[Item], limits: Limits) -> list[int]:
    """Add what still fits, since several limits at once are searched with some slack."""
    room = Room.of(limits)
    for index in pack:
        room.take(items[index])
    rest = [i for i in range(len(items)) if i not in pack]
    return pack + _first_fit(rest, items, room)


def _first_fit(order: Sequence[int], items: Sequence[Item], room: Room) -> list[int]:
    pack = []
    for index in order:
        if room.holds(items[index]):
            room.take(items[index])
            pack.append(index)
    return pack
