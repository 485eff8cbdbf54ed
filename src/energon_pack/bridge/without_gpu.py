# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Megatron-Bridge on a machine without a GPU: enough to build a config, check it and read packs.

``megatron.bridge`` imports Transformer Engine unconditionally in one file, its LoRA layers. Where
it is missing, that file alone is given a stand-in, so Megatron Core and everything else still see
none. Mixture-of-experts recipes ask for the properties of a device; an H100's are given.
"""

import builtins
import contextlib
import sys
import types
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from typing import Any
from unittest import mock

import torch

_LORA = "megatron.bridge.peft.lora_layers"

ASSUMED_DEVICE = types.SimpleNamespace(major=9, minor=0, name="NVIDIA H100 80GB HBM3")
"""What a recipe is told of the device where there is none."""


def prepare_import() -> bool:
    """Let ``megatron.bridge`` be imported; return whether Transformer Engine is missing here.

    Call it before the first import of ``megatron.bridge``.
    """
    if find_spec("transformer_engine"):
        return False
    if not any(isinstance(finder, _LoraFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LoraFinder())
    return True


class _LoraFinder(MetaPathFinder):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname != _LORA:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _LoraLoader(spec.loader.name, spec.loader.path)
        return spec


class _LoraLoader(SourceFileLoader):
    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import_for_lora}
        super().exec_module(module)


def _import_for_lora(name: str, *args: Any, **kwargs: Any) -> Any:
    if name.partition(".")[0] != "transformer_engine":
        return builtins.__import__(name, *args, **kwargs)
    layers = {layer: type(layer, (torch.nn.Module,), {}) for layer in ("Linear", "LayerNormLinear")}
    package = types.ModuleType("transformer_engine")
    package.__dict__["pytorch"] = types.SimpleNamespace(
        ops=types.SimpleNamespace(Sequential=torch.nn.Sequential), **layers
    )
    return package


@contextlib.contextmanager
def assumed_device() -> Iterator[None]:
    """Answer questions after the device's properties where there is no device to ask."""
    if torch.cuda.is_available():
        yield
        return
    with mock.patch.object(torch.cuda, "get_device_properties", return_value=ASSUMED_DEVICE):
        yield
