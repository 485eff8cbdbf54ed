# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Planner: numbers by hand, and what any topology must satisfy."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from energon_pack.cli import main
from energon_pack.errors import UserError
from energon_pack.plan import Topology, make_plan, plan_epochs
from energon_pack.planning.hcp import factorise
from energon_pack.planning.modes import (
    MODES,
    hierarchical_settings,
    in_batch_settings,
    long_context_settings,
)
from energon_pack.strict import ConfigError

EXAMPLE = Topology(
    tensor=2, context=2, sequence_parallel=True, world_size=16, seq_length=8192, global_batch=16
)


def test_the_example_of_the_module_holds():
    plan = make_plan(EXAMPLE)
    assert plan.alignment == 4
    assert plan.data_parallel == 4
    assert plan.packs_per_rank == 4
    assert plan.slots_per_step == 131072
    assert plan.valid_lengths == (8188, 8192, 8196, 8200)


def test_equal_tokens_are_2k_32_4k_16_8k_8():
    plan = make_plan(Topology(world_size=8, seq_length=4096, global_batch=16))
    assert (2048, 32) in plan.equal_tokens
    assert (8192, 8) in plan.equal_tokens


def test_experts_with_tensor_parallelism_scatter_the_sequence():
    plan = make_plan(Topology(tensor=4, expert=8, world_size=8, global_batch=8))
    assert plan.alignment == 4
    assert any("experts with TP > 1 switch on" in line for line in plan.derivation)


def test_the_evaluation_context_size_counts():
    plan = make_plan(replace(EXAMPLE, eval_context=8))
    assert plan.alignment == 16
    assert any(line.startswith("evaluation: CP 8") for line in plan.derivation)


def test_every_problem_is_told_at_once_with_a_way_out():
    with pytest.raises(ConfigError) as caught:
        Topology(tensor=0, context=-1, seq_length=0)
    assert [problem.path for problem in caught.value.problems] == [
        "tensor",
        "context",
        "seq_length",
    ]
    with pytest.raises(ConfigError, match=r"world_size: is 6, no multiple of .* = 4; set 8"):
        Topology(tensor=2, context=2, world_size=6)
    with pytest.raises(ConfigError, match=r"global_batch: is 6, no multiple of the 4 .*; set 8"):
        Topology(world_size=4, global_batch=6)


@given(
    tensor=st.sampled_from([1, 2, 4, 8]),
    context=st.sampled_from([1, 2, 4, 8]),
    scattered=st.booleans(),
    replicas=st.integers(1, 16),
    packs=st.integers(1, 8),
    length=st.integers(1, 40_000),
)
def test_a_plan_divides_as_it_says(tensor, context, scattered, replicas, packs, length):
    topology = Topology(
        tensor=tensor,
        context=context,
        sequence_parallel=scattered,
        world_size=tensor * context * replicas,
        seq_length=length,
        global_batch=replicas * packs,
    )
    plan = make_plan(topology)
    assert plan.packs_per_rank * plan.data_parallel == topology.global_batch
    assert all(valid % plan.alignment == 0 for valid in plan.valid_lengths)
    assert any(abs(valid - length) < plan.alignment for valid in plan.valid_lengths)
    for other_length, batch in plan.equal_tokens:
        assert other_length * batch == plan.slots_per_step
        assert batch % plan.data_parallel == 0


def test_epochs_count_packs_not_conversations():
    topology = Topology(world_size=8, seq_length=8000, global_batch=8)
    epoch = plan_epochs(topology, samples=10_000, mean_tokens=400, epochs=3, fill=1.0)
    assert epoch.packs == 500
    assert epoch.train_iters == 188
    assert epoch.conversations_per_step == 160
    assert epoch.tokens_per_step == 64_000


def test_modes_refuse_what_megatron_bridge_would():
    with pytest.raises(UserError, match="micro batch of 2 or more"):
        in_batch_settings(EXAMPLE, micro_batch=3)
    with pytest.raises(UserError, match="no multiple of 16"):
        long_context_settings(Topology(context=8, world_size=8, seq_length=8200))
    with pytest.raises(UserError, match="do not multiply to CP 2"):
        hierarchical_settings(EXAMPLE, (2, 2))


@pytest.mark.parametrize("mode", MODES)
def test_the_command_writes_every_mode(mode, capsys):
    arguments = ["plan", "--cp", "4", "--world-size", "8", "--kv-heads", "2", "--mode", mode]
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, "--format", "json"])
    assert not stopped.value.code
    report = json.loads(capsys.readouterr().out)
    assert report["plan"]["alignment"] == 8
    settings = {setting["path"]: setting["value"] for setting in report["settings"]}
    assert settings["model.context_parallel_size"] == 4
    with pytest.raises(SystemExit):
        main([*arguments, "--write", "overrides"])
    assert "model.context_parallel_size=4" in capsys.readouterr().out.split()


def test_the_command_says_what_is_impossible_and_exits_2(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["plan", "--tp", "3", "--world-size", "8"])
    assert stopped.value.code == 2
    assert "set 9" in capsys.readouterr().err


def test_the_recommended_split_stays_in_a_node_and_divides_the_heads():
    splits = {split.a2a: split for split in factorise(16, kv_heads=8, tensor=2, gpus_per_node=8)}
    assert [a2a for a2a, split in splits.items() if split.recommended] == [4]
    assert not splits[8].fits
    assert "does not divide the 4 KV heads" in splits[8].reason
    assert splits[16].p2p == 1
