# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests against the real Megatron-Bridge share: one import, one hub cache a session."""

import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from integration.bridge_import import RECIPES, SHIPPED, stock_recipe, use_hub

from energon_pack.bridge.without_gpu import assumed_device, prepare_import


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Megatron warns of what a CPU lacks (Apex, fused kernels) all over; that is no fault here."""
    here = Path(__file__).parent
    missing = pytest.mark.skipif(not find_spec("megatron.core"), reason="needs the bridge extra")
    for item in items:
        if here in item.path.parents:
            item.add_marker(missing)
            item.add_marker(pytest.mark.filterwarnings("ignore"), append=False)


@pytest.fixture(scope="session")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The real ``megatron.bridge``, imported once (25 s), with the stock recipes' model configs."""
    prepare_import()
    use_hub(tmp_path_factory.mktemp("hub"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import megatron.bridge
        import megatron.bridge.recipes.qwen_vl
    return megatron.bridge


@pytest.fixture
def recipe(bridge: Any) -> Any:
    """A function from a stock recipe's short name, such as ``qwen3_vl_8b_sft``, to its config."""
    return stock_recipe


@pytest.fixture
def shipped(bridge, monkeypatch, tmp_path):
    """A function from a shipped recipe's name to its config, which validates here."""
    monkeypatch.syspath_prepend(str(RECIPES))

    def build(name, data, *overrides):
        module, gpus, _ = SHIPPED[name]
        monkeypatch.setenv("WORLD_SIZE", str(gpus))
        # Without Transformer Engine there is no fused permutation.
        here = [f"checkpoint.pretrained_checkpoint={tmp_path}", "model.moe_permute_fusion=False"]
        __import__(module)
        with assumed_device():
            return getattr(sys.modules[module], name)(data, [*here, *overrides])

    return build
