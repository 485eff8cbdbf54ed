# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""How full packs get, by policy and buffer, on named streams: prints a table for the docs.

The upper bound is what an all-knowing packer could reach on the samples that the window used: their
tokens over the fewest packs that can hold them.
"""

import argparse
import itertools
import statistics

from streams import STREAMS, Replay, fewest_packs, stream

from energon_pack.policies import POLICIES, Item, Limits

CASES = [
    ("mixed", 8192),
    ("mixed", 16384),
    ("video", 16384),
    ("image", 4096),
    ("long text", 32768),
    ("mostly text", 16384),
]
BUFFERS = (16, 32, 64, 256)
FILL_TOLERANCE = 0.001


def replay(
    name: str, seq_length: int, policy: str, buffer_size: int, packs: int
) -> list[list[Item]]:
    """Return the packs that a policy makes of a stream."""
    tolerance = int(FILL_TOLERANCE * seq_length) if policy == "window" else 0
    window = Replay(
        policy=POLICIES[policy],
        limits=Limits(tokens=seq_length, tolerance=tolerance),
        buffer_size=buffer_size,
    )
    return list(itertools.islice(window.packs(stream(name, 0, seq_length)), packs))


def fill(packs: list[list[Item]], seq_length: int) -> float:
    """Return tokens over capacity in percent."""
    return 100 * sum(item.tokens for pack in packs for item in pack) / (len(packs) * seq_length)


def bound(packs: list[list[Item]], seq_length: int) -> float:
    """Return the fill in percent that no packer could exceed on the same samples."""
    lengths = [item.tokens for pack in packs for item in pack]
    return 100 * sum(lengths) / (fewest_packs(lengths, seq_length) * seq_length)


def main() -> None:
    """Print one row a stream and buffer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packs", type=int, default=1000)
    packs = parser.parse_args().packs
    print("| lengths | mean | CV | seq_length | buffer | first-fit-decreasing | window | bound |")
    print("|---|---|---|---|---|---|---|---|")
    for name, seq_length in CASES:
        sample = [item.tokens for item in itertools.islice(stream(name, 0, seq_length), 20_000)]
        mean = statistics.mean(sample)
        spread = statistics.pstdev(sample) / mean
        for buffer_size in BUFFERS:
            theirs = replay(name, seq_length, "first_fit_decreasing", buffer_size, packs)
            ours = replay(name, seq_length, "window", buffer_size, packs)
            print(
                f"| {name} | {mean:.0f} | {spread:.2f} | {seq_length} | {buffer_size} "
                f"| {fill(theirs, seq_length):.2f} | {fill(ours, seq_length):.2f} "
                f"| {bound(ours, seq_length):.2f} |"
            )


if __name__ == "__main__":
    assert {name for name, _ in CASES} == STREAMS.keys()
    main()
