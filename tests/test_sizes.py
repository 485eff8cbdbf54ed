# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0

import pytest
from hypothesis import given
from hypothesis import strategies as st

from energon_pack.sizes import SizeError, format_size, parse_limit, parse_size


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("8GiB", 8 << 30), ("8 gb", 8 * 10**9), ("1.5MiB", 3 << 19), ("64 B", 64), ("2TiB", 2 << 40)],
)
def test_units_of_1024_and_of_1000_are_told_apart(text, num_bytes):
    assert parse_size(text) == num_bytes


@pytest.mark.parametrize("text", ["8", "", "GiB", "-1GiB", "0MiB", "8 GiB!", "eight", "٣MB"])
def test_text_that_is_no_amount_is_refused_with_an_example(text):
    with pytest.raises(SizeError, match="512MiB"):
        parse_size(text)


def test_a_share_is_one_of_the_memory_known_only_while_running():
    assert parse_limit("80%").level_bytes(1000) == 800
    assert parse_limit("1MiB").level_bytes(1000) == 1 << 20


@pytest.mark.parametrize("text", ["0%", "101%", "-5%", "%"])
def test_a_share_outside_the_memory_is_refused(text):
    with pytest.raises(SizeError):
        parse_limit(text)


@given(st.integers(0, 1 << 45))
def test_a_printed_size_is_within_a_percent_and_short(num_bytes):
    text = format_size(num_bytes)
    assert len(text) <= 8
    if num_bytes:
        assert parse_size(text) == pytest.approx(num_bytes, rel=0.01)
