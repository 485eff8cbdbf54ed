# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Named streams of sample lengths and a replay of a policy over them; seeded, no media."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from energon_pack.policies import Item, Limits, Policy

TOKEN, ATTENTION, PATCH = 1.0, 1e-4, 0.25
PATCHES_PER_TOKEN = 4


def _item(text: int, visual: int = 0, images: int = 0) -> Item:
    tokens = text + visual
    cost = TOKEN * tokens + ATTENTION * tokens**2 + PATCH * PATCHES_PER_TOKEN * visual
    return Item(tokens, visual, images, cost, bool(visual))


def _log_normal(rng: random.Random, median: float, sigma: float, low: int, high: int) -> int:
    return min(max(round(median * 2.718281828 ** rng.gauss(0, sigma)), low), high)


def _text(rng: random.Random) -> Item:
    return _item(_log_normal(rng, 300, 0.8, 16, 4000))


def _images(rng: random.Random, number: int) -> Item:
    visual = sum(rng.randint(256, 1280) for _ in range(number))
    return _item(_log_normal(rng, 80, 0.6, 16, 1000), visual, number)


def _clip(rng: random.Random) -> Item:
    return _item(_log_normal(rng, 80, 0.6, 16, 1000), rng.randint(1500, 12000))


def _mixed(rng: random.Random) -> Item:
    kind = rng.randrange(4)
    if kind == 0:
        return _text(rng)
    if kind == 1:
        return _images(rng, 1)
    return _images(rng, rng.randint(2, 6)) if kind == 2 else _clip(rng)


STREAMS: dict[str, Callable[[random.Random], Item]] = {
    "mixed": _mixed,
    "image": lambda rng: _images(rng, 1),
    "video": lambda rng: _item(80, _log_normal(rng, 3000, 0.6, 200, 12000)),
    "long text": lambda rng: _item(_log_normal(rng, 4000, 0.7, 100, 30000)),
    "mostly text": lambda rng: _text(rng) if rng.random() < 0.7 else _mixed(rng),
}
"""Mixed: a quarter each of text (log-normal, median 300), one image (256 to 1280 visual tokens),
two to six of them, and clips (1,500 to 12,000). Video and long text: log-normal, medians 3,000 and
4,000. Mostly text: 70 % text, the rest mixed."""


def stream(name: str, seed: int, longest: int) -> Iterator[Item]:
    """Yield the samples of a named stream that fit a pack, without end."""
    rng = random.Random(f"{name} {seed}")
    while True:
        item = STREAMS[name](rng)
        if item.tokens <= longest:
            yield item


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """A policy, its limits and its buffer."""

    policy: Policy
    limits: Limits
    buffer_size: int
    packs_in_mean: int = 256

    def packs(self, items: Iterator[Item]) -> Iterator[list[Item]]:
        """Yield packs as a worker's window would."""
        waiting: list[Item] = []
        mean, count = 0.0, 0
        while True:
            if not (waiting and self.policy.empties_buffer):
                waiting += [next(items) for _ in range(self.buffer_size - len(waiting))]
            chosen = set(self.policy.choose(waiting, self.limits, mean if count else None))
            pack = [waiting[index] for index in sorted(chosen)]
            waiting = [item for index, item in enumerate(waiting) if index not in chosen]
            count = min(count + 1, self.packs_in_mean)
            mean += (sum(item.cost for item in pack) - mean) / count
            yield pack


def fewest_packs(lengths: Sequence[int], capacity: int) -> int:
    """Return a lower bound on the packs that hold these lengths (Martello and Toth's L2)."""
    best = -(-sum(lengths) // capacity)
    for small in {length for length in lengths if 2 * length <= capacity}:
        alone = [length for length in lengths if length > capacity - small]
        paired = [length for length in lengths if capacity - small >= length > capacity / 2]
        rest = [length for length in lengths if capacity / 2 >= length >= small]
        over = max(0, -(-(sum(rest) - (len(paired) * capacity - sum(paired))) // capacity))
        best = max(best, len(alone) + len(paired) + over)
    return best
