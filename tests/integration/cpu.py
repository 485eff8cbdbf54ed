# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Megatron-Bridge's training loop on a CPU: device calls redirected, a tiny model in its place.

Real: the config and its validation, the data iterators, ``vlm_step``, the schedule, the masked
loss, gradient reduction, optimizer and scheduler, the loop with its evaluation, callbacks, logging
and exit, and the loader's checkpoint files. Stand-ins: the model, which is a tiny Qwen3-VL of
transformers, and the writing of its weights.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from megatron.bridge.data.loaders import setup_data_iterators
from megatron.bridge.data.utils import get_dataset_provider
from megatron.bridge.training.callbacks import normalize_callbacks
from megatron.bridge.training.checkpointing import (
    maybe_load_dataloader_state,
    maybe_save_dataloader_state,
)
from megatron.bridge.training.config import runtime_config_update
from megatron.bridge.training.initialize import init_rerun_state
from megatron.bridge.training.optim import setup_optimizer
from megatron.bridge.training.setup import (
    _bind_dataset_provider_context,
    _update_model_config_funcs,
)
from megatron.bridge.training.state import GlobalState
from megatron.bridge.training.train import train
from megatron.bridge.training.vlm_step import forward_step
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel
from megatron.core.enums import ModelType
from megatron.core.num_microbatches_calculator import (
    destroy_num_microbatches_calculator,
    init_num_microbatches_calculator,
)
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.rerun_state_machine import destroy_rerun_state_machine
from megatron.core.transformer.module import MegatronModule
from torch.overrides import TorchFunctionMode

from energon_pack.bridge import use_packing
from energon_pack.config import PackingConfig
from energon_pack.demo.train import block_diagonal_mask, tiny_model
from energon_pack.family import Family

# What a stock recipe has for GPUs only; clipping asserts that gradients are CUDA tensors.
_FOR_CPU = (
    "model.tensor_model_parallel_size=1",
    "model.bf16=False",
    "model.params_dtype=torch.float32",
    "mixed_precision=null",
    "ddp.use_distributed_optimizer=False",
    "optimizer.use_distributed_optimizer=False",
    "optimizer.bf16=False",
    "optimizer.clip_grad=0.0",
    "optimizer.lr=0.001",
    "scheduler.lr_warmup_iters=1",
    "train.manual_gc=False",
    "train.global_batch_size=2",
    "logger.log_interval=1",
)


def cpu_config(cfg: Any, data: PackingConfig, *overrides: str) -> Any:
    """Put packing and what a CPU needs into a stock recipe's config."""
    use_packing(cfg, data, [*_FOR_CPU, *overrides])
    return cfg


