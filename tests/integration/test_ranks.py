# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Two gloo ranks: who reads what, checkpoints at each data-parallel size, replicas that differ."""

import dataclasses

import pytest
import torch
from integration.processes import run_ranks

MORE = 20


@pytest.fixture(scope="module")
def data(demo_config):
    return dataclasses.replace(demo_config, seq_length=1024, num_workers=1)


@pytest.fixture(scope="module")
def ranks(data, tmp_path_factory):
    """What two data-parallel ranks, then two tensor-parallel ones, then one rank came to."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("dp2", "tp2", "dp1")}
    run_ranks("read", 2, folders["dp2"], data, 1)
    run_ranks("read", 2, folders["tp2"], data, 2)
    run_ranks("read", 1, folders["dp1"], data, 1, folders["dp2"])
    return {
        name: [torch.load(file) for file in sorted(folder.glob("?.pt"))]
        for name, folder in folders.items()
    }


def test_two_data_parallel_ranks_read_disjoint_samples(ranks):
    first, second = ({key for keys in rank["keys"] for key in keys} for rank in ranks["dp2"])
    assert first
    assert second
    assert not first & second


def test_two_tensor_parallel_ranks_read_identical_packs(ranks):
    first, second = ranks["tp2"]
    assert first["keys"] == second["keys"]
    assert first["more"] == second["more"]


def test_figures_add_up_over_data_parallel_ranks_and_not_over_replicas(ranks):
    first, second = (rank["totals"] for rank in ranks["dp2"])
    assert first == second
    assert first["packs"] == 14
    assert first["workers"] == 2
    assert first["samples"] == sum(len(keys) for rank in ranks["dp2"] for keys in rank["keys"])
    assert [rank["totals"]["packs"] for rank in ranks["tp2"]] == [7, 7]


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
