# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Qwen3.5-VL on packs: its linear attention needs flash-linear-attention's kernels on the GPU."""

from collections.abc import Sequence

from megatron.bridge.recipes.qwen_vl import qwen35_vl_4b_peft_config, qwen35_vl_4b_sft_config
from megatron.bridge.training.config import ConfigContainer

from energon_pack.bridge.use import Data, use_packing


def qwen35_vl_4b_sft(data: Data, overrides: Sequence[str] = ()) -> ConfigContainer:
    """Fine-tune all of the 4B model: TP 2. ``use_packing`` switches the stock recipe's MTP off."""
    cfg = qwen35_vl_4b_sft_config()
    use_packing(cfg, data, overrides)
    return cfg


def qwen35_vl_4b_lora(data: Data, overrides: Sequence[str] = ()) -> ConfigContainer:
    """Train LoRA adapters of the 4B model: one GPU."""
    cfg = qwen35_vl_4b_peft_config()
    use_packing(cfg, data, overrides)
    return cfg
