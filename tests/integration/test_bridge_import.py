# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The stand-in must not make anything but the LoRA layers believe in Transformer Engine."""

import sys
from importlib.util import find_spec

import pytest
import torch


@pytest.mark.skipif(find_spec("transformer_engine") is not None, reason="the real one is here")
def test_nothing_but_the_lora_layers_sees_the_stand_in(bridge):
    from megatron.bridge.peft import lora_layers
    from megatron.core.utils import is_te_min_version

    assert "transformer_engine" not in sys.modules
    assert lora_layers.te.ops.Sequential is torch.nn.Sequential
    assert not is_te_min_version("1.0")


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("qwen25_vl_7b_sft", "Qwen25VLModelProvider"),
        ("qwen3_vl_8b_sft", "Qwen3VLModelProvider"),
        ("qwen3_vl_30b_a3b_sft", "Qwen3VLMoEModelProvider"),
        ("qwen35_vl_4b_sft", "Qwen35VLModelProvider"),
    ],
)
def test_stock_recipes_build(recipe, name, provider):
    assert type(recipe(name).model).__name__ == provider
