# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Qwen2.5-VL on packs. Its model recomputes positions and has no context parallelism."""

from collections.abc import Sequence

from megatron.bridge.recipes.qwen_vl import qwen25_vl_7b_peft_config, qwen25_vl_7b_sft_config
from megatron.bridge.training.config import ConfigContainer

from energon_pack.bridge.use import Data, use_packing


def qwen25_vl_7b_sft(data: Data, overrides: Sequence[str] = ()) -> ConfigContainer:
    """Fine-tune all of the 7B model: TP 2."""
    cfg = qwen25_vl_7b_sft_config()
    use_packing(cfg, data, overrides)
    return cfg


def qwen25_vl_7b_lora(data: Data, overrides: Sequence[str] = ()) -> ConfigContainer:
    """Train LoRA adapters of the 7B model: one GPU."""
    cfg = qwen25_vl_7b_peft_config(peft_scheme="lora")
    use_packing(cfg, data, overrides)
    return cfg
