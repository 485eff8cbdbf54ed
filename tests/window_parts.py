# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A stream of tiny candidates without media, in real Energon datasets and loaders."""

import numpy as np
from megatron.energon import (
    MapDataset,
    SavableDataset,
    ShuffleBufferDataset,
    WorkerConfig,
    get_savable_loader,
)

from energon_pack.candidate import Candidate, Refused
from energon_pack.choosing.passes import resumable
from energon_pack.config import PackingConfig
from energon_pack.loader import PackLoader
from energon_pack.refusal import SampleError
from energon_pack.resume import StateGuard
from energon_pack.stats import PackInfo
from energon_pack.window import WindowPackingDataset

SEQ_LENGTH = 100


class NumberDataset(SavableDataset):
    """Numbers 0, 1, ... of each worker; like Energon's readers it starts anew after its end."""

    _savable_fields = ("_at",)

    def __init__(self, per_worker, worker_config):
        super().__init__(worker_config)
        self._per_worker = per_worker
        self.unreadable = set()
        self.reset_state_own()

    def reset_state_own(self):
        self._at = 0

    def __iter__(self):
        worker = self.worker_config.rank_worker_id()
        while self._at < self._per_worker[worker]:
            self._at += 1
            yield {
                "__key__": f"{worker}/{self._at - 1}",
                "__restore_key__": ("Number", worker, self._at - 1),
            }
        self._at = 0

    def restore_sample(self, restore_key):
        _, worker, number = restore_key
        if (worker, number) in self.unreadable:
            raise FileNotFoundError(f"shard of {worker}/{number}")
        return {"__key__": f"{worker}/{number}", "__restore_key__": restore_key}

    def len_worker(self, worker_idx=None):
        return self._per_worker[worker_idx or 0]

    def worker_has_samples(self):
        return True

    def can_restore_sample(self):
        return True

    def assert_can_restore(self):
        pass

    def config(self):
        return {"numbers": list(self._per_worker)}


def measure(sample):
    """Refuse every 17th sample; the others are 3 to 79 tokens long."""
    if isinstance(sample, Refused):
        return sample
    key = sample["__key__"]
    worker, number = map(int, key.split("/"))
    common = {"__key__": key, "__restore_key__": sample["__restore_key__"]}
    if number % 17 == 5:
        return Refused(cause="bad_image", message="cut at 300 bytes", **common)
    length = int(np.random.default_rng([worker, number]).integers(3, 80))
    ids = np.full(length, number, np.int32)
    return Candidate(ids=ids, trained=np.ones(length, bool), **common)


def decode(candidate):
    """Break on every 13th sample."""
    if int(candidate.__key__.split("/")[1]) % 13 == 7:
        raise SampleError("decode_failed", "broken late")
    return candidate


class JoinedIds:
    """A pack of ids alone."""

    def __init__(self, candidates):
        self.most = len(candidates)
        self.segments = []

    def add(self, candidate, frames):
        assert frames is candidate
        self.segments.append(candidate)

    def close(self):
        assert len(self.segments) <= self.most
        tokens = sum(segment.length for segment in self.segments)
        return {
            "input_ids": np.concatenate([segment.ids for segment in self.segments]),
            "pack_info": PackInfo(
                samples=len(self.segments),
                tokens=tokens,
                trained_tokens=tokens,
                width=tokens,
                seq_length=SEQ_LENGTH,
            ),
        }


def config_of(**values):
    """Fill in what these tests do not need."""
    values = {"path": "none", "model": "none", "seq_length": SEQ_LENGTH, **values}
    return PackingConfig(**values)


def window_over(dataset, config, *, decode=decode, open_pack=JoinedIds):
    """Put the window over a stream of candidates."""
    return WindowPackingDataset(
        dataset,
        config=config,
        buffer_size=config.packing_buffer_size,
        decode=decode,
        open_pack=open_pack,
        worker_config=dataset.worker_config,
    )


def build(per_worker, *, workers=0, shuffle=1, measure=measure, decode=decode, **values):
    """Return the window over ``per_worker`` numbers, as the encoder would build it."""
    worker_config = WorkerConfig(rank=0, world_size=1, num_workers=workers)
    dataset = NumberDataset(per_worker, worker_config)
    if shuffle > 1:
        dataset = ShuffleBufferDataset(dataset, size=shuffle, worker_config=worker_config)
    dataset = MapDataset(
        resumable(dataset),
        measure,
        stateless_map_fn=True,
        worker_config=worker_config,
        failure_tolerance=0,
    )
    return window_over(dataset, config_of(**{"packing_buffer_size": 6, **values}), decode=decode)


def source_of(dataset):
    """Return the innermost dataset."""
    return source_of(dataset.dataset) if hasattr(dataset, "datasets") else dataset


def loader_of(dataset):
    """Return a loader that takes a snapshot with every pack, as ``build_loader`` does."""
    loader = get_savable_loader(
        dataset,
        checkpoint_every_sec=0,
        checkpoint_every_min_n_samples=1,
        watchdog_timeout_seconds=None,
        gc_collect_every_n_steps=0,
    )
    return PackLoader(loader, ledger=dataset.ledger, guard=StateGuard({}, "error"))


def read(loader, state=None):
    """Return what is left of a pass, after a restore of ``state``."""
    if state is not None:
        loader.restore_state(state)
    return list(loader)


def told(pack):
    """Reduce a pack to what a resumed run must repeat, its news of losses included."""
    stream = pack["pack_info"].stream
    return pack["__keys__"], pack["input_ids"].tolist(), stream.skipped, stream.pack_index
