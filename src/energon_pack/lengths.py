# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""How long a dataset's samples are, and how many it has: what an estimate of an epoch needs."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from megatron.energon import SavableDataset, WorkerConfig, get_loader

from energon_pack.alignment import padded_length
from energon_pack.candidate import Candidate, Refused
from energon_pack.config import PackingConfig
from energon_pack.encoder import PackingTaskEncoder
from energon_pack.loader import Split, build_dataset
from energon_pack.reading.prepared import DatasetError, check_prepared


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """The lengths of a split, from its first samples in training order."""

    samples: int
    """Samples of the split that reach packs, judged by the share among those measured."""
    measured: int
    mean_tokens: float
    """Physical tokens of a sample, alignment padding included."""


class _MeasuringEncoder(PackingTaskEncoder):
    """Ends after the measurement: its stream has candidates, and no pixel is ever decoded."""

    def build_batch(  # type: ignore[override]
        self, dataset: SavableDataset[Any], **_: Any
    ) -> SavableDataset[Candidate | Refused]:
        """Leave the measured stream as it is."""
        return dataset


def measure_lengths(config: PackingConfig, split: Split = "train", *, limit: int = 512) -> Lengths:
    """Measure up to ``limit`` samples; raises ``DatasetError`` when none of them is usable."""
    check_prepared(config.path, split)
    dataset = build_dataset(
        config,
        split,
        encoder=_MeasuringEncoder(config),
        worker_config=WorkerConfig(rank=0, world_size=1, num_workers=0),
    )
    total = len(dataset)
    seen = list(islice(_measured(dataset), min(limit, total)))
    lengths = [padded_length(s.length, config.alignment) for s in seen if isinstance(s, Candidate)]
    usable = [length for length in lengths if length <= config.seq_length]
    if not usable:
        raise DatasetError(f"none of the first {len(seen)} samples of {config.path} is usable")
    return Lengths(
        samples=round(total * len(usable) / len(seen)),
        measured=len(seen),
        mean_tokens=sum(usable) / len(usable),
    )


def _measured(dataset: SavableDataset[Any]) -> Iterator[Candidate | Refused]:
    yield from get_loader(dataset)
