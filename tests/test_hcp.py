# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Hierarchical context parallelism: splits, real process groups, training logs."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from energon_pack.cli import main
from energon_pack.errors import UserError
from energon_pack.planning.hcp import check_log, factorise, level_groups, parse_sizes
from energon_pack.planning.hcp_verify import verify_hierarchy

MADE = "[PG ID 7 PG GUID 9(HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L0) Rank 1] ProcessGroup created"
OLDER = "creating HIERARCHICAL_CONTEXT_PARALLEL_GROUPS with sizes [2, 2]"
FLAT = "[PG ID 6 PG GUID 8(CONTEXT_PARALLEL_GROUP) Rank 1] ProcessGroup created"
OTHER = "[PG ID 5 PG GUID 7(TENSOR_AND_CONTEXT_PARALLEL_GROUP) Rank 1] ProcessGroup created"
DECENTRALISED = "> initialized HyperCommGrid with tp=2, pp=1, cp=4, dp=2"


def test_groups_of_two_levels_by_hand():
    assert level_groups((2, 2)) == [[[0, 1], [2, 3]], [[0, 2], [1, 3]]]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple))
def test_each_level_has_every_rank_once(sizes):
    for size, groups in zip(sizes, level_groups(sizes), strict=True):
        assert all(len(group) == size for group in groups)
        assert sorted(rank for group in groups for rank in group) == list(range(math.prod(sizes)))


@given(
    context=st.integers(1, 64),
    heads=st.integers(1, 64),
    tensor=st.integers(1, 8),
    node=st.sampled_from([1, 4, 8, 72]),
)
def test_one_split_is_recommended_and_can_run(context, heads, tensor, node):
    splits = factorise(context, kv_heads=heads, tensor=tensor, gpus_per_node=node)
    (best,) = [split for split in splits if split.recommended]
    assert best.fits
    assert best.a2a == 1 or best.a2a * tensor <= node
    assert all(split.a2a * split.p2p == context for split in splits)


@pytest.mark.parametrize(
    ("lines", "verdict", "number"),
    [
        ([OTHER, FLAT, MADE], "hierarchical", 3),
        ([OLDER], "hierarchical", 1),
        ([OTHER, FLAT], "flat", 2),
        ([DECENTRALISED], "flat", 1),
        ([DECENTRALISED.replace("cp=4", "cp=1"), OTHER, "cp_comm_type: a2a+p2p"], "neither", None),
        (["hierarchical_context_parallel_sizes: [2, 2]"], "neither", None),
    ],
)
def test_a_log_tells_which_groups_were_made(lines, verdict, number):
    found = check_log(lines)
    assert (found.verdict, found.line_number) == (verdict, number)


def test_the_log_command_exits_1_unless_the_hierarchy_was_made(tmp_path, capsys):
    log = tmp_path / "train.log"
    for lines, code in ((MADE, 0), (FLAT, 1), ("", 1)):
        log.write_text(f"starting\n{lines}\n")
        with pytest.raises(SystemExit) as stopped:
            main(["check-log", str(log)])
        assert (stopped.value.code or 0) == code
    assert "log with TORCH_CPP_LOG_LEVEL=INFO" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["4", "2,", "2,x", "0,4", ""])
def test_sizes_that_name_no_levels_are_refused(text):
    with pytest.raises(UserError, match="a2a and p2p sizes such as 2,2"):
        parse_sizes(text)


def test_real_process_groups_have_the_hierarchy_and_a_flat_run_fails(capsys):
    pytest.importorskip("megatron.core", reason="needs the bridge extra")
    made = verify_hierarchy((2, 2))
    assert made.passed, made.problems
    assert [rank.levels for rank in made.ranks] == [
        [[0, 1], [0, 2]],
        [[0, 1], [1, 3]],
        [[2, 3], [0, 2]],
        [[2, 3], [1, 3]],
    ]
    with pytest.raises(SystemExit) as stopped:
        main(["verify-hcp", "--sizes", "2,2", "--flat"])
    assert stopped.value.code == 1
    out, err = capsys.readouterr()
    assert "rank 3: context [0, 1, 2, 3] no hierarchy" in out
    assert err.count("has no hierarchy, only the flat [0, 1, 2, 3]") == 4


def test_more_ranks_than_a_machine_should_start_are_refused():
    with pytest.raises(UserError, match="too many"):
        verify_hierarchy((8, 8))
