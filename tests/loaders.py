# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Real DataLoader workers that send small packs and hold memory as a test wants it."""

import os
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from energon_pack.stats import PackInfo, StreamInfo

MIB = 1 << 20


def pack_of(worker: int, number: int) -> dict[str, Any]:
    stream = StreamInfo(
        worker_id=worker,
        pid=os.getpid(),
        pack_index=number,
        candidates=16,
        buffer_bytes=20 * MIB,
        largest_key=f"clip-{number}",
        largest_bytes=3 * MIB,
        skipped={"overlong": 1} if number % 10 == 0 else {},
    )
    info = PackInfo(
        samples=2, tokens=990, trained_tokens=100, width=1000, seq_length=1000, stream=stream
    )
    return {"pack_info": info, "__keys__": [f"sample-{worker}-{number}"]}


class Packs(IterableDataset[dict[str, Any]]):
    """Worker ``leaker`` keeps ``leak_bytes`` of every pack; all use ``work_bytes`` for each."""

    def __init__(
        self, leaker: int = -1, leak_bytes: int = 0, work_bytes: int = 4 * MIB, pause_s: float = 0.0
    ) -> None:
        self.leaker, self.leak_bytes = leaker, leak_bytes
        self.work_bytes, self.pause_s = work_bytes, pause_s

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info().id
        kept = []
        for number in count():
            work = bytearray(self.work_bytes * (1 + number % 3))
            if worker == self.leaker:
                kept.append(b"x" * self.leak_bytes)
            time.sleep(self.pause_s)
            del work
            yield pack_of(worker, number)


def loader_of(dataset: IterableDataset[Any], workers: int = 2) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=None, num_workers=workers, prefetch_factor=2)
