# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Two gloo ranks: who reads what, checkpoints at each data-parallel size, replicas that differ."""

import dataclasses
import hashlib
from itertools import islice

import pytest
import torch
from torch.multiprocessing import start_processes

from energon_pack.bridge.replicas import KeyTrace, ReplicaMismatchError, check_replicas
from energon_pack.errors import UserError

STEP, MORE = 7, 20


@pytest.fixture(scope="module")
def data(demo_config):
    return dataclasses.replace(demo_config, seq_length=1024, num_workers=1)


@pytest.fixture(scope="module")
def ranks(bridge, data, tmp_path_factory):
    """What two data-parallel ranks, then two tensor-parallel ones, then one rank came to."""
    folder = tmp_path_factory.mktemp("ranks")
    for name, world, tensor in (("dp2", 2, 1), ("tp2", 2, 2), ("dp1", 1, 1)):
        start_processes(
            _rank, args=(name, world, tensor, data, folder), nprocs=world, start_method="fork"
        )
    return {
        name: [torch.load(folder / f"{name}-{rank}.pt") for rank in range(world)]
        for name, world in (("dp2", 2), ("tp2", 2), ("dp1", 1))
    }


def _rank(rank, name, world, tensor, data, folder):
    """One rank: read, save at step 7, read on; then restore into a new loader and read again."""
    from integration.bridge_import import stock_recipe
    from integration.cpu import cpu_config, cpu_run, on_cpu, process_groups
    from megatron.bridge.training.checkpointing import (
        maybe_load_dataloader_state,
        maybe_save_dataloader_state,
    )

    result = {}
    states = folder / name
    with on_cpu(), process_groups(folder, rank=rank, world=world, tensor=tensor) as groups:
        cfg = cpu_config(
            stock_recipe("qwen3_vl_8b_sft"), data, f"model.tensor_model_parallel_size={tensor}"
        )
        with cpu_run(cfg, groups, states) as run:
            packs = list(islice(run.train_iterator.iterable, STEP))
            maybe_save_dataloader_state(
                None, run.train_iterator, STEP, str(states), pg_collection=groups
            )
            more = list(islice(run.train_iterator.iterable, MORE))
            result["keys"] = [pack["__keys__"] for pack in packs]
            result["more"] = [_digest(pack) for pack in more]
            result["replicas"] = _replica_error(run.train_iterator.iterable.trace, groups, rank)
        torch.distributed.barrier()
        with cpu_run(cfg, groups, states) as run:
            maybe_load_dataloader_state(run.train_iterator, STEP, str(states), pg_collection=groups)
            result["again"] = [_digest(p) for p in islice(run.train_iterator.iterable, MORE)]
        if name == "dp1":
            with cpu_run(cfg, groups, states) as run, pytest.raises(UserError) as caught:
                maybe_load_dataloader_state(
                    run.train_iterator, STEP, str(folder / "dp2"), pg_collection=groups
                )
            result["refusal"] = str(caught.value)
    torch.save(result, folder / f"{name}-{rank}.pt")


def _replica_error(trace, groups, rank):
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


def _digest(pack):
    """Hash every tensor of a pack, the visual ones too, and its keys."""
    found = hashlib.sha256(repr(pack["__keys__"]).encode())
    tensors = {**pack, **vars(pack["visual_inputs"] or object())} if pack["visual_inputs"] else pack
    for name, value in sorted(tensors.items()):
        if isinstance(value, torch.Tensor):
            found.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
            found.update(value.numpy().tobytes())
    return found.hexdigest()


def test_two_data_parallel_ranks_read_disjoint_samples(ranks):
    first, second = ({key for keys in rank["keys"] for key in keys} for rank in ranks["dp2"])
    assert first
    assert second
    assert not first & second


def test_two_tensor_parallel_ranks_read_identical_packs(ranks):
    first, second = ranks["tp2"]
    assert first["keys"] == second["keys"]
    assert first["more"] == second["more"]


@pytest.mark.parametrize("name", ["dp1", "dp2", "tp2"])
def test_a_checkpoint_at_step_7_resumes_to_the_same_20_packs_bit_for_bit(ranks, name):
    for rank in ranks[name]:
        assert len(rank["more"]) == MORE
        assert rank["again"] == rank["more"]


def test_a_smaller_data_parallel_size_is_refused_with_both_sizes(ranks):
    refusal = ranks["dp1"][0]["refusal"]
    assert any(line.split() == ["data_parallel_size", "2", "1"] for line in refusal.splitlines())


def test_replicas_that_differ_stop_every_rank_with_both_lists(ranks):
    assert [rank["replicas"] for rank in ranks["dp2"]] == [None, None]
    for rank in ranks["tp2"]:
        assert "['only rank 0 has this']" in rank["replicas"]
        assert "['only rank 1 has this']" in rank["replicas"]
