# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The loaders that are compared, all with one worker over the same shards."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import data
import torch
from eager import EagerEncoder
from megatron.bridge.models.qwen_vl.data.energon import QwenVLTaskEncoder
from megatron.energon import WorkerConfig, get_savable_loader, get_train_dataset
from transformers import AutoProcessor

from energon_pack.config import PackingConfig
from energon_pack.loader import build_loader

PIXELS = (200_704, 1_003_520)
"""min_pixels and max_pixels of Megatron-Bridge's Energon recipe, given to ours too."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One loader over one dataset."""

    loader: Literal["ours", "eager", "in_batch", "unpacked"]
    data: str
    seq_length: int = 8192
    buffer: int = 16
    shuffle: int = 100
    pixel_dtype: str = "float32"
    preprocessing: str = "native"
    micro_batch: int = 1

    def __str__(self) -> str:
        """Name the case on one line."""
        shown = [self.loader, self.data, f"buffer {self.buffer}", f"shuffle {self.shuffle}"]
        if self.loader == "ours":
            shown += [self.pixel_dtype, self.preprocessing]
        elif self.loader != "eager":
            shown += [f"micro batch {self.micro_batch}"]
        return ", ".join(shown)


def open_loader(case: Case) -> Any:
    """Return the case's loader; iterating it starts the worker."""
    if case.loader == "ours":
        return build_loader(_config(case))
    folder = data.build("clips_as_frames" if case.data == "clips" else case.data)
    packed = {"packing_buffer_size": case.buffer} if case.loader == "eager" else {}
    dataset = get_train_dataset(
        folder,
        batch_size=case.micro_batch,
        task_encoder=encoder(case),
        worker_config=WorkerConfig(rank=0, world_size=1, num_workers=1),
        shuffle_buffer_size=case.shuffle,
        max_samples_per_sequence=None,
        **packed,
    )
    # Filling the eager baseline's buffers takes longer than the watchdog waits.
    return get_savable_loader(dataset, watchdog_timeout_seconds=None)


def encoder(case: Case) -> QwenVLTaskEncoder:
    """Return the baseline's encoder."""
    processor = AutoProcessor.from_pretrained(data.processor())
    # Released code lets the processor drop most stored frames; here both sides keep them all.
    processor.video_processor.do_sample_frames = False
    make = EagerEncoder if case.loader == "eager" else QwenVLTaskEncoder
    return make(
        tokenizer=processor.tokenizer,
        image_processor=processor,
        patch_size=16,
        max_padding_length=case.seq_length,
        min_pixels=PIXELS[0],
        max_pixels=PIXELS[1],
        max_visual_tokens=None,
        pad_to_max_length=case.loader == "unpacked",
        enable_in_batch_packing=case.loader != "unpacked",
    )


def _config(case: Case) -> PackingConfig:
    return replace(
        PackingConfig(path=str(data.build(case.data)), model=str(data.processor())),
        seq_length=case.seq_length,
        packing_buffer_size=case.buffer,
        shuffle_buffer_size=case.shuffle,
        num_workers=1,
        min_pixels=PIXELS[0],
        max_pixels=PIXELS[1],
        pixel_dtype=case.pixel_dtype,
        preprocessing=case.preprocessing,
    )


def useful_tokens(pack: dict[str, Any]) -> int:
    """Return the tokens of a batch that are no padding."""
    if "pack_info" in pack:
        return pack["pack_info"].tokens
    if pack.get("cu_seqlens_q") is not None:
        return int(pack["cu_seqlens_q"].view(-1)[-1])
    return int(torch.isin(pack["input_ids"], _PADDING, invert=True).sum())


_PADDING = torch.tensor([0, 151643])
"""What the released collate function and the processor pad with."""


def tensor_bytes(pack: dict[str, Any]) -> int:
    """Return the bytes of a batch's tensors."""
    visual = vars(pack["visual_inputs"]) if pack.get("visual_inputs") is not None else {}
    values = [*pack.values(), *visual.values()]
    return sum(value.nbytes for value in values if hasattr(value, "nbytes"))
