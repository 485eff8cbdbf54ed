# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Resized uint8 frames to normalised patches, written once into the tensor that holds the pack."""

from typing import Any, Literal

import torch

from energon_pack.family import Family

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "uint8": torch.uint8}


class PatchWriter:
    """Writes patches in the processors' order: merge blocks by row, then the patches inside each.

    A patch is (channel, temporal, row, column). A missing last frame of a temporal patch repeats
    the frame before it, which also makes an image's single frame the two that the model wants.
    """

    def __init__(self, family: Family, table: torch.Tensor) -> None:
        """Take the geometry and ``table``: (3, 256), what each channel's byte becomes."""
        self._patch = family.patch_size
        self._merge = family.merge_size
        self._temporal = family.temporal_patch_size
        self._table = table

    @property
    def dtype(self) -> torch.dtype:
        """Type of the patches."""
        return self._table.dtype

    @property
    def patch_numel(self) -> int:
        """Values of one patch."""
        return 3 * self._temporal * self._patch**2

    def write(self, frames: torch.Tensor, out: torch.Tensor) -> None:
        """Fill ``out``, (patches, patch_numel), from (frames, 3, height, width) uint8."""
        pairs = frames.split(self._temporal)
        for pair, rows in zip(pairs, out.chunk(len(pairs)), strict=True):
            missing = self._temporal - len(pair)
            whole = torch.cat((pair, pair[-1:].expand(missing, -1, -1, -1))) if missing else pair
            self._write_rows(self._arrange(whole), rows)

    def _write_rows(self, arranged: torch.Tensor, rows: torch.Tensor) -> None:
        patches = arranged.reshape(len(rows), 3, -1)
        target = rows.view(len(rows), 3, -1)
        for channel, values in enumerate(self._table):
            target[:, channel] = values[patches[:, channel].int()]

    def _arrange(self, frames: torch.Tensor) -> torch.Tensor:
        step = self._patch * self._merge
        height, width = frames.shape[-2:]
        blocks = frames.reshape(
            len(frames), 3, height // step, self._merge, self._patch,
            width // step, self._merge, self._patch,
        )  # fmt: skip
        return blocks.permute(2, 5, 3, 6, 1, 0, 4, 7)


def patch_writer(family: Family, kind: Literal["image", "video"], pixel_dtype: str) -> PatchWriter:
    """Return the writer whose numbers are those of the family's own processor for ``kind``."""
    dtype = _DTYPES[pixel_dtype]
    every_byte = torch.arange(256, dtype=torch.uint8).expand(3, 1, 256)
    if dtype is torch.uint8:
        return PatchWriter(family, every_byte[:, 0])
    processor = _processor(family, kind)
    normalised = processor.rescale_and_normalize(
        every_byte[None],
        processor.do_rescale,
        processor.rescale_factor,
        processor.do_normalize,
        tuple(processor.image_mean),
        tuple(processor.image_std),
    )
    return PatchWriter(family, normalised[0, :, 0].to(dtype))


def mean_and_std(family: Family, kind: Literal["image", "video"]) -> torch.Tensor:
    """Return (2, 3) float32: what the processor subtracts from a byte and divides it by."""
    processor = _processor(family, kind)
    return torch.tensor([processor.image_mean, processor.image_std]) * (
        1.0 / processor.rescale_factor
    )


def _processor(family: Family, kind: Literal["image", "video"]) -> Any:
    return family.processor.image_processor if kind == "image" else family.processor.video_processor
