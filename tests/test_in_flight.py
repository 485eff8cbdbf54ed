# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What packs take on their way, by hand, and the warnings before there is too little."""

import logging

import pytest
from pictures import visual_family

from energon_pack import in_flight
from energon_pack.config import PackingConfig
from energon_pack.in_flight import most_in_flight, warn_where_short
from energon_pack.memory import Ceiling, SharedMemory


def config(**settings):
    return PackingConfig(path="x", model="y", seq_length=1000, num_workers=3, **settings)


def test_the_estimate_is_packs_times_the_largest_pack():
    # 3 workers with 2 ready, 1 written, 1 read; a token has 4 patches of 2 * 3 * 16 * 16 values.
    need = most_in_flight(config(), visual_family())
    assert need.patch_bytes == 12 * 1000 * 4 * 1536 * 4
    assert need.row_bytes == 12 * 1000 * 44


@pytest.mark.parametrize(("dtype", "share"), [("bfloat16", 2), ("uint8", 4)])
def test_smaller_types_and_limits_take_less(dtype, share):
    whole = most_in_flight(config(), visual_family()).patch_bytes
    assert most_in_flight(config(pixel_dtype=dtype), visual_family()).patch_bytes * share == whole
    limited = most_in_flight(config(max_visual_tokens_per_pack=250), visual_family())
    assert limited.patch_bytes * 4 == whole


def test_each_kind_of_memory_has_its_own_warning(monkeypatch, caplog):
    def warnings(left, shm_left):
        caplog.clear()
        monkeypatch.setattr(
            in_flight,
            "read_ceiling",
            lambda: Ceiling(source="machine", limit_bytes=left, used_bytes=0),
        )
        monkeypatch.setattr(
            in_flight,
            "read_shared_memory",
            lambda: SharedMemory(size_bytes=shm_left, used_bytes=0),
        )
        with caplog.at_level(logging.WARNING):
            warn_where_short(config(), visual_family())
        return [record.getMessage() for record in caplog.records]

    assert warnings(10**12, 10**12) == []
    (memory,) = warnings(10**8, 10**12)
    assert memory.startswith(
        "packs on their way to the trainer can take 281 MiB, 95.4 MiB are left"
    )
    (shm,) = warnings(10**12, 10**5)
    assert "can take 516 KiB of /dev/shm, 97.7 KiB are left" in shm
