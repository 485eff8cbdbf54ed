# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Baseline A: what Megatron-Bridge's main branch does online, from the released functions.

1. Its dataset class decodes every image and frame to float32 while Energon reads.
2. Each sample goes through its collate function alone: resize, processor, its own loss mask.
3. Its ``first_fit_decreasing`` splits a full buffer of processed samples into packs.
4. Its row builder lays the chosen samples into one row.

``check`` compares a pack with what its collate function makes of the same samples.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from megatron.bridge.data.packing.algorithms import first_fit_decreasing
from megatron.bridge.data.packing.in_batch import build_mcore_thd_sequence_batch_from_rows
from megatron.bridge.models.qwen_vl.data.collate_fn import QWEN_VISUAL_KEYS
from megatron.bridge.models.qwen_vl.data.energon import QwenVLTaskEncoder
from megatron.bridge.training.utils.visual_inputs import GenericVisualInputs
from megatron.energon import (
    DefaultTaskEncoder,
    WorkerConfig,
    get_loader,
    get_train_dataset,
    stateless,
)

_ROW_KEYS = ("input_ids", "labels", "loss_mask", "position_ids")


@dataclass
class Processed:
    """A sample with its tensors, as it waits in the packing buffer."""

    __key__: str
    __restore_key__: tuple[Any, ...]
    __subflavors__: Any
    row: dict[str, torch.Tensor]
    visual: dict[str, torch.Tensor]

    @property
    def length(self) -> int:
        """Tokens."""
        return self.row["input_ids"].numel()


@dataclass
class EagerPack:
    """Processed samples that share a row."""

    __key__: str
    __restore_key__: tuple[Any, ...]
    __subflavors__: Any
    samples: list[Processed]


class EagerEncoder(QwenVLTaskEncoder):
    """Packs samples that are processed before they are chosen."""

    @stateless
    def encode_sample(self, sample: Any) -> Processed:
        """Process one sample by the collate function's own path."""
        example = super().encode_sample(sample).example
        batch = self.collate_fn([example])
        visual = vars(batch["visual_inputs"])
        return Processed(
            __key__=sample.__key__,
            __restore_key__=sample.__restore_key__,
            __subflavors__=None,
            row={key: batch[key][0] for key in _ROW_KEYS},
            visual={key: visual[key] for key in QWEN_VISUAL_KEYS if visual.get(key) is not None},
        )

    def select_samples_to_pack(self, samples: list[Processed]) -> list[list[Processed]]:
        """Split one full buffer."""
        waiting: dict[int, list[Processed]] = {}
        for sample in samples:
            waiting.setdefault(sample.length, []).append(sample)
        packs = first_fit_decreasing([sample.length for sample in samples], self.seq_len)
        return [[waiting[length].pop() for length in pack] for pack in packs]

    @stateless
    def pack_selected_samples(self, samples: list[Processed]) -> EagerPack:
        """Wrap one pack's samples."""
        return EagerPack(",".join(sample.__key__ for sample in samples), (), None, samples)

    @stateless
    def batch(self, packs: list[EagerPack]) -> dict[str, Any]:
        """Build the row."""
        (pack,) = packs
        row = build_mcore_thd_sequence_batch_from_rows(
            [sample.row for sample in pack.samples], sequence_length=self.seq_len
        )
        keys = [key for key in QWEN_VISUAL_KEYS if any(key in s.visual for s in pack.samples)]
        row["visual_inputs"] = GenericVisualInputs(
            **{
                key: torch.cat([s.visual[key] for s in pack.samples if key in s.visual])
                for key in keys
            }
        )
        return {**row, "__keys__": [sample.__key__ for sample in pack.samples]}

    def encode_batch(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the batch, which already is a dict."""
        return batch


def check(encoder: EagerEncoder, folder: Path) -> None:
    """Raise ``AssertionError`` unless a pack is what the collate function makes of its samples."""
    for samples in _raw_samples(folder):
        processed = [encoder.encode_sample(sample) for sample in samples]
        pack = encoder.batch([encoder.pack_selected_samples(processed)])
        examples = [QwenVLTaskEncoder.encode_sample(encoder, sample).example for sample in samples]
        reference = encoder.collate_fn(examples)
        for key in (*_ROW_KEYS, "cu_seqlens_q", "max_seqlen_q"):
            assert torch.equal(torch.as_tensor(pack[key]), torch.as_tensor(reference[key])), key
        theirs = vars(reference["visual_inputs"])
        for key, value in vars(pack["visual_inputs"]).items():
            assert (value is None) == (theirs[key] is None), key
            assert value is None or torch.equal(value, theirs[key]), key


class _Raw(DefaultTaskEncoder[Any, Any, Any, Any]):
    @stateless
    def batch(self, samples: list[Any]) -> list[Any]:
        return samples

    def encode_batch(self, batch: list[Any]) -> list[Any]:
        return batch


def _raw_samples(folder: Path) -> Iterator[list[Any]]:
    """Yield two batches of three samples as the dataset class decodes them."""
    worker_config = WorkerConfig(rank=0, world_size=1, num_workers=0)
    dataset = get_train_dataset(
        folder, batch_size=3, task_encoder=_Raw(), worker_config=worker_config,
        shuffle_buffer_size=None, max_samples_per_sequence=None,
    )  # fmt: skip
    return islice(get_loader(dataset), 2)
