# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A run's facts from a Megatron-Bridge ``ConfigContainer``, read through ``getattr`` alone.

They are read before Megatron-Bridge finalises the model, so what ``finalize`` would resolve is
derived here: sequence parallelism of a mixture of experts, the evaluation micro batch, per-token
loss under context parallelism, deprecated CUDA graph fields, overlap that ``comm_overlap`` brings.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from energon_pack.config import PackingConfig
from energon_pack.facts import (
    BatchFacts,
    ExpertFacts,
    FamilyName,
    ModelFacts,
    OtherPacking,
    ParallelFacts,
    RunFacts,
    Switches,
)
from energon_pack.machine import read_machine, read_software
from energon_pack.overlap import OVERLAP_PATHS
from energon_pack.settings import read_path

_FAMILIES: Final[tuple[tuple[str, FamilyName], ...]] = (
    ("Qwen25VL", "qwen2_5_vl"),
    ("Qwen35VL", "qwen3_5_vl"),
    ("Qwen3VL", "qwen3_vl"),
)
# Parts of the names of Megatron-Bridge's mixed-precision recipes, and the recipe each stands for.
_PRECISION_NAMES: Final = (
    ("mxfp8", "mxfp8"),
    ("nvfp4", "nvfp4"),
    ("subchannel", "blockwise"),
    ("fp8", "tensorwise"),
)
_DEPRECATED_GRAPHS: Final = (
    ("enable_cuda_graph", "local"),
    ("external_cuda_graph", "transformer_engine"),
)


def read_facts(cfg: Any, data: PackingConfig | None, *, step: str | None = None) -> RunFacts:
    """Read the facts of one run.

    ``data`` is our dataset, None for a config that Megatron-Bridge packs itself; ``step`` is the
    name of the launcher's forward step where it is known. The world size is that of torchrun or of
    Slurm, as Megatron-Bridge takes it.
    """
    reader = _Reader(cfg)
    family = _family(cfg.model)
    parallel = _parallel(reader)
    return RunFacts(
        model=_model(reader, family),
        parallel=parallel,
        batch=_batch(reader, family, parallel, step),
        experts=_experts(reader),
        other_packing=_other_packing(reader),
        software=read_software(),
        machine=read_machine(data, family),
        test_split=bool(reader.get("dataset.do_test", False)),
        packing=data,
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    cfg: Any

    def get(self, path: str, default: Any = None) -> Any:
        """Return a value; a model's may also stand on ``cfg.model.transformer``."""
        value = read_path(self.cfg, path)
        if value is None and path.startswith("model."):
            value = read_path(self.cfg, path.replace("model.", "model.transformer.", 1))
        return default if value is None else value

    def on(self, paths: Iterable[str]) -> Switches:
        """Return those of ``paths`` that hold a true value, as ``path=value``."""
        values = ((path, self.get(path)) for path in paths)
        return tuple(f"{path}={_say(value)}" for path, value in values if value)


def _say(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_say, value))
    return str(getattr(value, "name", value))


def _family(model: Any) -> FamilyName:
    names = [kind.__name__ for kind in type(model).__mro__]
    for prefix, family in _FAMILIES:
        if any(name.startswith(prefix) for name in names):
            return family
    return "other"


def _parallel(reader: _Reader) -> ParallelFacts:
    tensor = reader.get("model.tensor_model_parallel_size", 1)
    context = reader.get("model.context_parallel_size", 1)
    eval_context = reader.get("dist.eval_context_parallel_size")
    comm = reader.get("model.cp_comm_type", ())
    pipeline = reader.get("model.pipeline_model_parallel_size", 1)
    layout = ["virtual_pipeline_model_parallel_size", "pipeline_model_parallel_layout"]
    layout += ["num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"]
    world = os.environ.get("WORLD_SIZE") or os.environ.get("SLURM_NTASKS")
    node = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("SLURM_NTASKS_PER_NODE")
    return ParallelFacts(
        tensor=tensor,
        context=context,
        pipeline=pipeline,
        expert=reader.get("model.expert_model_parallel_size", 1),
        sequence_parallel=_sequence_parallel(reader, tensor),
        eval_context=None if eval_context == context else eval_context,
        world_size=int(world) if world else None,
        ranks_per_node=int(node or 1),
        pipeline_switches=(
            *((f"model.pipeline_model_parallel_size={pipeline}",) if pipeline > 1 else ()),
            *reader.on(f"model.{name}" for name in layout),
        ),
        context_comm=tuple(dict.fromkeys([comm] if isinstance(comm, str) else comm)),
        hierarchical_sizes=tuple(reader.get("model.hierarchical_context_parallel_sizes", ())),
        decentralized_groups=bool(reader.get("dist.use_decentralized_pg", False)),
    )


