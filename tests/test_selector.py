# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from window_parts import config_of

from energon_pack.candidate import Candidate, Medium
from energon_pack.choosing.selector import Selector
from energon_pack.config import CostWeights
from energon_pack.strict import ConfigError


def candidate_of(length, media=()):
    ids = np.zeros(length, np.int32)
    return Candidate(
        __key__="k", __restore_key__=(), ids=ids, trained=ids > 0, media=media, visual_tokens=4
    )


def test_an_item_has_its_padded_length_and_the_cost_of_it():
    picture = Medium(kind="image", data=b"", height=4, width=4, resized=(4, 4), grid=(1, 4, 4))
    cost = CostWeights(token=2.0, attention=0.5, patch=10.0)
    item = Selector.of(config_of(alignment=10, cost=cost)).item(candidate_of(13, (picture,)))
    assert (item.tokens, item.visual_tokens, item.images, item.has_media) == (20, 4, 1, True)
    assert item.cost == 2.0 * 20 + 0.5 * 400 + 10.0 * 16


@pytest.mark.parametrize(
    ("limits", "cause"),
    [
        ({"seq_length": 12}, "overlong"),
        ({"max_visual_tokens_per_pack": 3}, "too_many_visual_tokens"),
        ({}, None),
    ],
)
def test_what_fits_no_pack_has_a_cause(limits, cause):
    selector = Selector.of(config_of(**limits))
    assert selector.too_big(selector.item(candidate_of(13))) == cause


def test_alignment_counts_when_a_sample_is_too_long():
    selector = Selector.of(config_of(seq_length=16, alignment=8))
    assert selector.too_big(selector.item(candidate_of(16))) is None
    assert selector.too_big(selector.item(candidate_of(17))) == "overlong"


def test_an_unknown_policy_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"best_fit.*window, first_fit_decreasing"):
        Selector.of(config_of(packing_policy="best_fit"))


def test_with_media_is_refused_where_the_policy_cannot_do_it():
    with pytest.raises(ConfigError, match="with_media"):
        Selector.of(config_of(packing_policy="sequential", text_only_packs="with_media"))
