# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A split's lengths are measured without decoding, and the plan estimates an epoch from them."""

import dataclasses
import json

import pytest
from click.testing import CliRunner

from energon_pack.commands.plan import plan
from energon_pack.lengths import measure_lengths
from energon_pack.loader import build_loader
from energon_pack.reading.prepared import DatasetError


@pytest.fixture(scope="module")
def lengths(demo_config):
    return measure_lengths(demo_config)


def test_every_sample_of_a_small_split_is_measured_once(lengths):
    assert lengths.samples == lengths.measured == 65


def test_the_mean_is_that_of_the_samples_in_packs(demo_config):
    lengths = measure_lengths(demo_config, "val")
    packs = list(build_loader(dataclasses.replace(demo_config, num_workers=0), "val"))
    samples = sum(pack["pack_info"].samples for pack in packs)
    tokens = sum(pack["pack_info"].tokens for pack in packs)
    assert (lengths.samples, lengths.mean_tokens) == (samples, tokens / samples)


def test_samples_that_fit_no_pack_are_left_out(demo_config, lengths):
    short = measure_lengths(dataclasses.replace(demo_config, seq_length=256))
    assert short.samples < lengths.samples
    assert short.mean_tokens < lengths.mean_tokens


def test_a_split_without_a_usable_sample_is_told(demo_config):
    with pytest.raises(DatasetError, match="none of the first 65 samples"):
        measure_lengths(dataclasses.replace(demo_config, seq_length=8))


def test_the_plan_measures_a_dataset(demo_folder, lengths):
    arguments = ["--data", str(demo_folder / "data.yaml"), "--seq-length", "4096"]
    arguments += ["--world-size", "2", "--global-batch", "2", "--format", "json"]
    result = CliRunner().invoke(plan, arguments, catch_exceptions=False)
    epoch = json.loads(result.output)["epoch"]
    assert epoch["packs"] == pytest.approx(65 * lengths.mean_tokens / (4096 * 0.99), abs=1)