def _sequence_parallel(reader: _Reader, tensor: int) -> bool:
    """Qwen3-VL's mixtures of experts switch it on in ``finalize`` when TP > 1."""
    if tensor == 1:
        return False
    kinds = (kind.__name__ for kind in type(reader.cfg.model).__mro__)
    resolved = any(name.startswith("Qwen3VLMoE") for name in kinds)
    return resolved or bool(reader.get("model.sequence_parallel", False))


def _model(reader: _Reader, family: FamilyName) -> ModelFacts:
    graphs, idle = _graphs(reader)
    return ModelFacts(
        family=family,
        kind=type(reader.cfg.model).__name__,
        seq_length=reader.get("model.seq_length", 0),
        kv_heads=reader.get("model.num_query_groups"),
        vision_trained=_vision_trained(reader),
        mtp=_mtp(reader),
        graphs=graphs,
        idle_graphs=idle,
        dist_train=_dist_train(reader),
        fp8=_low_precision(reader),
    )


def _mtp(reader: _Reader) -> Switches:
    names = ["mtp_num_layers", "mtp_enabled", "mtp_hybrid_override_pattern", "mtp_standalone"]
    found = reader.on(f"model.{name}" for name in names)
    layout = reader.get("model.pipeline_model_parallel_layout", "")
    if isinstance(layout, str) and "m" in layout:
        found += (f"model.pipeline_model_parallel_layout={layout}",)
    return found


def _graphs(reader: _Reader) -> tuple[Switches, Switches]:
    """Return the graphs that are on, and settings that stand beside an implementation ``none``."""
    on: list[str] = []
    implementation = reader.get("model.cuda_graph_impl", "none")
    if implementation != "none":
        on.append(f"model.cuda_graph_impl={implementation}")
    for name, meaning in _DEPRECATED_GRAPHS:
        if reader.get(f"model.{name}", False):
            on.append(f"model.{name}=True (cuda_graph_impl {meaning})")
    if implementation == "local":
        scopes = ["model.cuda_graph_scope", "model.cuda_graph_modules"]
        on += [s for s in reader.on(scopes) if "full_iteration" in s]
    vision = reader.get("model.vision_cuda_graph_impl", "none")
    idle: Switches = ()
    if vision != "none":
        on.append(f"model.vision_cuda_graph_impl={vision}")
    else:
        beside = ["vision_cuda_graph_scope", "max_vision_cuda_graph_seq_length"]
        idle = reader.on(f"model.{name}" for name in beside)
    inference = reader.on(["model.inference_cuda_graph_scope"])
    idle += tuple(s for s in inference if not s.endswith("=none"))
    on += reader.on(["optimizer.optimizer_cuda_graph", "ddp.megatron_fsdp_cuda_graph_mode"])
    return tuple(on), idle


def _dist_train(reader: _Reader) -> Switches:
    found = reader.on(["model.dist_train.use_dist_train"])
    for name in ("add_encoder", "add_decoder"):
        if read_path(reader.cfg, f"model.{name}", default=True) is False:
            found += (f"model.{name}=False",)
    if any("MIMO" in kind.__name__ for kind in type(reader.cfg.model).__mro__):
        found += (f"model={type(reader.cfg.model).__name__}",)
    return found


