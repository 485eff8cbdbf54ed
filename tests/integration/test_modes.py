# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The planner against Megatron-Bridge: its own alignment, its validation, its packing tool."""

import itertools
import json
from types import SimpleNamespace
from typing import Any

import pytest

from energon_pack.bridge.without_gpu import assumed_device
from energon_pack.errors import UserError
from energon_pack.guard import run_guard
from energon_pack.plan import Topology
from energon_pack.planning.hcp import factorise
from energon_pack.planning.modes import (
    MODES,
    apply_hierarchical_cp,
    apply_in_batch_packing,
    apply_long_context,
    apply_offline_packing,
    offline_settings,
)
from energon_pack.settings import as_overrides, as_python, as_yaml

SIZES = (1, 2, 4, 8)


@pytest.fixture
def text_recipe(bridge):
    """A text SFT config as Megatron-Bridge's recipes make them, with a small model."""
    from megatron.bridge.models import GPTModelProvider
    from megatron.bridge.recipes.common import _sft_common

    def build(**sizes: Any) -> Any:
        cfg = _sft_common()
        cfg.model = GPTModelProvider(
            num_layers=2,
            hidden_size=64,
            num_attention_heads=8,
            num_query_groups=8,
            seq_length=2048,
            gradient_accumulation_fusion=False,
            **sizes,
        )
        cfg.mixed_precision = None
        cfg.optimizer.bf16 = False
        return cfg

    return build


def validate(cfg: Any) -> None:
    from megatron.bridge.training.config import runtime_config_update

    with assumed_device():
        runtime_config_update(cfg)


def test_alignment_equals_megatron_bridges_over_every_topology(recipe, monkeypatch):
    # Its validate derives the multiple for an in-batch dataset just before it finalises it.
    cfg = recipe("qwen3_vl_8b_sft")
    for tensor, context, evaluation, scattered in itertools.product(
        SIZES, SIZES, (None, *SIZES), (False, True)
    ):
        cfg.model.tensor_model_parallel_size = tensor
        cfg.model.context_parallel_size = context
        cfg.dist.eval_context_parallel_size = evaluation
        cfg.model.sequence_parallel = scattered
        cfg.dataset.in_batch_packing_pad_to_multiple_of = 3
        monkeypatch.setattr(type(cfg.dataset), "finalize", _stop)
        with pytest.raises(_StoppedError):
            cfg.validate()
        topology = Topology(
            tensor=tensor,
            context=context,
            eval_context=evaluation,
            sequence_parallel=scattered,
            world_size=tensor * context,
        )
        assert topology.alignment == cfg.dataset.in_batch_packing_pad_to_multiple_of, topology


class _StoppedError(Exception):
    pass


def _stop(_: Any) -> None:
    raise _StoppedError


@pytest.mark.parametrize(("tensor", "context"), [(1, 1), (1, 2), (2, 4), (4, 8)])
def test_offline_settings_pass_validate_and_the_guard(text_recipe, monkeypatch, tensor, context):
    monkeypatch.setenv("WORLD_SIZE", str(tensor * context * 2))
    topology = Topology(
        tensor=tensor,
        context=context,
        sequence_parallel=tensor > 1,
        world_size=tensor * context * 2,
        seq_length=8192,
        global_batch=16,
    )
    cfg = text_recipe()
    cfg.dataset.offline_packing_specs = None
    cfg.dataset.enable_offline_packing = False
    changes = apply_offline_packing(cfg, topology)
    assert run_guard(cfg, None).of("error") == ()
    validate(cfg)
    specs = cfg.dataset.offline_packing_specs
    assert (specs.packed_sequence_size, specs.pad_seq_to_mult) == (8192, topology.alignment)
    assert "dataset.enable_offline_packing" in {change.path for change in changes}


