# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Each rule on Megatron-Bridge's own recipes: packed they pass, and each fault is found."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from energon_pack.config import PackingConfig
from energon_pack.facts import RunFacts
from energon_pack.guard import Report, run_rules
from energon_pack.read_facts import read_facts
from energon_pack.rules import RULES

DENSE, EXPERTS, OLD, LINEAR = (
    "qwen3_vl_8b_sft",
    "qwen3_vl_30b_a3b_sft",
    "qwen25_vl_7b_sft",
    "qwen35_vl_4b_sft",
)


@pytest.fixture(scope="session")
def packed(bridge: Any) -> Callable[[str], Any]:
    """A function from a stock recipe's name to a fresh packed config of it."""
    from integration.bridge_import import stock_recipe

    from energon_pack.bridge import use_packing

    made: dict[str, Any] = {}

    def build(name: str) -> Any:
        if name not in made:
            made[name] = stock_recipe(name)
            use_packing(made[name], PackingConfig(path="data", model="processor"))
        cfg = copy.deepcopy(made[name])
        cfg.dataset.attach(cfg)
        return cfg

    return build


@pytest.fixture
def facts_of(packed, monkeypatch):
    """A function from a recipe and ``path=value`` changes to the facts; paths may be new."""
    monkeypatch.setenv("WORLD_SIZE", "8")

    def read(name: str, changes: dict[str, Any], step: str | None = "vlm_step") -> RunFacts:
        cfg = packed(name)
        for path, value in changes.items():
            *owners, last = path.split(".")
            target = cfg
            for owner in owners:
                target = getattr(target, owner)
            setattr(target, last, value() if callable(value) else value)
        return read_facts(cfg, cfg.dataset.packing_config(), step=step)

    return read


def check(facts: RunFacts) -> Report:
    return run_rules(facts, {})


def overlap_config(**flags: Any) -> Any:
    from megatron.bridge.training.comm_overlap import CommOverlapConfig

    return CommOverlapConfig(tp_comm_overlap=False, **flags)


def another_model() -> Any:
    from megatron.bridge.models import GPTModelProvider

    return GPTModelProvider(
        num_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        seq_length=8192,
        calculate_per_token_loss=True,
    )


class Case(NamedTuple):
    """A recipe and changes to it that break, or do not break, one rule."""

    code: str
    recipe: str
    changes: dict[str, Any]
    named: tuple[str, ...] = ()
    """Settings that the findings name, where neither ``NAMED`` nor the changes have them."""


FLEX = {"model.moe_token_dispatcher_type": "flex", "model.moe_flex_dispatcher_backend": "hybridep"}
HIERARCHY = {
    "model.context_parallel_size": 4,
    "model.cp_comm_type": "a2a+p2p",
    "model.hierarchical_context_parallel_sizes": [2, 2],
    "dataset.alignment": 8,
}
OVERLAPPED = {"comm_overlap": overlap_config}

_SIZES = ("model.hierarchical_context_parallel_sizes",)
NAMED: dict[str, tuple[str, ...]] = {
    "qwen2-5-context-parallel": ("model.context_parallel_size",),
    "text-only-packs": ("dataset.text_only_packs",),
    "text-only-packs-fsdp": ("dataset.text_only_packs",),
    "alignment": ("dataset.alignment",),
    "eval-context": ("dist.eval_context_parallel_size",),
    "sequence-length": ("dataset.seq_length",),
    "equal-lengths": ("model.seq_length",),
    "expert-dispatcher": ("model.moe_token_dispatcher_type",),
    "hybridep-uneven-inputs": ("model.moe_hybridep_pad_uneven_dispatch_inputs",),
    "expert-padding": ("dataset.fixed_width",),
    "hierarchy-groups": ("dist.use_decentralized_pg",),
    **dict.fromkeys(
        (
            "hierarchy-sizes-missing",
            "hierarchy-sizes-unused",
            "hierarchy-product",
            "hierarchy-heads",
        ),
        _SIZES,
    ),
}
"""Settings that a rule's findings name, where they are not the changed ones."""

