# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from energon_pack.monitor.growth import Growth, GrowthTrack, theil_sen

MIB = 1 << 20
BASE = 1000 * MIB


def follow(memory, *, packs=2000, step=5, warmup=100):
    """Return the pack at which growth is first asserted, and the last verdict."""
    track, first = GrowthTrack(warmup), None
    for pack in range(0, packs, step):
        track.add(pack, int(memory(pack)))
        if first is None and track.growth and track.growth.keeps:
            first = pack
    return first, track.growth


@pytest.mark.parametrize("rate_mib", [0.2, 1, 5, 40])
@pytest.mark.parametrize("step", [1, 5, 20])
def test_a_leak_of_any_speed_is_found_and_measured(rate_mib, step):
    noise = np.random.default_rng(1)
    first, growth = follow(
        lambda pack: BASE + rate_mib * MIB * pack + 20 * MIB * noise.standard_normal(), step=step
    )
    assert first is not None
    assert growth.keeps
    assert growth.rate == pytest.approx(rate_mib * MIB, rel=0.25)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("noise_mib", [0, 5, 40, 200])
def test_flat_memory_with_noise_is_not_accused_over_2000_packs(seed, noise_mib):
    noise = np.random.default_rng(seed)
    first, growth = follow(lambda _: BASE + noise_mib * MIB * abs(noise.standard_normal()))
    assert first is None
    assert abs(growth.rate) < 0.2 * MIB


def test_a_warm_up_that_flattens_is_not_accused():
    first, _ = follow(lambda pack: BASE + 300 * MIB * (1 - np.exp(-pack / 40)))
    assert first is None


def test_growth_like_a_logarithm_is_not_accused():
    assert follow(lambda pack: BASE + 30 * MIB * np.log1p(pack))[0] is None


def test_single_packs_of_400_mb_do_not_move_the_rate():
    _, growth = follow(lambda pack: BASE + (400 * MIB if pack % 50 == 0 else 0))
    assert growth == Growth(0.0, keeps=False)


def test_a_leak_that_starts_late_is_found_soon():
    noise = np.random.default_rng(2)
    first, _ = follow(
        lambda pack: BASE + MIB * max(0, pack - 1500) + 10 * MIB * noise.standard_normal()
    )
    assert 1500 < first < 1800


def test_an_accusation_is_taken_back_when_growth_ends():
    first, growth = follow(lambda pack: BASE + 2 * MIB * min(pack, 600), packs=4000)
    assert first < 600
    assert not growth.keeps


def test_nothing_is_said_before_the_warm_up_and_without_work():
    track = GrowthTrack(100)
    for pack in range(100):
        track.add(pack, pack * 100 * MIB)
    for _ in range(200):
        track.add(100, 500 * MIB)
    assert track.growth is None


def test_theil_sen_is_the_median_slope():
    x, y = np.array([0.0, 1, 2, 3]), np.array([0.0, 1, 2, 30])
    slope, low = theil_sen(x, y)
    # Slopes 1, 1, 10, 1, 14.5, 28.
    assert slope == pytest.approx((1 + 10) / 2)
    assert low == 1