def test_offline_settings_for_cuda_graphs_pass_validate(text_recipe, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    cfg = text_recipe(cuda_graph_impl="transformer_engine", use_te_rng_tracker=True)
    cfg.model.cuda_graph_modules = ["attn"]
    apply_offline_packing(cfg, Topology(seq_length=4096), cuda_graphs=True)
    validate_packing_only(cfg)
    cfg.dataset.offline_packing_specs.pad_cu_seqlens = False
    with pytest.raises(ValueError, match="pad_cu_seqlens"):
        validate_packing_only(cfg)


def validate_packing_only(cfg: Any) -> None:
    """Run its validate up to the dataset, behind which CUDA graphs ask for Transformer Engine."""
    dataset = cfg.dataset
    before = type(dataset).finalize
    type(dataset).finalize = _stop
    try:
        cfg.validate()
    except _StoppedError:
        pass
    finally:
        type(dataset).finalize = before


def test_a_guarded_offline_config_reports_a_stale_multiple(text_recipe):
    cfg = text_recipe()
    apply_offline_packing(cfg, Topology(context=2, world_size=2))
    cfg.model.context_parallel_size = 4
    cfg.dataset.offline_packing_specs.packed_sequence_size = 4096
    settings = {f.setting for f in run_guard(cfg, None).of("error") if f.code == "offline-lengths"}
    assert settings == {
        "dataset.offline_packing_specs.packed_sequence_size",
        "dataset.offline_packing_specs.pad_seq_to_mult",
    }


def test_in_batch_settings_pass_validate_and_the_guard(recipe, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    topology = Topology(
        tensor=2, context=2, sequence_parallel=True, world_size=8, seq_length=4096, global_batch=16
    )
    cfg = recipe("qwen3_vl_8b_sft")
    apply_in_batch_packing(cfg, topology, micro_batch=4)
    assert run_guard(cfg, None).of("error") == ()
    validate(cfg)
    assert cfg.train.micro_batch_size == 4
    assert cfg.dataset.in_batch_packing_pad_to_multiple_of == 4


def test_in_batch_packing_of_qwen3_5_is_refused(recipe):
    with pytest.raises(UserError, match="refuses in-batch packing"):
        apply_in_batch_packing(recipe("qwen35_vl_4b_sft"), Topology(global_batch=4))


def test_long_context_settings_pass_validate_and_the_guard(recipe, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    cfg = recipe("qwen3_vl_8b_sft")
    apply_long_context(
        cfg, Topology(tensor=1, context=8, world_size=8, seq_length=32768, global_batch=32)
    )
    assert run_guard(cfg, None).of("error") == ()
    validate(cfg)


def test_hierarchical_settings_pass_validate_and_the_guard(recipe, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "16")
    topology = Topology(tensor=2, context=8, world_size=16, seq_length=65536, global_batch=2)
    cfg = recipe("qwen3_vl_8b_sft")
    cfg.train.micro_batch_size = 2
    (split,) = [s for s in factorise(8, kv_heads=8, tensor=2) if s.recommended]
    apply_hierarchical_cp(cfg, topology, (split.a2a, split.p2p))
    assert run_guard(cfg, None).of("error") == ()
    validate(cfg)
    assert cfg.model.hierarchical_context_parallel_sizes == [4, 2]


@pytest.mark.parametrize("mode", MODES)
def test_written_python_overrides_and_yaml_give_the_same_config(
    recipe, text_recipe, tmp_path, mode
):
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    topology = Topology(context=4, world_size=8, global_batch=16)
    settings = MODES[mode](topology, factorise(4, kv_heads=2))
    build = text_recipe if mode == "offline" else lambda: recipe("qwen3_vl_8b_sft")
    known = [s for s in settings if s.path != "dataset.alignment"]
    assigned, overridden, merged = build(), build(), build()
    exec(as_python(known), {"cfg": assigned})
    process_config_with_overrides(overridden, cli_overrides=as_overrides(known).split())
    (tmp_path / "settings.yaml").write_text(as_yaml(known))
    process_config_with_overrides(merged, config_filepath=str(tmp_path / "settings.yaml"))
    for setting in known:
        values = [_value(cfg, setting.path) for cfg in (assigned, overridden, merged)]
        assert values == [setting.value] * 3, setting.path


def _value(cfg: Any, path: str) -> Any:
    for name in path.split("."):
        cfg = getattr(cfg, name)
    return cfg


def test_its_own_packing_tool_makes_packs_that_meet_the_planned_alignment(bridge, tmp_path):
    from megatron.bridge.data.packing.offline import prepare_gpt_sft_packed_data

    topology = Topology(tensor=2, context=4, sequence_parallel=True, world_size=8, seq_length=256)
    values = {setting.path: setting.value for setting in offline_settings(topology)}
    lengths = [11, 50, 97, 33, 128, 7, 64, 201, 20, 20]

    class Rows(list):
        tokenizer = SimpleNamespace(eod=0)
        pad_seq_length_to_mult = topology.alignment

    def build(path: Any, **_: Any) -> Rows:
        return Rows(
            {"input_ids": list(range(1, n + 2)), "answer_start_idx": 2, "loss_mask": [1] * (n + 1)}
            for n in lengths
        )

    output = tmp_path / "packs.npy"
    prepare_gpt_sft_packed_data(
        input_path=tmp_path,
        output_path=output,
        output_metadata_path=tmp_path / "packs.json",
        packed_sequence_size=values["dataset.offline_packing_specs.packed_sequence_size"],
        tokenizer=SimpleNamespace(eos_id=0),
        max_seq_length=topology.seq_length,
        pad_seq_to_mult=values["dataset.offline_packing_specs.pad_seq_to_mult"],
        dataset_builder=build,
    )
    import numpy as np

    packs = np.load(output, allow_pickle=True)
    segments = 0
    for pack in packs:
        starts = [*pack["seq_start_id"], len(pack["input_ids"])]
        for start, end in itertools.pairwise(starts):
            segments += 1
            # A stored segment has one token more than the row it becomes.
            assert (end - start - 1) % topology.alignment == 0
        assert len(pack["input_ids"]) - len(pack["seq_start_id"]) <= topology.seq_length
    assert segments == len(lengths)
    assert json.loads((tmp_path / "packs.json").read_text())