class _OnCpu(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            return args[0]
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs = {**kwargs, "device": "cpu"}
        return func(*args, **kwargs)


@contextlib.contextmanager
def on_cpu() -> Iterator[None]:
    """Answer every call for a CUDA device with the CPU."""
    with (
        _OnCpu(),
        mock.patch.object(torch.cuda, "synchronize"),
        mock.patch.object(torch.cuda, "current_stream"),
        mock.patch.object(torch.cuda, "current_device", return_value=torch.device("cpu")),
    ):
        yield


@contextlib.contextmanager
def process_groups(
    folder: Path, *, rank: int = 0, world: int = 1, tensor: int = 1
) -> Iterator[ProcessGroupCollection]:
    """Make gloo groups and Megatron Core's parallel state; yield the collection of groups."""
    os.environ["WORLD_SIZE"] = str(world)
    store = dist.FileStore(str(folder / f"store-{world}-{tensor}"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    try:
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=tensor)
        yield ProcessGroupCollection.use_mpu_process_groups()
    finally:
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()
        del os.environ["WORLD_SIZE"]


class TinyQwen(MegatronModule):
    """Takes what ``vlm_step`` gives to ``Qwen3VLModel`` and returns the loss of each token."""

    def __init__(self, config: Any, family: Family, groups: ProcessGroupCollection) -> None:
        super().__init__(config)
        self.model = tiny_model(family)
        self.pg_collection = groups
        self.model_type = ModelType.encoder_or_decoder

    def set_input_tensor(self, tensor: Any) -> None:
        """Have no stage before this one."""

    def forward(
        self,
        input_ids,
        position_ids,
        attention_mask,
        labels,
        loss_mask,
        packed_seq_params,
        **visual,
    ):
        """Return (1, T) losses; those of untrained tokens are 0, since they are masked anyway."""
        assert attention_mask is None
        trained = loss_mask[0].nonzero()[:, 0]
        logits = self.model(
            input_ids=input_ids,
            attention_mask=block_diagonal_mask(packed_seq_params.cu_seqlens_q),
            position_ids=position_ids,
            logits_to_keep=trained,
            use_cache=False,
            **visual,
        ).logits
        losses = torch.nn.functional.cross_entropy(logits[0], labels[0, trained], reduction="none")
        return torch.zeros(loss_mask.shape).index_put((torch.tensor([0]), trained), losses)


class LoaderCheckpoints:
    """A checkpoint manager that writes the loader's state as Megatron-Bridge's own does."""

    def __init__(self, folder: Path, groups: ProcessGroupCollection) -> None:
        self._folder = folder
        self._groups = groups
        self.saved: list[int] = []

    def save(self, ctx: Any, _: Any) -> None:
        """Write one file a data-parallel rank."""
        step = ctx.state.train_state.step
        maybe_save_dataloader_state(
            ctx.model, ctx.train_data_iterator, step, str(self._folder), pg_collection=self._groups
        )
        self.saved.append(step)

    def finalize_async_saves(self, *_: Any, **__: Any) -> None:
        """Have none."""


@dataclass
class CpuRun:
    """A run that is set up, ready for ``train``."""

    cfg: Any
    groups: ProcessGroupCollection
    state: GlobalState
    train_iterator: Any
    valid_iterator: Any
    checkpoints: LoaderCheckpoints

    def restore(self, step: int, folder: Path) -> None:
        """Put the loader where it was when ``step`` was saved."""
        self.state.train_state.step = step
        maybe_load_dataloader_state(
            self.train_iterator, step, str(folder), pg_collection=self.groups
        )

    def train(self, family: Family, callbacks: Sequence[Any]) -> None:
        """Run Megatron-Bridge's loop to ``train.train_iters``."""
        cfg = self.cfg
        model = TinyQwen(cfg.model, family, self.groups)
        chunks = [DistributedDataParallel(cfg.model, cfg.ddp, model, pg_collection=self.groups)]
        optimizer, scheduler = setup_optimizer(cfg.optimizer, cfg.scheduler, chunks)
        _update_model_config_funcs(chunks, cfg.model, cfg.ddp, optimizer, pg_collection=self.groups)
        cfg.model.timers = cfg.optimizer.timers = self.state.timers
        train(
            forward_step,
            chunks,
            optimizer,
            scheduler,
            self.train_iterator,
            self.valid_iterator,
            self.state,
            self.checkpoints,
            self.groups,
            callback_manager=normalize_callbacks(list(callbacks)),
        )


@contextlib.contextmanager
def cpu_run(cfg: Any, groups: ProcessGroupCollection, checkpoints: Path) -> Iterator[CpuRun]:
    """Validate a config and set up its state and data iterators with Megatron-Bridge's own code."""
    runtime_config_update(cfg)
    state = GlobalState()
    state.cfg = cfg
    init_num_microbatches_calculator(
        0, None, cfg.train.global_batch_size, cfg.train.micro_batch_size, groups.dp.size()
    )
    init_rerun_state(cfg.rerun_state_machine)
    try:
        train_iterator, valid_iterator, _ = setup_data_iterators(
            cfg=cfg,
            train_state=state.train_state,
            model_length=1,
            train_valid_test_datasets_provider=_bind_dataset_provider_context(
                get_dataset_provider(cfg.dataset), tokenizer=None, pg_collection=groups
            ),
            dp_group=groups.dp,
        )
        yield CpuRun(
            cfg,
            groups,
            state,
            train_iterator,
            valid_iterator,
            LoaderCheckpoints(checkpoints, groups),
        )
    finally:
        destroy_num_microbatches_calculator()
        destroy_rerun_state_machine()
