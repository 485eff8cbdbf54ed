# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Megatron-Bridge's own training loop runs on packs: ten steps, evaluation, checkpoint, resume."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from integration.processes import run_ranks

STEPS, SAVED_AT = 10, 7


@pytest.fixture(scope="module")
def data(demo_config):
    return dataclasses.replace(demo_config, seq_length=1024, num_workers=1)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """What a run of ten steps left behind."""
    return run(data, tmp_path_factory.mktemp("run"))


def run(data, folder, *resume_from):
    run_ranks("train", 1, folder, data, *resume_from)
    return SimpleNamespace(folder=folder, **torch.load(folder / "result.pt"))


def test_ten_optimizer_steps_lower_the_loss(trained):
    assert len(trained.losses) == STEPS
    assert trained.losses[-1] < trained.losses[0] - 0.5


def test_every_micro_batch_is_one_pack(trained):
    assert len(trained.train_keys) == STEPS * 2


def test_each_evaluation_sees_the_same_packs(trained):
    assert len(trained.valid_keys) == 4
    assert trained.valid_keys[:2] == trained.valid_keys[2:]


def test_the_loader_is_saved_at_the_interval_and_at_the_end(trained):
    assert trained.saved == [SAVED_AT, STEPS]


def test_a_resumed_run_trains_the_same_packs(trained, data, tmp_path):
    resumed = run(data, tmp_path, trained.folder)
    assert resumed.train_keys == trained.train_keys[SAVED_AT * 2 :]


def test_tensorboard_has_the_figures_of_the_packs_at_every_step(trained):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(trained.folder / "tensorboard")).Reload()
    tags = [tag for tag in events.Tags()["scalars"] if tag.startswith("packing/")]
    assert len(tags) >= 12
    fill = events.Scalars("packing/fill")
    assert [event.step for event in fill] == list(range(1, STEPS + 1))
    assert all(0.9 < event.value <= 1 for event in fill)
    assert events.Scalars("packing/samples_per_pack")[0].value == pytest.approx(
        sum(len(keys) for keys in trained.train_keys[:2]) / 2
    )
    assert events.Scalars("packing/worker_bytes_max")[-1].value > 100 << 20
    assert events.Scalars("packing/skipped/overlong")[-1].value > 0
    assert all(event.value > 0 for event in events.Scalars("packing/tokens_per_second"))


def test_weights_and_biases_has_the_last_figures(trained):
    assert 0.9 < trained.wandb["packing/fill"] <= 1
    assert trained.wandb["packing/skipped/overlong"] > 0


def test_a_memory_limit_on_one_rank_stops_all_in_order_with_a_checkpoint(data, tmp_path):
    run_ranks("train_above_a_limit", 2, tmp_path, data)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert first == second
    code, (step,), reason = first
    assert code == 0
    assert 1 <= step < 50
    assert reason.startswith("rank 1: ")
    assert (tmp_path / "0.log").read_text().splitlines()[-1] == f"stopped in order: {reason}"
    states = tmp_path / "energon" / f"iter_{step:07}"
    assert len(list(states.glob("train_dataloader_dprank*.pt"))) == 2
