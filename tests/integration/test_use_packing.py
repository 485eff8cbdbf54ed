# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""`use_packing` on Megatron-Bridge's own recipes, its command line, its YAML, its validation."""

import dataclasses
import sys

import pytest
from integration.bridge_import import RECIPES, SHIPPED, validate

from energon_pack.config import PackingConfig
from energon_pack.errors import UserError
from energon_pack.guard import GuardError


@pytest.fixture
def data():
    return PackingConfig(path="/data/images", model="Qwen/Qwen3-VL-8B-Instruct", seq_length=8192)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_recipe_passes_the_guard_and_validates(shipped, data, name):
    cfg = shipped(name, data)
    validate(cfg)
    assert cfg.dataset.alignment == SHIPPED[name][2]
    assert cfg.train.micro_batch_size == cfg.validation.eval_micro_batch_size == 1
    assert cfg.model.calculate_per_token_loss
    assert not cfg.ddp.average_in_collective
    assert cfg.model.seq_length == cfg.dataset.seq_length == 8192
    assert cfg.model.mtp_num_layers is None
    assert cfg.dataset.resolved_config().fixed_width == "never"


@pytest.mark.parametrize("name", SHIPPED)
def test_recipe_functions_stay_under_15_lines(bridge, monkeypatch, name):
    import inspect

    monkeypatch.syspath_prepend(str(RECIPES))
    module = SHIPPED[name][0]
    __import__(module)
    assert len(inspect.getsourcelines(getattr(sys.modules[module], name))[0]) < 15


def test_the_table_of_changes_names_each_setting_with_before_and_after(recipe, data, monkeypatch):
    from energon_pack.bridge import use_packing

    monkeypatch.setenv("WORLD_SIZE", "2")
    changes = use_packing(recipe("qwen3_vl_8b_sft"), data)
    rows = {change.path: (change.before, change.after) for change in changes}
    assert rows == {
        "dataset": ("DirectHFSFTDatasetConfig", "PackedDatasetProvider"),
        "model.seq_length": (4096, 8192),
        "train.micro_batch_size": (2, 1),
        "validation.eval_micro_batch_size": (None, 1),
        "model.calculate_per_token_loss": (False, True),
        "ddp.average_in_collective": (True, False),
    }
    table = str(changes).splitlines()
    assert table[0].split() == ["setting", "before", "after", "why"]
    assert len(table) == len(rows) + 1


def test_sequence_parallelism_that_finalize_turns_on_is_in_the_alignment(shipped, data):
    cfg = shipped("qwen3_vl_30b_a3b_sft", data, "model.tensor_model_parallel_size=2")
    assert not cfg.model.sequence_parallel
    assert cfg.dataset.alignment == 2
    validate(cfg)
    assert cfg.model.sequence_parallel


def test_the_evaluation_context_size_is_in_the_alignment(shipped, data):
    own_loaders = "+dataset.skip_rules.eval-context='the launcher splits evaluation itself'"
    cfg = shipped("qwen3_vl_8b_sft", data, "+dist.eval_context_parallel_size=2", own_loaders)
    assert cfg.dataset.alignment == 4


def test_an_override_after_use_packing_grows_the_alignment_in_validate(shipped, data, monkeypatch):
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    cfg = shipped("qwen3_vl_8b_sft", data)
    monkeypatch.setenv("WORLD_SIZE", "4")
    process_config_with_overrides(cfg, cli_overrides=["model.context_parallel_size=2"])
    assert cfg.dataset.alignment == 1
    validate(cfg)
    assert cfg.dataset.resolved_config().alignment == 4


def test_a_bad_override_after_use_packing_stops_in_validate(shipped, data):
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    cfg = shipped("qwen3_vl_8b_sft", data)
    process_config_with_overrides(
        cfg, cli_overrides=["model.mtp_num_layers=1", "dataset.seq_length=4096"]
    )
    with pytest.raises(GuardError) as caught:
        validate(cfg)
    assert {f.code for f in caught.value.report.of("error")} == {"mtp", "equal-lengths"}


def test_every_setting_can_be_overridden_on_the_command_line(shipped, data):
    cfg = shipped(
        "qwen3_vl_8b_sft",
        data,
        "dataset.packing_buffer_size=32",
        "dataset.path=msc://cluster/data/other",
        "dataset.cooker=my_data/cook.py:cook",
        "dataset.max_pixels=262144",
        "dataset.monitor.fail_total=90%",
        "dataset.cost.patch=0.5",
    )
    config = cfg.dataset.packing_config()
    assert (config.packing_buffer_size, config.path, config.max_pixels) == (
        32,
        "msc://cluster/data/other",
        262144,
    )
    assert config.cooker == "my_data/cook.py:cook"
    assert config.monitor.fail_total == "90%"
    assert config.cost.patch == 0.5