BROKEN = [
    Case("model-family", DENSE, {"model": another_model}),
    Case("mtp", DENSE, {"model.mtp_num_layers": 1}),
    Case("mtp", DENSE, {"model.mtp_standalone": True}),
    Case("mtp", DENSE, {"model.mtp_hybrid_override_pattern": "*M"}),
    Case("mtp", DENSE, {"model.pipeline_model_parallel_layout": "Et*4|m|L"}),
    Case("cuda-graphs", DENSE, {"model.cuda_graph_impl": "local"}),
    Case("cuda-graphs", DENSE, {"model.cuda_graph_impl": "transformer_engine"}),
    Case("cuda-graphs", DENSE, {"model.cuda_graph_impl": "full_iteration"}),
    Case(
        "cuda-graphs",
        DENSE,
        {"model.cuda_graph_impl": "local", "model.cuda_graph_scope": ["full_iteration"]},
    ),
    Case("cuda-graphs", DENSE, {"model.enable_cuda_graph": True}),
    Case("cuda-graphs", DENSE, {"model.external_cuda_graph": True}),
    Case("cuda-graphs", EXPERTS, {"model.vision_cuda_graph_impl": "transformer_engine"}),
    Case("cuda-graphs", DENSE, {"optimizer.optimizer_cuda_graph": True}),
    Case("cuda-graphs", DENSE, {"ddp.megatron_fsdp_cuda_graph_mode": True}),
    Case("idle-graph-settings", DENSE, {"model.vision_cuda_graph_scope": ["attn"]}),
    Case("idle-graph-settings", DENSE, {"model.inference_cuda_graph_scope": "layer"}),
    Case("dist-train", DENSE, {"model.dist_train.use_dist_train": True}),
    Case("dist-train", EXPERTS, {"model.add_encoder": False}),
    Case(
        "qwen2-5-context-parallel",
        OLD,
        {"model.context_parallel_size": 2, "dataset.alignment": 4},
    ),
    Case("qwen2-5-video-time", OLD, {"dataset.video_fps": 4.0}),
    Case("text-only-packs", DENSE, OVERLAPPED),
    Case("text-only-packs", DENSE, {"ddp.overlap_grad_reduce": True}),
    Case("text-only-packs", "qwen3_vl_8b_peft", {"ddp.overlap_grad_reduce": True}),
    Case("text-only-packs-fsdp", DENSE, {"ddp.use_megatron_fsdp": True}),
    Case("pipeline", DENSE, {"model.pipeline_model_parallel_size": 2}),
    Case("pipeline", DENSE, {"model.virtual_pipeline_model_parallel_size": 2}),
    Case("pipeline", DENSE, {"model.pipeline_model_parallel_layout": "Et*4|t*4L"}),
    Case("pipeline", DENSE, {"model.num_layers_in_first_pipeline_stage": 4}),
    Case("alignment", DENSE, {"model.context_parallel_size": 4}),
    Case("alignment", DENSE, {"model.sequence_parallel": True}),
    Case("alignment", EXPERTS, {"model.tensor_model_parallel_size": 2}),
    Case("eval-alignment", DENSE, {"dist.eval_context_parallel_size": 4}),
    Case("eval-context", DENSE, {"dist.eval_context_parallel_size": 2, "dataset.alignment": 4}),
    Case(
        "sequence-length",
        DENSE,
        {
            "model.context_parallel_size": 2,
            "dataset.seq_length": 1234,
            "model.seq_length": 1234,
        },
    ),
    Case("equal-lengths", DENSE, {"dataset.seq_length": 4096}),
    Case("micro-batch", DENSE, {"train.micro_batch_size": 2}),
    Case("micro-batch", DENSE, {"validation.eval_micro_batch_size": 2}),
    Case("micro-batch", DENSE, {"dataset.micro_batch_size": 2}),
    Case(
        "global-batch",
        DENSE,
        {"train.global_batch_size": 30},
        named=("train.global_batch_size", "validation.eval_global_batch_size"),
    ),
    Case("global-batch", DENSE, {"validation.eval_global_batch_size": 2}),
    Case(
        "global-batch",
        DENSE,
        {"model.tensor_model_parallel_size": 3},
        named=("WORLD_SIZE",),
    ),
    Case("per-token-loss", DENSE, {"model.calculate_per_token_loss": False}),
    Case("average-in-collective", DENSE, {"ddp.average_in_collective": True}),
    Case(
        "packing-owners",
        DENSE,
        {
            "dataset.enable_in_batch_packing": True,
            "dataset.defer_in_batch_packing_to_step": True,
            "dataset.enable_offline_packing": True,
        },
    ),
    Case("test-split", DENSE, {"dataset.do_test": True}),
    Case("expert-overlap", EXPERTS, {"model.overlap_moe_expert_parallel_comm": True}),
    Case("expert-overlap", EXPERTS, {"ddp.delay_wgrad_compute": True}),
    Case(
        "expert-overlap",
        EXPERTS,
        {"comm_overlap": lambda: overlap_config(overlap_moe_expert_parallel_comm=True)},
        named=("comm_overlap.overlap_moe_expert_parallel_comm",),
    ),
    Case("expert-dispatcher", EXPERTS, FLEX),
    Case("expert-dispatcher", EXPERTS, {"model.moe_token_dispatcher_type": "allgather"}),
    Case("hybridep-uneven-inputs", EXPERTS, {**FLEX, "dataset.fixed_width": "never"}),
    Case("expert-padding", EXPERTS, {"dataset.fixed_width": "always"}),
    Case("expert-padding", EXPERTS, FLEX),
    Case(
        "expert-sequence-loss",
        EXPERTS,
        {"model.moe_router_load_balancing_type": ["seq_aux_loss", "global_aux_loss"]},
    ),
    Case(
        "expert-capacity",
        EXPERTS,
        {"model.moe_expert_capacity_factor": 1.0, "model.moe_token_dropping": True},
    ),
    Case(
        "kernel-multiple",
        EXPERTS,
        {**FLEX, "dataset.seq_length": 8200, "model.seq_length": 8200},
        named=("dataset.seq_length",),
    ),
    Case(
        "kernel-multiple",
        DENSE,
        {
            "mixed_precision": "bf16_with_fp8_current_scaling_mixed",
            "dataset.fixed_width": "never",
        },
        named=("dataset.fixed_width",),
    ),
    Case(
        "hierarchy-sizes-missing",
        DENSE,
        {**HIERARCHY, "model.hierarchical_context_parallel_sizes": None},
    ),
    Case("hierarchy-sizes-unused", DENSE, {**HIERARCHY, "model.cp_comm_type": "p2p"}),
    Case(
        "hierarchy-product",
        DENSE,
        {**HIERARCHY, "model.hierarchical_context_parallel_sizes": [2, 4]},
    ),
    Case(
        "hierarchy-product",
        DENSE,
        {
            **HIERARCHY,
            "model.context_parallel_size": 8,
            "model.hierarchical_context_parallel_sizes": [2, 2, 2],
        },
    ),
    Case(
        "hierarchy-heads",
        DENSE,
        {**HIERARCHY, "model.tensor_model_parallel_size": 8},
    ),
    Case("hierarchy-groups", DENSE, {**HIERARCHY, "dist.use_decentralized_pg": True}),
    Case("buffer-of-one", DENSE, {"dataset.packing_buffer_size": 1}),
    Case("inexact-resume", DENSE, {"dataset.resume_mismatch": "warn"}),
]


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: f"{case.code}:{list(case.changes)[-1]}")
def test_a_broken_config_is_found(facts_of, case):
    report = check(facts_of(case.recipe, case.changes))
    found = [finding for finding in report.findings if finding.code == case.code]
    named = case.named or NAMED.get(case.code) or tuple(case.changes)
    assert sorted(finding.setting for finding in found) == sorted(named), report.text()
    for finding in found:
        assert finding.value
        assert finding.consequence.endswith(".")
        assert finding.fix.endswith(".")
        assert finding.versions