def _vision_trained(reader: _Reader) -> bool:
    """Adapters sit on vision layers too, unless every target names the language model."""
    peft = reader.get("peft")
    if peft is not None:
        targets = getattr(peft, "target_modules", None) or [""]
        return not all("language_model" in target for target in targets)
    names = ("freeze_vision_model", "freeze_vision_projection")
    return not all(reader.get(f"model.{name}", False) for name in names)


def _low_precision(reader: _Reader) -> str:
    recipe = reader.get("mixed_precision", "")
    if isinstance(recipe, str):
        return next((meaning for part, meaning in _PRECISION_NAMES if part in recipe), "")
    if getattr(recipe, "fp4", None):
        return str(getattr(recipe, "fp4_recipe", "nvfp4"))
    return str(recipe.fp8_recipe) if getattr(recipe, "fp8", None) else ""


def _batch(
    reader: _Reader, family: FamilyName, parallel: ParallelFacts, step: str | None
) -> BatchFacts:
    micro = reader.get("train.micro_batch_size", 1)
    global_batch = reader.get("train.global_batch_size")
    slices_context = family in ("qwen3_vl", "qwen3_5_vl") and parallel.context > 1
    return BatchFacts(
        micro=micro,
        eval_micro=reader.get("validation.eval_micro_batch_size", micro),
        dataset_micro=reader.get("dataset.micro_batch_size"),
        global_batch=global_batch,
        eval_global=reader.get("validation.eval_global_batch_size", global_batch),
        per_token_loss=bool(reader.get("model.calculate_per_token_loss", False)) or slices_context,
        average_in_collective=bool(reader.get("ddp.average_in_collective", False)),
        overlap_grad_reduce=_overlap_grad_reduce(reader, parallel),
        megatron_fsdp=bool(reader.on(["dist.use_megatron_fsdp", "ddp.use_megatron_fsdp"])),
        step=step,
    )


def _overlap_grad_reduce(reader: _Reader, parallel: ParallelFacts) -> bool:
    comm = reader.get("comm_overlap")
    if comm is None or not reader.get("ddp.use_distributed_optimizer", False):
        return bool(reader.get("ddp.overlap_grad_reduce", False))
    # comm_overlap.finalize copies its fields to this one, and setup reads the copy.
    asked = (getattr(comm, "user_comm_overlap_cfg", comm) or comm).overlap_grad_reduce
    return parallel.data != 1 if asked is None else bool(asked)


def _experts(reader: _Reader) -> ExpertFacts:
    count = reader.get("model.num_moe_experts", 0)
    balancing = reader.get("model.moe_router_load_balancing_type", ())
    names = ["moe_expert_capacity_factor", "moe_expert_rank_capacity_factor", "moe_token_dropping"]
    names.append("moe_pad_expert_input_to_capacity")
    pads = ["moe_hybridep_pad_uneven_dispatch_inputs", "moe_hybridep_pad_variable_tokens"]
    return ExpertFacts(
        count=count,
        dispatcher=reader.get("model.moe_token_dispatcher_type", ""),
        flex_backend=reader.get("model.moe_flex_dispatcher_backend", ""),
        pads_uneven_inputs=bool(reader.on(f"model.{name}" for name in pads)),
        balancing=(balancing,) if isinstance(balancing, str) else tuple(balancing),
        capacity=reader.on(f"model.{name}" for name in names),
        overlap=reader.on(OVERLAP_PATHS),
    )


def _other_packing(reader: _Reader) -> OtherPacking:
    owners = reader.on(["dataset.enable_offline_packing", "dataset.enable_in_batch_packing"])
    if reader.get("dataset.enable_in_batch_packing", False):
        owners += reader.on(["dataset.defer_in_batch_packing_to_step"])
    specs = "dataset.offline_packing_specs"
    return OtherPacking(
        owners=owners,
        offline_size=reader.get(f"{specs}.packed_sequence_size"),
        offline_multiple=reader.get(f"{specs}.pad_seq_to_mult"),
    )
