# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Megatron-Bridge's own training loop runs on packs: ten steps, evaluation, checkpoint, resume."""

import ast
import dataclasses
from collections import Counter

import pytest
from torch.multiprocessing import start_processes

from energon_pack.family import load_family

STEPS, SAVED_AT = 10, 7


@dataclasses.dataclass
class Trained:
    """What one run left behind."""

    folder: object
    train_keys: list
    valid_keys: list
    losses: list
    saved: list


@pytest.fixture(scope="module")
def data(demo_config):
    return dataclasses.replace(demo_config, seq_length=1024, num_workers=1)


@pytest.fixture(scope="module")
def trained(bridge, data, tmp_path_factory):
    """A run of ten steps, saved at step 7."""
    return run(data, tmp_path_factory.mktemp("run"))


def run(data, folder, *, resume_from=None):
    from integration.bridge_import import stock_recipe
    from integration.cpu import cpu_config, cpu_run, on_cpu, process_groups
    from megatron.bridge.training.callbacks import Callback

    from energon_pack.bridge import PackingCallback

    result = Trained(folder, [], [], [], [])

    class Watch(Callback):
        def on_train_start(self, context):
            provider = context.state.cfg.dataset
            provider.train_stream.tap(lambda pack: result.train_keys.append(pack["__keys__"]))
            provider.valid_stream.tap(lambda pack: result.valid_keys.append(pack["__keys__"]))

        def on_train_step_end(self, context):
            result.losses.append(context.loss_dict["lm loss"].item())

    with on_cpu(), process_groups(folder) as groups:
        cfg = cpu_config(
            stock_recipe("qwen3_vl_8b_sft"),
            data,
            f"train.train_iters={STEPS}",
            "validation.eval_interval=5",
            "validation.eval_iters=1",
            f"checkpoint.save={folder / 'checkpoints'}",
            f"checkpoint.save_interval={SAVED_AT}",
            f"logger.tensorboard_dir={folder / 'tensorboard'}",
        )
        with cpu_run(cfg, groups, folder / "checkpoints" / "energon") as here:
            if resume_from:
                here.restore(SAVED_AT, resume_from.folder / "checkpoints" / "energon")
            here.train(load_family(data.model), [PackingCallback(), Watch()])
            result.saved = here.checkpoints.saved
    return result


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
    resumed = run(data, tmp_path, resume_from=trained)
    assert resumed.train_keys == trained.train_keys[SAVED_AT * 2 :]


def test_tensorboard_has_the_figures_of_the_packs_at_every_step(trained):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(trained.folder / "tensorboard")).Reload()
    tags = Counter(tag.partition("/")[0] for tag in events.Tags()["scalars"])
    assert tags["packing"] >= 12
    fill = events.Scalars("packing/fill")
    assert [event.step for event in fill] == list(range(1, STEPS + 1))
    assert all(0.9 < event.value <= 1 for event in fill)
    assert events.Scalars("packing/samples_per_pack")[0].value == pytest.approx(
        sum(len(keys) for keys in trained.train_keys[:2]) / 2
    )
    assert events.Scalars("packing/worker_bytes_max")[-1].value > 100 << 20
    assert events.Scalars("packing/skipped/overlong")[-1].value > 0
    assert all(event.value > 0 for event in events.Scalars("packing/tokens_per_second"))


def _stopped_rank(rank, data, folder):
    """Train as one of two ranks; only the second has a limit that its workers are above."""
    from integration.bridge_import import stock_recipe
    from integration.cpu import cpu_config, cpu_run, on_cpu, process_groups

    from energon_pack.bridge import PackingCallback

    limit = "1MiB" if rank == 1 else "1000GiB"
    monitor = dataclasses.replace(data.monitor, interval_s=0.1, fail_worker=limit)
    callback = PackingCallback()
    with on_cpu(), process_groups(folder, rank=rank, world=2) as groups:
        cfg = cpu_config(
            stock_recipe("qwen3_vl_8b_sft"),
            dataclasses.replace(data, monitor=monitor),
            "train.train_iters=50",
            "validation.eval_iters=0",
            f"checkpoint.save={folder}",
        )
        with cpu_run(cfg, groups, folder / "energon") as here:
            try:
                here.train(load_family(data.model), [callback])
            except SystemExit as stop:
                result = (stop.code, here.checkpoints.saved, callback.stop_reason)
                (folder / f"{rank}.txt").write_text(repr(result))


def test_a_memory_limit_on_one_rank_stops_all_in_order_with_a_checkpoint(bridge, data, tmp_path):
    start_processes(_stopped_rank, args=(data, tmp_path), nprocs=2, start_method="fork")
    first, second = ((tmp_path / f"{rank}.txt").read_text() for rank in range(2))
    assert first == second
    code, (step,), reason = ast.literal_eval(first)
    assert code == 0
    assert 1 <= step < 50
    assert reason.startswith("rank 1: ")
    states = tmp_path / "energon" / f"iter_{step:07}"
    assert len(list(states.glob("train_dataloader_dprank*.pt"))) == 2
