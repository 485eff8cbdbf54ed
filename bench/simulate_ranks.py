# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""How evenly data-parallel ranks finish a step, by policy: prints a table for the docs.

A step lasts as long as its slowest rank. A pack's cost is tokens + squared segment lengths + visual
patches with the default weights; each rank has its own stream and packs one micro batch a step.
"""

import argparse
import itertools
import statistics

from streams import Replay, stream

from energon_pack.policies import POLICIES, Item, Limits

BUFFER = 64
WARM_UP = 20
ROWS = [
    ("first-fit-decreasing", "first_fit_decreasing", 0.0),
    ("window, fullest", "window", 0.0),
    ("window, balanced 0.1 %", "window", 0.001),
    ("window, balanced 0.2 %", "window", 0.002),
]


def step_packs(
    name: str, seq_length: int, policy: str, tolerance: float, *, ranks: int, steps: int
) -> list[tuple[list[Item], ...]]:
    """Return the packs of every rank, step by step."""
    window = Replay(
        policy=POLICIES[policy],
        limits=Limits(tokens=seq_length, tolerance=int(tolerance * seq_length)),
        buffer_size=BUFFER,
    )
    streams = [window.packs(stream(name, rank, seq_length)) for rank in range(ranks)]
    return list(itertools.islice(zip(*streams, strict=True), WARM_UP, WARM_UP + steps))


def main() -> None:
    """Print one row a stream, rank count and policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    steps = parser.parse_args().steps
    print(
        "| lengths | ranks | policy | fill | slowest rank above mean | tokens for a step's time |"
    )
    print("|---|---|---|---|---|---|")
    for name, seq_length, ranks in (
        ("mixed", 16384, 32),
        ("video", 16384, 32),
        ("mixed", 16384, 128),
    ):
        base = None
        for label, policy, tolerance in ROWS:
            taken = step_packs(name, seq_length, policy, tolerance, ranks=ranks, steps=steps)
            costs = [[sum(item.cost for item in pack) for pack in step] for step in taken]
            slowest = [max(step) / statistics.mean(step) - 1 for step in costs]
            tokens = sum(item.tokens for step in taken for pack in step for item in pack)
            rate = tokens / sum(max(step) for step in costs)
            base = base or rate
            print(
                f"| {name} | {ranks} | {label} | {100 * tokens / (steps * ranks * seq_length):.2f} "
                f"| {100 * statistics.mean(slowest):.1f} % | {100 * rate / base:.1f} % |"
            )


if __name__ == "__main__":
    main()