KEPT = [
    # Stock recipes name a scope and warm-up steps beside an implementation "none".
    Case("cuda-graphs", DENSE, {"model.cuda_graph_scope": "full_iteration"}),
    Case("mtp", LINEAR, {}),
    Case("text-only-packs", DENSE, {**OVERLAPPED, "dataset.text_only_packs": "dummy_image"}),
    Case(
        "text-only-packs",
        DENSE,
        {
            **OVERLAPPED,
            "model.freeze_vision_model": True,
            "model.freeze_vision_projection": True,
        },
    ),
    Case(
        "text-only-packs",
        DENSE,
        {"comm_overlap": lambda: overlap_config(overlap_grad_reduce=False)},
    ),
    Case("eval-alignment", DENSE, {"dist.eval_context_parallel_size": 4, "dataset.alignment": 8}),
    Case("eval-context", DENSE, {**HIERARCHY, "dist.eval_context_parallel_size": 2}),
    Case("per-token-loss", DENSE, {"model.calculate_per_token_loss": False, **HIERARCHY}),
    Case("hybridep-uneven-inputs", EXPERTS, FLEX),
    Case("expert-dispatcher", EXPERTS, {**FLEX, "model.expert_model_parallel_size": 1}),
    Case("expert-sequence-loss", DENSE, {"model.moe_router_load_balancing_type": "seq_aux_loss"}),
    Case("kernel-multiple", EXPERTS, FLEX),
    Case(
        "buffer-of-one", DENSE, {"dataset.packing_buffer_size": 1, "dataset.packing_policy": "none"}
    ),
    *(Case(code, DENSE, HIERARCHY) for code in ("hierarchy-product", "hierarchy-heads")),
]


@pytest.mark.parametrize("case", KEPT, ids=lambda case: f"{case.code}:{list(case.changes)}")
def test_a_sound_config_that_looks_alike_passes(facts_of, case):
    report = check(facts_of(case.recipe, case.changes))
    assert case.code not in {finding.code for finding in report.findings}, report.text()


@pytest.mark.parametrize("name", [DENSE, EXPERTS, OLD, LINEAR, "qwen3_vl_8b_peft"])
def test_packed_stock_recipes_break_no_rule(facts_of, name):
    assert check(facts_of(name, {})).findings == ()


def test_every_rule_is_broken_by_a_test():
    elsewhere = {
        "linear-attention-kernels",
        "expert-sequence-parallel",
        "hierarchy-engine",
        "forward-step",
        "offline-lengths",
        "shared-memory",
        "worker-memory",
    }
    assert {case.code for case in BROKEN} | elsewhere == {rule.code for rule in RULES}


def test_another_forward_step_is_an_error_and_an_unknown_one_is_said(facts_of):
    assert "forward-step" in {f.code for f in check(facts_of(DENSE, {}, "gpt_step")).of("error")}
    assert "forward-step" in {rule.code for rule in check(facts_of(DENSE, {}, None)).unknown}


@pytest.mark.parametrize(
    ("installed", "breaks"), [("2.18.0", True), ("", True), ("2.19.0", False), ("2.20.2", False)]
)
def test_packed_rows_need_an_engine_with_packed_hierarchical_attention(facts_of, installed, breaks):
    facts = facts_of(DENSE, HIERARCHY)
    software = dataclasses.replace(facts.software, transformer_engine=installed)
    report = check(dataclasses.replace(facts, software=software))
    assert ("hierarchy-engine" in {f.code for f in report.of("error")}) is breaks


def test_unpacked_rows_need_an_older_engine_only(facts_of):
    facts = dataclasses.replace(facts_of(DENSE, HIERARCHY), packing=None)
    for installed, breaks in (("1.12.0", False), ("1.11.0", True)):
        software = dataclasses.replace(facts.software, transformer_engine=installed)
        report = check(dataclasses.replace(facts, software=software))
        assert ("hierarchy-engine" in {f.code for f in report.of("error")}) is breaks


def test_experts_need_sequence_parallelism_where_the_model_does_not_switch_it_on(facts_of):
    facts = facts_of(EXPERTS, {"model.tensor_model_parallel_size": 2, "dataset.alignment": 2})
    assert check(facts).of("error") == ()
    parallel = dataclasses.replace(facts.parallel, sequence_parallel=False)
    errors = check(dataclasses.replace(facts, parallel=parallel)).of("error")
    assert {finding.code for finding in errors} == {"expert-sequence-parallel"}


@pytest.mark.parametrize(
    ("kernels", "where"), [(None, "unknown"), (False, "findings"), (True, "nowhere")]
)
def test_linear_attention_without_kernels_is_an_error_where_a_gpu_could_have_them(
    facts_of, kernels, where
):
    facts = facts_of(LINEAR, {})
    software = dataclasses.replace(facts.software, linear_attention_kernels=kernels)
    report = check(dataclasses.replace(facts, software=software))
    found = [
        name
        for name in ("findings", "unknown")
        if "linear-attention-kernels" in {part.code for part in getattr(report, name)}
    ]
    assert found == ([] if where == "nowhere" else [where])


def test_more_packs_than_shared_memory_holds_are_told_with_both_sizes(facts_of):
    facts = facts_of(DENSE, {"dataset.num_workers": 8})
    machine = dataclasses.replace(facts.machine, shared_bytes=16 << 20)
    report = check(dataclasses.replace(facts, machine=machine))
    (finding,) = [finding for finding in report.findings if finding.code == "shared-memory"]
    # 8 training and 8 validation workers, 4 packs each of 8192 tokens * 44 bytes.
    assert "22.0 MiB" in finding.consequence
    assert "16.0 MiB" in finding.consequence


def test_buffers_above_the_memory_limit_are_told_with_both_sizes(facts_of):
    facts = facts_of(DENSE, {"dataset.shuffle_buffer_size": 10_000})
    machine = dataclasses.replace(
        facts.machine,
        memory_source="cgroup",
        memory_bytes=16 << 30,
        shared_bytes=1 << 40,
        sample_bytes=1 << 20,
    )
    report = check(dataclasses.replace(facts, machine=machine))
    (finding,) = [finding for finding in report.findings if finding.code == "worker-memory"]
    assert "the cgroup has 16.0 GiB" in finding.consequence


def test_what_finalize_resolves_later_is_in_the_facts(facts_of, monkeypatch):
    facts = facts_of(
        EXPERTS,
        {
            "model.tensor_model_parallel_size": 2,
            "model.context_parallel_size": 2,
            "model.calculate_per_token_loss": False,
            "validation.eval_micro_batch_size": None,
            "train.micro_batch_size": 3,
            **OVERLAPPED,
        },
    )
    assert facts.parallel.sequence_parallel
    assert facts.parallel.multiple == 4
    assert facts.parallel.data == 2
    assert facts.batch.per_token_loss
    assert facts.batch.eval_micro == 3
    assert facts.batch.overlap_grad_reduce
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not facts_of(DENSE, OVERLAPPED).batch.overlap_grad_reduce


def test_facts_do_not_change_when_megatron_bridge_has_finalised(packed, monkeypatch):
    from megatron.bridge.training.config import runtime_config_update

    from energon_pack.bridge.without_gpu import assumed_device

    monkeypatch.setenv("WORLD_SIZE", "8")
    cfg = packed(EXPERTS)
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.moe_permute_fusion = False
    cfg.dataset.alignment = 2
    before = read_facts(cfg, cfg.dataset.packing_config())
    with assumed_device():
        runtime_config_update(cfg)
    after = read_facts(cfg, cfg.dataset.packing_config())
    assert before == after


def test_the_world_size_that_is_unknown_is_said(facts_of, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE")
    monkeypatch.delenv("SLURM_NTASKS", raising=False)
    report = check(facts_of(DENSE, {}))
    assert "global-batch" in {rule.code for rule in report.unknown}
    monkeypatch.setenv("SLURM_NTASKS", "16")
    assert facts_of(DENSE, {}).parallel.data == 8
