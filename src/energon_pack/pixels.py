# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A chosen sample's media to resized RGB frames, with the processor's own resize."""

from collections.abc import Iterator

import torch
from transformers.image_utils import SizeDict

from energon_pack.candidate import Medium
from energon_pack.clips import decode_clip
from energon_pack.config import PackingConfig
from energon_pack.family import Family
from energon_pack.images import decode_image
from energon_pack.refusal import SampleError


class PixelReader:
    """Decodes media that were measured; a fault costs the sample, not the run."""

    def __init__(self, family: Family, config: PackingConfig) -> None:
        """Take the resize from the family's processor, orientation and alpha from the config."""
        self._processors = {
            "image": family.processor.image_processor,
            "video": family.processor.video_processor,
        }
        self._exif = config.exif
        self._alpha = config.alpha

    def decode(self, medium: Medium) -> torch.Tensor:
        """Return (frames, 3, height, width) uint8, resized; an image is one frame.

        In memory the channels are innermost, as decoders write them: the resize is twice as fast.
        Raises ``SampleError("decode_failed")`` when the bytes break or are not what was measured.
        """
        num_frames = len(medium.frame_indices) if medium.kind == "video" else 1
        frames = torch.empty((num_frames, *medium.resized, 3), dtype=torch.uint8)
        frames = frames.permute(0, 3, 1, 2)
        try:
            for slot, picture in zip(frames, self._pictures(medium), strict=True):
                slot.copy_(self._resize(medium, picture))
        except Exception as error:
            raise SampleError(
                "decode_failed", f"{medium.kind} broke in decoding: {error}"
            ) from error
        return frames

    def _pictures(self, medium: Medium) -> Iterator[torch.Tensor]:
        if isinstance(medium.data, tuple):
            for index in medium.frame_indices:
                yield decode_image(medium.data[index], exif=self._exif, alpha=self._alpha)
        elif medium.kind == "video":
            yield from decode_clip(medium.data, medium.frame_indices)
        else:
            yield decode_image(medium.data, exif=self._exif, alpha=self._alpha)

    def _resize(self, medium: Medium, picture: torch.Tensor) -> torch.Tensor:
        if picture.shape[-2:] != (medium.height, medium.width):
            height, width = picture.shape[-2:]
            raise ValueError(
                f"it is {width}x{height} pixels where {medium.width}x{medium.height} were measured"
            )
        processor = self._processors[medium.kind]
        height, width = medium.resized
        resized: torch.Tensor = processor.resize(
            picture[None], SizeDict(height=height, width=width), resample=processor.resample
        )
        return resized[0]
