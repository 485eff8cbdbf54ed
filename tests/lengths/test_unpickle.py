# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Pickled parts are read without running anything."""

import collections
import os
import pickle
import resource

import numpy as np
import pytest

from energon_pack.reading.unpickle import load_pickle
from energon_pack.refusal import SampleError


class Payload:
    def __reduce__(self):
        return os.system, ("touch /tmp/energon-pack-was-here",)


@pytest.mark.parametrize("protocol", range(6))
def test_lists_of_bytes_text_and_numbers_are_read(protocol):
    value = [[b"\x00\xff" * 9, b""], (b"x", "text", 1, 2.5), [[b"\x80\x04"]]]
    assert load_pickle(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize(
    "value", [Payload(), os.system, collections.OrderedDict(), np.zeros(3), bytearray(b"x")]
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_whatever_names_code_is_refused(value, protocol):
    with pytest.raises(SampleError, match="only lists of bytes, text and numbers") as caught:
        load_pickle(pickle.dumps([value], protocol))
    assert caught.value.cause == "bad_pickle"


@pytest.mark.parametrize(
    "data", [b"", b"\x80\x04", b"\x80\x05]", b"(lp0\n", b"\x80\x04\x8e" + b"\xff" * 8, b"\x80\xff."]
)
def test_a_broken_pickle_is_refused(data):
    with pytest.raises(SampleError, match="a pickled part cannot be read"):
        load_pickle(data)


def test_a_number_in_a_pickle_takes_no_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert load_pickle(b"\x80\x02]r\x00\x00\x00\x08.") == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB
