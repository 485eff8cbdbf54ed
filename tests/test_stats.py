# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from energon_pack.stats import PackInfo, PackStats, StreamInfo

INFOS = st.builds(
    PackInfo,
    samples=st.integers(1, 9),
    tokens=st.integers(1, 120),
    trained_tokens=st.integers(0, 9),
    width=st.integers(1, 120),
    seq_length=st.just(100),
    visual_tokens=st.integers(0, 9),
    stream=st.builds(StreamInfo, skipped=st.dictionaries(st.sampled_from("ab"), st.integers(1, 3))),
)


def total(infos):
    stats = PackStats()
    for info in infos:
        stats.add(info)
    return stats


@given(st.lists(INFOS), st.lists(INFOS))
def test_merged_totals_are_the_totals_of_both(first, second):
    merged = total(first)
    merged.merge(total(second))
    assert merged == total(first + second)


def test_fill_counts_real_tokens_over_capacity():
    stats = total(
        PackInfo(samples=2, tokens=tokens, trained_tokens=1, width=100, seq_length=100)
        for tokens in (100, 90, 101)
    )
    assert stats.fill == 291 / 300
    assert stats.fills == [1.0, 0.9, 1.01]
    assert stats.overfull == 1
    assert stats.samples_per_pack == 2
