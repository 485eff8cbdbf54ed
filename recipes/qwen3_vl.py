# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Qwen3-VL on packs: dense and mixture of experts, and long video over several GPUs."""

from collections.abc import Sequence

from megatron.bridge.recipes.qwen_vl import (
    qwen3_vl_8b_peft_config,
    qwen3_vl_8b_sft_config,
    qwen3_vl_30b_a3b_peft_config,
    qwen3_vl_30b_a3b_sft_config,
)
from megatron.bridge.training.config import ConfigContainer

from energon_pack.bridge.use import Data, use_packing


def qwen3_vl_8b_sft(data: Data, overrides: Sequence[str] = ()) -> ConfigContainer:
    """Fine-tune all of the 8B model: TP 2."""
    cfg = qwen3_vl_8b_sft_config()
    use_packing(cfg, data, overrides)
    return cfg


def qwen3_vl_8b_lora(data: Data, overrides: Sequence[str] = ()) -> ConfigContainer:
    """Train LoRA adapters of the 8B model: one GPU."""
    cfg = qwen3_vl_8b_peft_config(peft_scheme="lora")
    use_packing(cfg, data, overrides)
    return cfg


def qwen3_vl_30b_a3b_sft(data: Data, overrides: Sequence[str] = ()) -> ConfigContainer:
    """Fine-tune all of the 30B-A3B mixture of experts: EP 8."""
    cfg = qwen3_vl_30b_a3b_sft_config()
    use_packing(cfg, data, overrides)
    return cfg


def qwen3_vl_30b_a3b_lora(data: Data, overrides: Sequence[str] = ()) -> ConfigContainer:
    """Train LoRA adapters of the 30B-A3B mixture of experts: EP 4."""
    cfg = qwen3_vl_30b_a3b_peft_config(peft_scheme="lora")
    use_packing(cfg, data, overrides)
    return cfg


def qwen3_vl_8b_long_video(data: Data, overrides: Sequence[str] = ()) -> ConfigContainer:
    """Fine-tune the 8B model on long video: each pack over TP 2 x CP 4, so 8 GPUs a replica."""
    cfg = qwen3_vl_8b_sft_config()
    cfg.model.context_parallel_size = 4
    cfg.model.sequence_parallel = True
    cfg.train.global_batch_size = 8
    use_packing(cfg, data, overrides)
    return cfg


def qwen3_vl_8b_hierarchical_cp(data: Data, overrides: Sequence[str] = ()) -> ConfigContainer:
    """Long video over two nodes: CP 8, all-to-all over 4 ranks in a node, ring over the 2 nodes."""
    cfg = qwen3_vl_8b_sft_config()
    cfg.model.context_parallel_size = 8
    cfg.model.cp_comm_type = "a2a+p2p"
    cfg.model.hierarchical_context_parallel_sizes = [4, 2]
    cfg.dist.use_decentralized_pg = False
    cfg.model.sequence_parallel = True
    cfg.train.global_batch_size = 8
    use_packing(cfg, data, overrides)
    return cfg
