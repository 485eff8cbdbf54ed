# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Switching expert-parallel overlap off on a real config, before its own set-up copies flags."""

import pytest

from energon_pack.bridge.without_gpu import assumed_device
from energon_pack.config import PackingConfig
from energon_pack.guard import run_guard
from energon_pack.overlap import OVERLAP_PATHS, switch_off_ep_overlap
from energon_pack.settings import read_path

ASKED = [path for path in OVERLAP_PATHS if path != "model.moe_a2a_overlap"]


@pytest.fixture
def overlapped(recipe, monkeypatch):
    """A mixture of experts with every flag of 0.6.2 on, wherever it can stand."""
    from megatron.bridge.training.comm_overlap import CommOverlapConfig

    monkeypatch.setenv("WORLD_SIZE", "8")
    cfg = recipe("qwen3_vl_30b_a3b_sft")
    cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=False)
    cfg.comm_overlap.finalize()
    for path in ASKED:
        owner, _, name = path.rpartition(".")
        assert hasattr(read_path(cfg, owner), name), path
        setattr(read_path(cfg, owner), name, True)
    return cfg


def test_every_flag_is_switched_off_once_and_stays_off_in_validate(overlapped):
    from megatron.bridge.training.config import runtime_config_update

    changes = switch_off_ep_overlap(overlapped)
    assert [change.path for change in changes] == ASKED
    assert {change.after for change in changes} == {False}
    assert switch_off_ep_overlap(overlapped) == []
    overlapped.model.moe_permute_fusion = False
    with assumed_device():
        runtime_config_update(overlapped)
    assert [path for path in ASKED if read_path(overlapped, path)] == []


def test_the_guard_names_every_place_in_one_warning_and_changes_none(overlapped):
    (warning,) = [
        finding
        for finding in run_guard(overlapped, PackingConfig(path="data", model="processor")).of(
            "warning"
        )
        if finding.code == "expert-overlap"
    ]
    assert warning.setting.split(", ") == ASKED
    assert all(read_path(overlapped, path) for path in ASKED)