def test_the_provider_has_every_setting_of_the_data_yaml(bridge):
    from energon_pack.bridge import PackedDatasetProvider

    settings = {field.name for field in dataclasses.fields(PackingConfig)}
    assert settings <= {field.name for field in dataclasses.fields(PackedDatasetProvider)}


def test_a_misspelt_value_is_told_with_its_path(shipped, data):
    with pytest.raises(UserError, match="packing_buffer_size: is 0; it must be at least 1"):
        shipped("qwen3_vl_8b_sft", data, "dataset.packing_buffer_size=0")


def test_the_settings_survive_the_containers_yaml_but_not_the_guards_mark(shipped, data, tmp_path):
    from megatron.bridge.data.base import DatasetBuildContext
    from megatron.bridge.training.config import ConfigContainer

    from energon_pack.bridge import use_packing

    cfg = shipped("qwen3_vl_8b_sft", data, "dataset.monitor.fail_total=90%")
    cfg.to_yaml(str(tmp_path / "run.yaml"))
    again = ConfigContainer.from_yaml(str(tmp_path / "run.yaml"))
    assert again.dataset == cfg.dataset
    validate(again)
    with pytest.raises(UserError, match="no guard has seen"):
        again.dataset.build_datasets(
            DatasetBuildContext(train_samples=1, valid_samples=0, test_samples=0)
        )
    use_packing(again, again.dataset.packing_config())
    validate(again)
    assert again.dataset.resolved_config().monitor.fail_total == "90%"


def test_a_provider_moved_to_another_config_counts_as_unguarded(shipped, data):
    cfg, other = shipped("qwen3_vl_8b_sft", data), shipped("qwen3_vl_8b_lora", data)
    other.dataset = dataclasses.replace(cfg.dataset)
    validate(other)
    with pytest.raises(UserError, match="no guard has seen"):
        other.dataset.resolved_config()


def test_validate_does_not_widen_packs_of_an_expert_parallel_run(shipped, data):
    cfg = shipped("qwen3_vl_30b_a3b_sft", data)
    validate(cfg)
    assert not hasattr(cfg.dataset, "pad_to_max_length")
    assert cfg.dataset.fixed_width == "auto"


def test_hybridep_gets_its_padding_of_uneven_inputs(shipped, data):
    cfg = shipped(
        "qwen3_vl_30b_a3b_sft",
        data,
        "model.moe_token_dispatcher_type=flex",
        "model.moe_flex_dispatcher_backend=hybridep",
    )
    assert cfg.model.moe_hybridep_pad_uneven_dispatch_inputs


def test_fp8_packs_have_a_fixed_width(shipped, data):
    cfg = shipped("qwen3_vl_8b_sft", data, "mixed_precision=bf16_with_fp8_current_scaling_mixed")
    cfg.dataset.finalize()
    assert cfg.dataset.resolved_config().fixed_width == "always"


def test_overlap_asked_for_in_three_places_is_off_in_all_with_one_warning(
    shipped, data, caplog, bridge
):
    from megatron.bridge.training.comm_overlap import CommOverlapConfig

    from energon_pack.bridge import use_packing

    cfg = shipped("qwen3_vl_30b_a3b_sft", data)
    flag = "overlap_moe_expert_parallel_comm"
    cfg.comm_overlap = CommOverlapConfig(
        tp_comm_overlap=False, overlap_grad_reduce=False, **{flag: True}
    )
    cfg.model.overlap_moe_expert_parallel_comm = True
    caplog.clear()
    use_packing(cfg, data)
    validate(cfg)
    places = (cfg.model, cfg.comm_overlap, cfg.comm_overlap.user_comm_overlap_cfg)
    assert not any(getattr(place, flag) for place in places)
    assert sum("expert-overlap" in record.getMessage() for record in caplog.records) == 1


def test_a_rule_can_be_skipped_with_a_reason(recipe, data, monkeypatch):
    from energon_pack.bridge import use_packing

    monkeypatch.setenv("WORLD_SIZE", "2")
    one = dataclasses.replace(data, packing_buffer_size=1)
    cfg = recipe("qwen3_vl_8b_sft")
    use_packing(cfg, one, skip_rules={"buffer-of-one": "measuring the unpacked baseline"})
    assert cfg.dataset.skip_rules == {"buffer-of-one": "measuring the unpacked baseline"}


def test_packing_of_megatron_bridges_own_is_told_and_replaced(recipe, data, monkeypatch):
    from megatron.bridge.models.qwen_vl.data.energon import QwenVLTaskEncoder

    from energon_pack.bridge import use_packing

    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "online packing" not in str(use_packing(recipe("qwen3_vl_8b_sft"), data))
    # What releases from 0.7 on have.
    monkeypatch.setattr(QwenVLTaskEncoder, "select_samples_to_pack", lambda *_: [])
    change = use_packing(recipe("qwen3_vl_8b_sft"), data)[0]
    assert change.why.endswith("they take the place of this Megatron-Bridge's own online packing")
