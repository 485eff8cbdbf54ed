# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The real Megatron-Bridge on a machine without a GPU.

``megatron.bridge`` imports Transformer Engine unconditionally in one file, its LoRA layers; that
file alone is given a stand-in, so Megatron Core and everything else still see none. Stock recipes
read only a model's Hugging Face config, which a hub cache folder written here supplies.
"""

import builtins
import contextlib
import os
import sys
import types
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import torch

_LORA = "megatron.bridge.peft.lora_layers"

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


def install_stand_in() -> None:
    """Let ``megatron.bridge`` be imported; does nothing where Transformer Engine is installed."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if find_spec("transformer_engine") or any(isinstance(f, _LoraFinder) for f in sys.meta_path):
        return
    sys.meta_path.insert(0, _LoraFinder())


class _LoraFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Any, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _LORA:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert isinstance(spec.loader, SourceFileLoader)
        spec.loader = _LoraLoader(spec.loader.name, spec.loader.path)
        return spec


class _LoraLoader(SourceFileLoader):
    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import_for_lora}
        super().exec_module(module)


def _import_for_lora(name: str, *args: Any, **kwargs: Any) -> Any:
    if name.split(".")[0] != "transformer_engine":
        return builtins.__import__(name, *args, **kwargs)
    package = types.ModuleType("transformer_engine")
    layers = ["Linear", "LayerNormLinear"]
    package.pytorch = types.SimpleNamespace(  # type: ignore[attr-defined]
        ops=types.SimpleNamespace(Sequential=torch.nn.Sequential),
        **{layer: type(layer, (torch.nn.Module,), {}) for layer in layers},
    )
    return package


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


@contextlib.contextmanager
def device_answers() -> Iterator[None]:
    """Answer the device questions that mixture-of-experts recipes ask, as an H100 would."""
    properties = types.SimpleNamespace(major=9, minor=0, name="NVIDIA H100 80GB HBM3")
    with mock.patch.object(torch.cuda, "get_device_properties", lambda *_: properties):
        yield


def stock_recipe(name: str) -> Any:
    """Build one of Megatron-Bridge's own recipes by its short name: ``qwen3_vl_8b_sft``."""
    from megatron.bridge.recipes import qwen_vl

    with device_answers():
        return getattr(qwen_vl, f"{name}_config")()
