# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Megatron-Bridge's stock recipes without a hub, and the recipes that are shipped with us."""

import os
from pathlib import Path
from typing import Any

from energon_pack.bridge.without_gpu import assumed_device

RECIPES = Path(__file__).parents[2] / "recipes"

# name: module, GPUs, alignment
SHIPPED = {
    "qwen25_vl_7b_sft": ("qwen25_vl", 2, 1),
    "qwen25_vl_7b_lora": ("qwen25_vl", 1, 1),
    "qwen3_vl_8b_sft": ("qwen3_vl", 2, 1),
    "qwen3_vl_8b_lora": ("qwen3_vl", 1, 1),
    "qwen3_vl_30b_a3b_sft": ("qwen3_vl", 8, 1),
    "qwen3_vl_30b_a3b_lora": ("qwen3_vl", 4, 1),
    "qwen3_vl_8b_long_video": ("qwen3_vl", 8, 8),
    "qwen3_vl_8b_hierarchical_cp": ("qwen3_vl", 16, 16),
    "qwen35_vl_4b_sft": ("qwen35_vl", 2, 1),
    "qwen35_vl_4b_lora": ("qwen35_vl", 1, 1),
}

_VISION = {"depth": 27, "hidden_size": 1152, "num_heads": 16, "out_hidden_size": 4096}
_QWEN3_8B = {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 151936,
}
_QWEN3_30B = {
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 151936,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
}
_QWEN25_7B = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
}


def use_hub(root: Path) -> None:
    """Write the stock recipes' model configs below ``root`` and make it the hub cache, offline."""
    for model, config in _hub_configs().items():
        folder = root / "hub" / f"models--{model.replace('/', '--')}"
        snapshot = folder / "snapshots" / "0"
        if not snapshot.exists():
            snapshot.mkdir(parents=True)
            (folder / "refs").mkdir()
            (folder / "refs" / "main").write_text("0")
            (snapshot / "config.json").write_text(config.to_json_string(use_diff=False))
    os.environ.update(HF_HOME=str(root), HF_HUB_OFFLINE="1")
    # Read once at import, and another test may have imported the package before.
    from huggingface_hub import constants

    constants.HF_HUB_CACHE = str(root / "hub")
    constants.HF_HUB_OFFLINE = True


def _hub_configs() -> dict[str, Any]:
    import transformers as hf

    moe_vision = {**_VISION, "out_hidden_size": 2048}
    return {
        "Qwen/Qwen2.5-VL-7B-Instruct": hf.Qwen2_5_VLConfig(
            text_config=_QWEN25_7B, architectures=["Qwen2_5_VLForConditionalGeneration"]
        ),
        "Qwen/Qwen3-VL-8B-Instruct": hf.Qwen3VLConfig(
            text_config=_QWEN3_8B,
            vision_config=_VISION,
            architectures=["Qwen3VLForConditionalGeneration"],
        ),
        "Qwen/Qwen3-VL-30B-A3B-Instruct": hf.Qwen3VLMoeConfig(
            text_config=_QWEN3_30B,
            vision_config=moe_vision,
            architectures=["Qwen3VLMoeForConditionalGeneration"],
        ),
        "Qwen/Qwen3.5-4B": hf.Qwen3_5Config(architectures=["Qwen3_5ForConditionalGeneration"]),
    }


def stock_recipe(name: str) -> Any:
    """Build one of Megatron-Bridge's own recipes by its short name: ``qwen3_vl_8b_sft``."""
    from megatron.bridge.recipes import qwen_vl

    with assumed_device():
        return getattr(qwen_vl, f"{name}_config")()


def validate(cfg: Any) -> None:
    """Run Megatron-Bridge's own update and validation."""
    from megatron.bridge.training.config import runtime_config_update

    with assumed_device():
        runtime_config_update(cfg)
