# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Workers leave the trainer's objects alone, and the trainer's collector is as it was."""

import dataclasses
import gc
import multiprocessing.util
import weakref

import pytest
from torch.utils.data import DataLoader, IterableDataset

from energon_pack.heap import begun, frozen_heap
from energon_pack.loader import build_loader


@pytest.fixture(autouse=True)
def unfrozen():
    gc.unfreeze()  # loaders without workers, read in part by other tests, leave this process frozen
    yield
    gc.unfreeze()


class Ring:
    """Garbage that only the collector finds."""

    def __init__(self):
        self.itself = self


def is_collected(ring):
    """Say whether the collector visits it; one that is frozen it passes over."""
    return any(seen is ring for seen in gc.get_objects())


class Visible(IterableDataset):
    """How many objects a worker's collector would visit."""

    def __iter__(self):
        yield len(gc.get_objects())


def test_a_worker_sees_none_of_the_trainers_objects():
    kept = [Ring() for _ in range(50_000)]

    def packs():
        yield from DataLoader(Visible(), batch_size=None, num_workers=1)

    (plain,), (frozen,) = packs(), begun(packs())
    assert plain > len(kept)
    assert frozen < 10_000


def test_the_packs_are_all_there_in_order():
    assert list(begun(iter([]))) == []
    assert list(begun(iter(range(5)))) == [0, 1, 2, 3, 4]


def test_a_pack_that_was_handed_out_is_not_held():
    packs = begun(Ring() for _ in range(2))
    first = weakref.ref(next(packs))
    gc.collect()
    assert first() is None


def test_the_collector_is_as_before_when_the_workers_run():
    packs = begun(iter([1, 2]))
    next(packs)
    assert gc.get_freeze_count() == 0


def test_a_worker_inherits_no_garbage():
    garbage = weakref.ref(Ring())
    with frozen_heap():
        assert garbage() is None
        assert gc.get_freeze_count()


def test_what_somebody_else_has_frozen_stays_frozen():
    kept = Ring()
    gc.freeze()
    with frozen_heap():
        assert not is_collected(kept)
    assert not is_collected(kept)
    gc.unfreeze()
    assert is_collected(kept)


def test_an_error_of_the_first_pack_unfreezes():
    def packs():
        raise OSError("no shard")
        yield

    with pytest.raises(OSError, match="no shard"):
        next(begun(packs()))
    assert gc.get_freeze_count() == 0


def test_the_loaders_workers_are_forked_with_a_frozen_heap(demo_config):
    frozen = multiprocessing.Value("q", 0)

    def note(_):
        frozen.value = gc.get_freeze_count()

    marker = Ring()
    multiprocessing.util.register_after_fork(marker, note)
    next(iter(build_loader(demo_config)))
    assert frozen.value > 10_000
    assert gc.get_freeze_count() == 0


def test_without_workers_what_energon_freezes_stays_frozen(demo_config):
    loader = build_loader(dataclasses.replace(demo_config, num_workers=0))
    packs = iter(loader)
    next(packs)
    assert gc.get_freeze_count() > 10_000
