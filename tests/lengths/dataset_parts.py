# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Small prepared datasets of any class, and what comes out of them before and after measuring."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import webdataset as wds
from megatron.energon import TaskEncoder, WorkerConfig, get_loader, get_train_dataset
from megatron.energon.tools.prepare import command as prepare

from energon_pack.reading.cookers import cookers
from energon_pack.reading.undecoded import disable_decoding, reading_chatml


def write_dataset(folder: Path, samples: Sequence[Mapping[str, bytes]], dataset_yaml: str) -> Path:
    """Write one shard of ``samples`` and prepare it as ``dataset_yaml`` says."""
    folder.mkdir(parents=True)
    with wds.TarWriter(str(folder / "train-000.tar"), encoder=False) as shard:
        for number, parts in enumerate(samples):
            shard.write({"__key__": f"{number:03d}", **parts})
    options = ["--non-interactive", "--split-parts", "train:train-.*", "--skip-dataset-yaml"]
    with contextlib.redirect_stdout(io.StringIO()):
        prepare.main([str(folder), *options, "--num-workers", "1"], standalone_mode=False)
    (folder / ".nv-meta" / "dataset.yaml").write_text(dataset_yaml)
    return folder


class _RawEncoder(TaskEncoder[Any, Any, Any, Any]):
    """Hands out raw samples, after the shuffle buffer."""

    decoder = None
    cookers = cookers

    def _load_dataset(self, dataset, worker_rotation_offset, worker_config):
        disable_decoding(dataset)
        return super()._load_dataset(dataset, worker_rotation_offset, worker_config)

    def build_batch(self, dataset, **_):
        return dataset


def raw_samples(folder: Path) -> list[Any]:
    """Read every sample once, in key order."""
    with reading_chatml():
        dataset = get_train_dataset(
            folder,
            worker_config=WorkerConfig(rank=0, world_size=1, num_workers=0),
            batch_size=None,
            shuffle_buffer_size=2,
            max_samples_per_sequence=None,
            task_encoder=_RawEncoder(),
            repeat=False,
        )
    return sorted(get_loader(dataset), key=lambda sample: sample.__key__)
