# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Each shipped recipe's packs of the demo data, through Megatron-Bridge's own batch path."""

import dataclasses
from itertools import islice

import pytest
import torch
import transformers
from integration.bridge_import import SHIPPED, validate

from energon_pack.demo.processor import build_processor

FAMILIES = {"qwen25_vl": "qwen2_5_vl", "qwen3_vl": "qwen3_vl", "qwen35_vl": "qwen3_5_vl"}
FIRST = ("qwen25_vl_7b_sft", "qwen3_vl_30b_a3b_sft", "qwen3_vl_8b_long_video", "qwen35_vl_4b_sft")
RECIPES = [pytest.param(name, marks=[] if name in FIRST else pytest.mark.full) for name in SHIPPED]


@pytest.fixture
def data(request, demo_config):
    """Settings with a function that gives them a family's processor."""
    root = request.config.cache.mkdir(f"processors-{transformers.__version__}")

    def of(family):
        model = build_processor(family, root / family)
        return dataclasses.replace(demo_config, model=str(model), num_workers=0)

    return of


@pytest.mark.parametrize("name", RECIPES)
def test_packs_of_every_recipe_pass_vlm_step(shipped, data, name):
    from integration.cpu import on_cpu
    from megatron.bridge.data.base import DatasetBuildContext
    from megatron.bridge.training.utils.packed_seq_utils import get_packed_seq_params
    from megatron.bridge.training.vlm_step import _PACKED_SEQ_PARAM_KEYS, get_batch_from_iterator
    from megatron.core.rerun_state_machine import RerunDataIterator

    module, _, alignment = SHIPPED[name]
    cfg = shipped(name, data(FAMILIES[module]))
    validate(cfg)
    context = DatasetBuildContext(train_samples=1, valid_samples=0, test_samples=0)
    stream, validation, test = cfg.dataset.build_datasets(context)
    assert validation is test is None
    for pack in islice(stream, 2):
        with on_cpu():
            batch = get_batch_from_iterator(
                RerunDataIterator(iter([pack])), is_first_pp_stage=True, is_last_pp_stage=True
            )
            params = get_packed_seq_params(
                {key: batch[key] for key in _PACKED_SEQ_PARAM_KEYS if batch.get(key) is not None}
            )
        width = batch["input_ids"].shape[1]
        lengths = params.cu_seqlens_q.diff()
        assert int(params.cu_seqlens_q[-1]) == width <= cfg.model.seq_length
        assert params.max_seqlen_q == int(lengths.max())
        assert params.cu_seqlens_q_padded is None
        assert not torch.any(lengths % alignment)
        assert torch.equal(batch["loss_mask"], (batch["labels"] != -100).float())
        if module == "qwen25_vl":
            _check_visual(cfg, batch, seconds=True)
        else:
            _check_visual(cfg, batch, seconds=False)
            _check_positions(cfg, batch, params)


def _check_visual(cfg, batch, *, seconds):
    """As many visual tokens as the patches make; seconds of a clip's grids for Qwen2.5-VL only."""
    visual = batch["visual_inputs"].normalized_for_model()
    ids = batch["input_ids"]
    for kind, token in (("image", cfg.model.image_token_id), ("video", cfg.model.video_token_id)):
        grid = visual.get(f"{kind}_grid_thw")
        patches = 0 if grid is None else int(grid.prod(-1).sum())
        assert int((ids == token).sum()) * 4 == patches
    has_clips = visual.get("video_grid_thw") is not None
    assert (visual.get("second_per_grid_ts") is not None) == (seconds and has_clips)


def _check_positions(cfg, batch, params):
    """The worker's positions are those that the model would compute in every step."""
    from megatron.bridge.models.qwen_vl.modelling_qwen3_vl.rope import get_rope_index

    visual = batch["visual_inputs"]
    expected, _ = get_rope_index(
        2,
        cfg.model.image_token_id,
        cfg.model.video_token_id,
        cfg.model.vision_start_token_id,
        batch["input_ids"],
        image_grid_thw=visual.image_grid_thw,
        video_grid_thw=visual.video_grid_thw,
        packed_seq_params=params,
    )
    assert torch.equal(batch["position_ids"], expected)


def test_a_processor_of_another_family_is_refused(shipped, data):
    from megatron.bridge.data.base import DatasetBuildContext

    from energon_pack.errors import UserError

    cfg = shipped("qwen25_vl_7b_sft", data("qwen3_vl"))
    validate(cfg)
    context = DatasetBuildContext(train_samples=1, valid_samples=0, test_samples=0)
    with pytest.raises(UserError, match="qwen3_vl processor, but the config trains a qwen2_5_vl"):
        cfg.dataset.build_datasets(context)
