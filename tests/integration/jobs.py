# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What ranks do in processes of their own; each leaves a file with what it came to."""

import dataclasses
import hashlib
import logging
import os
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from integration.bridge_import import stock_recipe
from integration.cpu import cpu_config, cpu_run, on_cpu, process_groups
from megatron.bridge.training.callbacks import Callback
from megatron.bridge.training.checkpointing import (
    maybe_load_dataloader_state,
    maybe_save_dataloader_state,
)

from energon_pack.bridge import PackingCallback
from energon_pack.bridge.figures import IntervalFigures, reduce_figures
from energon_pack.bridge.replicas import KeyTrace, ReplicaMismatchError, check_replicas
from energon_pack.config import PackingConfig
from energon_pack.errors import UserError
from energon_pack.family import load_family

STEPS, SAVED_AT, MORE = 10, 7, 20


def train(
    rank: int, world: int, folder: Path, data: PackingConfig, resume_from: Path | None = None
) -> None:
    """Train ten steps, saving at the seventh, or go on from a run's seventh step."""
    watch = _Watch()
    with on_cpu(), process_groups(folder, rank=rank, world=world) as groups:
        cfg = cpu_config(
            stock_recipe("qwen3_vl_8b_sft"),
            data,
            f"train.train_iters={STEPS}",
            "validation.eval_interval=5",
            "validation.eval_iters=1",
            f"checkpoint.save={folder}",
            f"checkpoint.save_interval={SAVED_AT}",
            f"logger.tensorboard_dir={folder / 'tensorboard'}",
            "logger.wandb_project=packs",
            "logger.wandb_exp_name=train",
            f"logger.wandb_save_dir={folder}",
        )
        os.environ["WANDB_MODE"] = "offline"
        with cpu_run(cfg, groups, folder / "energon") as run:
            if resume_from:
                run.restore(SAVED_AT, resume_from / "energon")
            run.train(load_family(data.model), [PackingCallback(), watch])
            summary = dict(run.state.wandb_logger.run.summary)
            run.state.wandb_logger.finish()
            result = {**vars(watch), "saved": run.checkpoints.saved, "wandb": summary}
            torch.save(result, folder / "result.pt")


class _Watch(Callback):
    def __init__(self):
        self.train_keys = []
        self.valid_keys = []
        self.losses = []

    def on_train_start(self, context):
        provider = context.state.cfg.dataset
        provider.train_stream.tap(lambda pack: self.train_keys.append(pack["__keys__"]))
        provider.valid_stream.tap(lambda pack: self.valid_keys.append(pack["__keys__"]))

    def on_train_step_end(self, context):
        self.losses.append(context.loss_dict["lm loss"].item())


def train_above_a_limit(rank: int, world: int, folder: Path, data: PackingConfig) -> None:
    """Train as one of two ranks; only the second has a limit that its workers are above."""
    limit = "1MiB" if rank == 1 else "1000GiB"
    monitor = dataclasses.replace(data.monitor, interval_s=0.1, fail_worker=limit)
    callback = PackingCallback()
    with on_cpu(), process_groups(folder, rank=rank, world=world) as groups:
        cfg = cpu_config(
            stock_recipe("qwen3_vl_8b_sft"),
            dataclasses.replace(data, monitor=monitor),
            "train.train_iters=50",
            "validation.eval_iters=0",
            f"checkpoint.save={folder}",
        )
        with cpu_run(cfg, groups, folder / "energon") as run:
            try:
                run.train(load_family(data.model), [callback])
            except SystemExit as stop:
                logging.getLogger().addHandler(logging.FileHandler(folder / f"{rank}.log"))
                callback._leave()
                result = (stop.code, run.checkpoints.saved, callback.stop_reason)
                torch.save(result, folder / f"{rank}.pt")


def read(
    rank: int,
    world: int,
    folder: Path,
    data: PackingConfig,
    tensor: int,
    elsewhere: Path | None = None,
) -> None:
    """Read 7 packs, save, read 20; then restore into a new loader and read 20 again.

    With ``elsewhere``, try to restore a state that a run of another size has left there.
    """
    result: dict[str, Any] = {}
    with on_cpu(), process_groups(folder, rank=rank, world=world, tensor=tensor) as groups:
        cfg = cpu_config(
            stock_recipe("qwen3_vl_8b_sft"), data, f"model.tensor_model_parallel_size={tensor}"
        )
        with cpu_run(cfg, groups, folder) as run:
            stream = run.train_iterator.iterable
            packs = list(islice(stream, SAVED_AT))
            result["keys"] = [pack["__keys__"] for pack in packs]
            result["totals"] = _totals(packs, groups)
            maybe_save_dataloader_state(
                None, run.train_iterator, SAVED_AT, str(folder), pg_collection=groups
            )
            result["more"] = [_digest(pack) for pack in islice(stream, MORE)]
            result["replicas"] = _replica_error(stream.trace, groups, rank)
        dist.barrier()
        with cpu_run(cfg, groups, folder) as run:
            _load(run, folder)
            result["again"] = [_digest(p) for p in islice(run.train_iterator.iterable, MORE)]
        if elsewhere:
            with cpu_run(cfg, groups, folder) as run:
                try:
                    _load(run, elsewhere)
                except UserError as error:
                    result["refusal"] = str(error)
    torch.save(result, folder / f"{rank}.pt")


def _totals(packs: list[dict[str, Any]], groups: Any) -> dict[str, float]:
    figures = IntervalFigures()
    for pack in packs:
        figures.add(pack["pack_info"])
    return reduce_figures(figures, groups.dp)[0]


def _load(run: Any, folder: Path) -> None:
    maybe_load_dataloader_state(run.train_iterator, SAVED_AT, str(folder), pg_collection=run.groups)


def _replica_error(trace: KeyTrace, groups: Any, rank: int) -> str | None:
    """Compare as it is, then with one rank's last pack exchanged for another."""
    check_replicas(trace, [groups.tp, groups.cp])
    other = KeyTrace()
    for _, keys in list(trace.recent)[:-1]:
        other.add(keys)
    other.add([f"only rank {rank} has this"])
    try:
        check_replicas(other, [groups.tp, groups.cp])
    except ReplicaMismatchError as error:
        return str(error)
    return None


def _digest(pack: dict[str, Any]) -> str:
    """Hash every tensor of a pack, the visual ones too, and its keys."""
    found = hashlib.sha256(repr(pack["__keys__"]).encode())
    tensors = pack | (vars(pack["visual_inputs"]) if pack["visual_inputs"] else {})
    for name, value in sorted(tensors.items()):
        if isinstance(value, torch.Tensor):
            found.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
            found.update(value.numpy().tobytes())
    return found.hexdigest()
