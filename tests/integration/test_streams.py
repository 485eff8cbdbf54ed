# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Evaluation starts afresh each time, with its own workers, and says when there is nothing."""

import dataclasses
import gc
from itertools import islice

import psutil
import pytest
from megatron.energon import WorkerConfig

from energon_pack.bridge.stream import EvalStream, TrainStream
from energon_pack.encoder import PackingTaskEncoder
from energon_pack.loader import build_loader
from energon_pack.reading.prepared import DatasetError


def evaluations(config, *, packs, rank=0, world=1, workers=2):
    """The validation stream of one data-parallel rank."""

    encoder = PackingTaskEncoder(config)

    def open_loader():
        ranks = WorkerConfig(rank=rank, world_size=world, num_workers=workers)
        return build_loader(config, "val", encoder=encoder, worker_config=ranks)

    return EvalStream(open_loader, packs_per_evaluation=packs)


def keys(stream, packs):
    return [pack["__keys__"] for pack in islice(stream, packs)]


def test_evaluations_of_fewer_packs_than_the_split_has_are_equal(demo_config):
    short = dataclasses.replace(demo_config, seq_length=1024)
    stream = evaluations(short, packs=2)
    first = keys(stream, 2)
    assert keys(stream, 2) == first
    assert keys(stream, 2) == first


def test_evaluations_of_more_packs_than_the_split_has_begin_it_again(demo_config):
    stream = evaluations(demo_config, packs=5)
    first = keys(stream, 5)
    assert first[0] in first[1:]
    assert keys(stream, 5) == first


def has_ended(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def manual_gc():
    """What the stock recipes' ``train.manual_gc`` does for a training run."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("manual_gc")
def test_validation_workers_are_gone_between_evaluations(demo_config):
    stream = evaluations(demo_config, packs=1)
    pid = next(stream)["pack_info"].stream.pid
    assert has_ended(pid)


@pytest.mark.usefixtures("manual_gc")
def test_training_workers_are_gone_after_the_last_step(demo_config):
    stream = TrainStream(build_loader(dataclasses.replace(demo_config, num_workers=1)))
    pid = next(stream)["pack_info"].stream.pid
    stream.close()
    assert has_ended(pid)


def test_more_ranks_than_validation_samples_is_one_sentence(demo_config):
    stream = evaluations(demo_config, packs=1, rank=15, world=16, workers=1)
    with pytest.raises(DatasetError, match="found no usable sample in the validation split"):
        next(stream)
