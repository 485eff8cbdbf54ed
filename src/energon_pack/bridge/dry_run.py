# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Everything of a run but its model: its config is checked, its first packs are read.

1. The guard, and Megatron-Bridge's own validation, on the config with all overrides.
2. The plan of the topology, and what an epoch of the data comes to.
3. The first packs of data-parallel rank 0.
"""

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from megatron.bridge.training.config import runtime_config_update
from megatron.bridge.utils.common_utils import get_world_size_safe
from megatron.energon import WorkerConfig

from energon_pack.bridge.without_gpu import assumed_device
from energon_pack.config import PackingConfig
from energon_pack.guard import run_rules
from energon_pack.lengths import measure_lengths
from energon_pack.loader import build_loader
from energon_pack.plan import Topology, make_plan, plan_epochs
from energon_pack.read_facts import read_facts
from energon_pack.stats import PackStats


def dry_run(cfg: Any, *, packs: int = 4) -> Iterator[str]:
    """Yield the lines of the report as they become known; ``use_packing`` has changed ``cfg``."""
    yield run_rules(
        read_facts(cfg, cfg.dataset.packing_config(), step="vlm_step"), cfg.dataset.skip_rules
    ).text()
    yield _validate(cfg)
    load = cfg.checkpoint.load
    if not cfg.checkpoint.pretrained_checkpoint and not (load and Path(load).exists()):
        yield "finetune starts from weights only: set checkpoint.pretrained_checkpoint"
    topology = topology_of(cfg)
    yield from _plan(topology)
    config = cfg.dataset.resolved_config()
    yield from _epoch(topology, config)
    yield from _first_packs(config, topology.data, packs)


def topology_of(cfg: Any) -> Topology:
    """Return the parallel sizes and the batch of a config."""
    model = cfg.model
    return Topology(
        tensor=model.tensor_model_parallel_size,
        context=model.context_parallel_size,
        expert=model.expert_model_parallel_size,
        pipeline=model.pipeline_model_parallel_size,
        sequence_parallel=model.sequence_parallel,
        eval_context=cfg.dist.eval_context_parallel_size,
        world_size=get_world_size_safe(),
        seq_length=model.seq_length,
        global_batch=cfg.train.global_batch_size,
    )


def _validate(cfg: Any) -> str:
    try:
        with assumed_device():
            runtime_config_update(cfg)
    except (AssertionError, ImportError, RuntimeError, ValueError) as error:
        cfg.dataset.finalize()
        return f"Megatron-Bridge's own validation stopped here: {error}"
    return "Megatron-Bridge's own validation passed"


def _plan(topology: Topology) -> Iterator[str]:
    plan = make_plan(topology)
    yield f"alignment {plan.alignment} tokens: {'; '.join(plan.derivation)}"
    yield (
        f"a step: {topology.global_batch} packs of up to {topology.seq_length} tokens, "
        f"{plan.packs_per_rank} on each of {plan.data_parallel} data-parallel ranks, "
        f"{plan.slots_per_step} token slots"
    )


def _epoch(topology: Topology, config: PackingConfig) -> Iterator[str]:
    lengths = measure_lengths(config)
    epoch = plan_epochs(topology, samples=lengths.samples, mean_tokens=lengths.mean_tokens)
    yield (
        f"an epoch: {lengths.samples} conversations of {lengths.mean_tokens:.0f} tokens (mean of "
        f"{lengths.measured} measured), so about {epoch.packs} packs and "
        f"train.train_iters={epoch.train_iters}"
    )
    yield (
        f"a step trains {epoch.conversations_per_step:.0f} conversations, where unpacked it trains "
        f"{topology.global_batch}: judge the learning rate by that number"
    )


def _first_packs(config: PackingConfig, ranks: int, packs: int) -> Iterator[str]:
    workers = WorkerConfig(
        rank=0, world_size=ranks, num_workers=config.num_workers, seed_offset=config.seed
    )
    stats, start = PackStats(), time.perf_counter()
    loader = build_loader(config.unmonitored(), "train", worker_config=workers)
    for pack in islice(loader, packs):
        stats.add(pack["pack_info"])
    yield (
        f"the first {stats.packs} packs of rank 0: {stats.fill:.1%} full, "
        f"{stats.samples_per_pack:.1f} conversations each, {sum(stats.skipped.values())} samples "
        f"lost, in {time.perf_counter() - start:.1f} s"
    )
