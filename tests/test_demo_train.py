# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Packed equals unpacked, on a real Qwen3-VL: losses and gradients."""

import dataclasses
import itertools
from typing import Any

import pytest
import torch
from torch.nn import functional

from energon_pack.config import PackingConfig
from energon_pack.demo.segments import split_pack
from energon_pack.demo.train import block_diagonal_mask, compare, summed_loss, tiny_model, train
from energon_pack.encoder import PackingTaskEncoder
from energon_pack.family import Family, load_family
from energon_pack.loader import build_loader

SEQ_LENGTH = 1536


@pytest.fixture(scope="module")
def family(demo_config: PackingConfig) -> Family:
    return load_family(demo_config.model)


@pytest.fixture(scope="module")
def model(family: Family) -> Any:
    return tiny_model(family, seed=1)


@pytest.fixture(scope="module")
def pack(demo_config, family) -> dict[str, Any]:
    return read_pack(demo_config, family)


def read_pack(config: PackingConfig, family: Family, **settings) -> dict[str, Any]:
    """Return the first pack that has images, a clip, text-only samples, and padding if asked."""
    config = dataclasses.replace(config, seq_length=SEQ_LENGTH, num_workers=0, **settings)
    loader = build_loader(config, encoder=PackingTaskEncoder(config, family=family))
    for pack in itertools.islice(loader, 60):
        padded = pack["total_tokens"] > pack["pack_info"].tokens
        if has_all_kinds(pack, family) and padded == bool(settings):
            return pack
    raise AssertionError("no such pack among 60")


def has_all_kinds(pack: dict[str, Any], family: Family) -> bool:
    image, video = family.image_token_id, family.video_token_id
    kinds = {
        frozenset({image, video} & set(pack["input_ids"][0, start:end].tolist()))
        for start, end in itertools.pairwise(pack["cu_seqlens_q"].tolist())
        if pack["loss_mask"][0, start:end].any()
    }
    return {frozenset(), frozenset({image}), frozenset({video})} <= kinds


@pytest.mark.parametrize(
    "settings",
    [{}, {"alignment": 16}, {"fixed_width": "always"}, {"alignment": 8, "fixed_width": "always"}],
    ids=["no padding", "alignment", "fixed width", "both"],
)
def test_packed_loss_and_gradients_equal_those_of_the_samples_one_by_one(
    demo_config, family, model, settings
):
    pack = read_pack(demo_config, family, **settings)
    found = compare(model, pack, family)
    assert found.samples == pack["pack_info"].samples > 2
    assert found.packed_loss == pytest.approx(found.alone_loss, abs=1e-5)
    assert found.gradient_difference < 1e-5


def test_padding_changes_no_loss(demo_config, family, model):
    pack = read_pack(demo_config, family, alignment=16, fixed_width="always")
    total = 0.0
    for part in split_pack(pack, family):
        trained = part["loss_mask"][0].nonzero()
        if len(trained):
            total += summed_loss(model, cut(part, int(trained[-1]) + 1)).item()
    assert summed_loss(model, pack).item() == pytest.approx(total, rel=1e-5)


def cut(part: dict[str, Any], width: int) -> dict[str, Any]:
    """Drop what stands behind the last trained token of a single segment, padding included."""
    rows = ("input_ids", "labels", "loss_mask", "position_ids")
    shorter = {name: part[name][..., :width] for name in rows}
    return {**part, **shorter, "cu_seqlens_q": torch.tensor([0, width], dtype=torch.int32)}


def test_positions_and_mask_equal_what_the_model_makes_for_each_sample(pack, family, model):
    """The oracle: transformers' own positions and causal mask, from the ids and grids alone."""
    expected = sum(own_loss(model, part, family) for part in split_pack(pack, family))
    assert summed_loss(model, pack).item() == pytest.approx(expected, rel=1e-5)


def own_loss(model: Any, part: dict[str, Any], family: Family) -> float:
    ids = part["input_ids"]
    kinds = (ids == family.image_token_id).int() + 2 * (ids == family.video_token_id).int()
    arguments = part["visual_inputs"].normalized_for_model()
    with torch.no_grad():
        logits = model(input_ids=ids, mm_token_type_ids=kinds, use_cache=False, **arguments).logits
    return functional.cross_entropy(logits[0], part["labels"][0], reduction="sum").item()


def test_without_the_mask_the_losses_differ(pack, family, model):
    """The comparison can fail: attention over segment borders shows."""
    expected = sum(own_loss(model, part, family) for part in split_pack(pack, family))
    whole = {**pack, "cu_seqlens_q": torch.tensor([0, pack["total_tokens"]], dtype=torch.int32)}
    assert summed_loss(model, whole).item() != pytest.approx(expected, rel=1e-4)


def test_the_mask_lets_a_token_see_its_own_segment_up_to_itself():
    mask = block_diagonal_mask(torch.tensor([0, 2, 5], dtype=torch.int32))[0, 0]
    assert (mask == 0).int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 1],
    ]


def test_loss_falls_on_a_few_packs(pack, family):
    steps = train(tiny_model(family, seed=2), [pack] * 4)
    assert steps[-1].loss < steps[0].loss - 0.5
    assert [step.number for step in steps] == list(range(4))
