# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
import itertools
import random
import statistics
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energon_pack.policies import POLICIES, Item, Limits, first_fit_decreasing, window

CAPACITY = 40
LENGTHS = st.lists(st.integers(1, CAPACITY), min_size=1, max_size=12)
ITEMS = st.lists(
    st.builds(
        Item,
        tokens=st.integers(1, CAPACITY),
        visual_tokens=st.integers(0, 20),
        images=st.integers(0, 3),
        cost=st.floats(0, 100),
        has_media=st.booleans(),
    ),
    min_size=1,
    max_size=12,
)
LIMITS = st.builds(
    Limits,
    tokens=st.just(CAPACITY),
    samples=st.none() | st.integers(1, 6),
    visual_tokens=st.none() | st.integers(20, 60),
    images=st.none() | st.integers(3, 8),
    tolerance=st.integers(0, 4),
    with_media=st.booleans(),
)
TARGET = st.none() | st.floats(0, 400)
CHOOSE = st.sampled_from([policy.choose for policy in POLICIES.values()])


def items_of(lengths):
    return [Item(length) for length in lengths]


def fullest_with_oldest(lengths):
    rest = lengths[1:]
    subsets = itertools.chain.from_iterable(
        itertools.combinations(rest, size) for size in range(len(rest) + 1)
    )
    return max(total for subset in subsets if (total := lengths[0] + sum(subset)) <= CAPACITY)


def all_packs(choose, items, limits):
    waiting, packs = list(enumerate(items)), []
    while waiting:
        chosen = choose([item for _, item in waiting], limits, None)
        packs.append([waiting[index] for index in chosen])
        waiting = [entry for index, entry in enumerate(waiting) if index not in set(chosen)]
    return packs


@given(LENGTHS)
def test_no_pack_with_the_oldest_is_fuller(lengths):
    pack = window(items_of(lengths), Limits(tokens=CAPACITY), None)
    assert pack[0] == 0
    assert sum(lengths[i] for i in pack) == fullest_with_oldest(lengths)


@given(LENGTHS, st.integers(0, 5), st.floats(0, 100))
def test_balance_gives_up_no_more_than_the_tolerance(lengths, tolerance, target):
    items = [Item(length, cost=float(length**2)) for length in lengths]
    pack = window(items, Limits(tokens=CAPACITY, tolerance=tolerance), target)
    assert sum(lengths[i] for i in pack) >= fullest_with_oldest(lengths) - tolerance


@given(CHOOSE, ITEMS, LIMITS, TARGET)
def test_no_limit_is_exceeded_and_no_index_is_used_twice(choose, items, limits, target):
    pack = choose(items, limits, target)
    chosen = [items[index] for index in pack]
    assert pack
    assert sorted(set(pack)) == pack
    assert sum(item.tokens for item in chosen) <= limits.tokens
    assert limits.samples is None or len(pack) <= limits.samples
    for most, used in (
        (limits.visual_tokens, sum(item.visual_tokens for item in chosen)),
        (limits.images, sum(item.images for item in chosen)),
    ):
        assert most is None or used <= most


@given(CHOOSE, ITEMS, LIMITS, TARGET)
def test_a_policy_is_a_function_of_what_it_is_given(choose, items, limits, target):
    assert choose(items, limits, target) == choose(list(items), limits, target)


@given(CHOOSE, ITEMS, LIMITS)
def test_every_item_leaves_in_exactly_one_pack(choose, items, limits):
    packs = all_packs(choose, items, limits)
    assert sorted(index for pack in packs for index, _ in pack) == list(range(len(items)))


@given(st.sampled_from(["window", "sequential", "none"]), ITEMS, LIMITS, TARGET)
def test_the_oldest_item_is_in_every_pack(name, items, limits, target):
    assert POLICIES[name].choose(items, limits, target)[0] == 0


@given(LENGTHS)
def test_first_fit_decreasing_gives_the_textbook_bins(lengths):
    bins = []
    for length in sorted(lengths, reverse=True):
        home = next((b for b in bins if sum(b) + length <= CAPACITY), None)
        if home is None:
            bins.append([length])
        else:
            home.append(length)
    packs = all_packs(first_fit_decreasing, items_of(lengths), Limits(tokens=CAPACITY))
    assert [sorted(item.tokens for _, item in p) for p in packs] == [sorted(b) for b in bins]


@given(ITEMS, st.integers(1, 6))
def test_one_further_limit_is_searched_exactly(items, most):
    limits = Limits(tokens=CAPACITY, samples=most)
    pack = window(items, limits, None)
    best = max(
        total
        for size in range(min(most, len(items)))
        for rest in itertools.combinations(items[1:], size)
        if (total := items[0].tokens + sum(item.tokens for item in rest)) <= CAPACITY
    )
    assert sum(items[i].tokens for i in pack) == best


@given(ITEMS)
def test_with_media_puts_an_item_with_media_into_a_pack_where_one_fits(items):
    pack = window(items, Limits(tokens=CAPACITY, with_media=True), None)
    fits = any(i.has_media and items[0].tokens + i.tokens <= CAPACITY for i in items[1:])
    assert any(items[index].has_media for index in pack) == (items[0].has_media or fits)


def test_of_two_equal_totals_the_older_items_win():
    assert window(items_of([5, 3, 4, 4, 3]), Limits(tokens=12), None) == [0, 1, 2]


def test_the_subset_nearest_to_the_target_cost_is_taken_within_the_tolerance():
    items = [Item(50), Item(50, cost=100.0), Item(49, cost=10.0)]
    limits = Limits(tokens=100, tolerance=1)
    assert window(items, limits, 90.0) == [0, 1]
    assert window(items, limits, 20.0) == [0, 2]
    assert window(items, Limits(tokens=100, tolerance=0), 20.0) == [0, 1]


def test_sequential_stops_at_the_first_item_that_does_not_fit():
    assert POLICIES["sequential"].choose(items_of([5, 6, 3, 1]), Limits(tokens=12), None) == [0, 1]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([1, 16, 128]))
def test_aligned_lengths_fill_a_long_pack_to_the_last_aligned_token(seed, multiple):
    rng = random.Random(seed)
    lengths = [multiple * rng.randint(1, 2048 // multiple) for _ in range(256)]
    pack = window(items_of(lengths), Limits(tokens=32_768), None)
    assert sum(lengths[i] for i in pack) == 32_768


@pytest.mark.parametrize(
    ("limits", "most_ms"),
    [
        (Limits(tokens=32_768, tolerance=32), 2),
        (Limits(tokens=32_768, tolerance=32, samples=24), 5),
        (Limits(tokens=32_768, tolerance=32, samples=32, visual_tokens=16_384, images=12), 5),
    ],
)
@pytest.mark.full
def test_a_pack_of_256_candidates_is_chosen_in_time(limits, most_ms):
    items = [
        Item(tokens, tokens // 2, index % 3, float(tokens), index % 3 > 0)
        for index, tokens in enumerate((37 * i) % 4000 + 60 for i in range(256))
    ]
    seconds = []
    for _ in range(30):
        started = time.process_time()
        window(items, limits, 40_000.0)
        seconds.append(time.process_time() - started)
    assert statistics.median(seconds) < most_ms / 1000
