# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The launcher's dry run on a machine without GPU, Transformer Engine or weights."""

import importlib
import os

import pytest
import torch
from integration.bridge_import import RECIPES, validate

from energon_pack.errors import UserError


@pytest.fixture
def launcher(bridge, monkeypatch):
    monkeypatch.syspath_prepend(str(RECIPES))
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    yield importlib.import_module("train")
    os.environ.pop("WORLD_SIZE", None)


def test_a_dry_run_tells_the_plan_and_the_first_packs(launcher, demo_folder, capsys):
    launcher.check("qwen3_vl_8b_sft", demo_folder / "data.yaml", 4, ("dataset.num_workers=1",))
    report = capsys.readouterr().out
    assert "guard: 0 errors" in report
    assert "Megatron-Bridge's own validation passed" in report
    assert "set checkpoint.pretrained_checkpoint" in report
    assert "16 on each of 2 data-parallel ranks, 131072 token slots" in report
    assert "an epoch: 65 conversations" in report
    assert "the first 4 packs of rank 0: " in report


def test_a_dry_run_says_what_megatron_bridge_could_not_check_here(launcher, demo_folder, capsys):
    launcher.check("qwen3_vl_30b_a3b_sft", demo_folder / "data.yaml", 8, ())
    report = capsys.readouterr().out
    assert "validation stopped here: fused permutation" in report
    assert "the first 4 packs of rank 0: " in report


def test_a_recipe_whose_model_config_is_not_to_be_had_is_one_sentence(
    launcher, demo_folder, monkeypatch, tmp_path
):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="qwen3_vl_8b_sft cannot be built here"):
        launcher.check("qwen3_vl_8b_sft", demo_folder / "data.yaml", 2, ())


def test_the_launchers_list_has_every_recipe_function(launcher):
    for name, module in launcher.MODULES.items():
        assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_gpu_smoke_test_explains_itself_without_a_gpu(bridge, monkeypatch):
    monkeypatch.syspath_prepend(str(RECIPES))
    reason = importlib.import_module("gpu_smoke").what_is_missing()
    assert reason.startswith("there is no CUDA GPU here")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_gpu_smoke_tests_runs_start_in_a_process_of_their_own(
    bridge, monkeypatch, capfd, tmp_path
):
    monkeypatch.syspath_prepend(str(RECIPES))
    with pytest.raises(SystemExit, match="the packed run failed"):
        importlib.import_module("gpu_smoke").run("packed", tmp_path)
    assert "there is no CUDA GPU here" in capfd.readouterr().err


@pytest.mark.parametrize(("mode", "packs"), [("packed", 4), ("unpacked", 40)])
def test_the_gpu_smoke_tests_config_validates(bridge, monkeypatch, demo_copy, mode, packs):
    from huggingface_hub import constants

    monkeypatch.syspath_prepend(str(RECIPES))
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", constants.HF_HUB_CACHE)
    cfg = importlib.import_module("gpu_smoke").config(mode, demo_copy.parent)
    validate(cfg)
    assert cfg.model.num_layers == 8
    assert cfg.train.global_batch_size == packs
    assert cfg.checkpoint.save is None
    assert cfg.checkpoint.load is None
