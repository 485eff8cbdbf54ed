# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import logging

import pytest
from megatron.energon import WorkerConfig
from megatron.energon.savable_loader import SavableDataLoaderState, SavableDatasetCheckpoint

from energon_pack.config import PackingConfig
from energon_pack.encoder import PackingTaskEncoder
from energon_pack.loader import build_dataset
from energon_pack.resume import ResumeError, StateGuard, check_fingerprint, fingerprint


@pytest.fixture(scope="module")
def encoder(demo_config):
    return PackingTaskEncoder(demo_config)


def fingerprint_of(config, encoder, *, split="train", ranks=1, workers=2):
    worker_config = WorkerConfig(rank=0, world_size=ranks, num_workers=workers)
    dataset = build_dataset(config, split, encoder=encoder, worker_config=worker_config)
    return fingerprint(config, split=split, family=encoder.family, dataset=dataset)


def test_the_same_run_has_the_same_fingerprint_wherever_the_data_lies(
    demo_config, demo_copy, encoder
):
    moved = dataclasses.replace(demo_config, path=str(demo_copy))
    assert fingerprint_of(moved, encoder) == fingerprint_of(demo_config, encoder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seq_length", 2048),
        ("packing_policy", "sequential"),
        ("packing_buffer_size", 8),
        ("max_images_per_pack", 3),
        ("shuffle_buffer_size", 7),
        ("seed", 5),
        ("preprocessing", "bridge"),
        ("alignment", 4),
    ],
)
def test_a_setting_that_changes_packs_is_refused_with_both_values(
    demo_config, encoder, field, value
):
    saved = fingerprint_of(demo_config, encoder)
    other = dataclasses.replace(demo_config, **{field: value})
    with pytest.raises(ResumeError) as refusal:
        check_fingerprint(saved, fingerprint_of(other, encoder), "error")
    row = next(line for line in str(refusal.value).splitlines() if line.split()[:1] == [field])
    assert row.split()[1:] == [str(getattr(demo_config, field)), str(value)]


@pytest.mark.parametrize(
    ("field", "value"),
    [("prefetch_factor", 4), ("on_overlong", "error"), ("max_consecutive_skips", 3)],
)
def test_a_setting_that_changes_no_pack_is_free(demo_config, encoder, field, value):
    other = dataclasses.replace(demo_config, **{field: value})
    assert fingerprint_of(other, encoder) == fingerprint_of(demo_config, encoder)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"ranks": 2}, "data_parallel_size"),
        ({"workers": 1}, "num_workers"),
        ({"split": "val"}, "split"),
    ],
)
@pytest.mark.parametrize("mode", ["error", "warn"])
def test_what_energon_cannot_place_is_refused_in_either_mode(
    demo_config, encoder, change, field, mode
):
    saved = fingerprint_of(demo_config, encoder)
    with pytest.raises(ResumeError, match=rf"{field} +\S+ +\S+"):
        check_fingerprint(saved, fingerprint_of(demo_config, encoder, **change), mode)


def test_warn_continues_with_the_same_table_in_the_log(demo_config, encoder, caplog):
    saved = fingerprint_of(demo_config, encoder)
    other = fingerprint_of(dataclasses.replace(demo_config, seq_length=2048), encoder)
    with caplog.at_level(logging.WARNING):
        check_fingerprint(saved, other, "warn")
    assert "seq_length  4096   2048" in caplog.text


def test_other_shards_are_another_dataset(demo_config, demo_copy, encoder):
    (demo_copy / ".nv-meta" / "index.uuid").write_text("another index")
    moved = dataclasses.replace(demo_config, path=str(demo_copy))
    assert (
        fingerprint_of(moved, encoder)["dataset"] != fingerprint_of(demo_config, encoder)["dataset"]
    )


def test_a_checkpoint_without_loader_state_is_an_error_not_a_silent_restart():
    guard = StateGuard({"format": 1}, "error")
    for state in (None, {}, "position"):
        with pytest.raises(ResumeError, match="holds no loader state of energon-pack"):
            guard.opened(state)
    assert guard.opened(guard.sealed(None)) is None


def test_every_setting_is_either_in_the_fingerprint_or_named_as_free(demo_config, encoder):
    free = {"path", "model", "num_val_workers", "prefetch_factor", "spill_dir", "monitor"}
    free |= {"on_overlong", "max_consecutive_skips", "resume_mismatch"}
    names = {field.name for field in dataclasses.fields(PackingConfig)}
    assert names - free == names & fingerprint_of(demo_config, encoder).keys()


@pytest.mark.parametrize("resumed", [False, True])
def test_a_worker_that_has_not_started_loses_no_pack(resumed):
    not_started = SavableDatasetCheckpoint(state=None, offset=1)
    running, where_it_was_resumed = SavableDatasetCheckpoint(state="s", offset=0), object()

    def position(*worker_states):
        return SavableDataLoaderState(
            worker_states=list(worker_states), next_worker_id=1, micro_batch_size=None
        )

    guard = StateGuard({}, "error")
    if resumed:
        guard.opened(guard.sealed(position(running, where_it_was_resumed)))
    saved = guard.sealed(position(running, not_started))["position"].worker_states
    assert saved[0] is running
    if resumed:
        assert saved[1] is where_it_was_resumed
    else:
        assert (saved[1].state, saved[1].offset) == (None, 0)
