# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A chosen sample's media to resized RGB frames, with the processor's own resize.

One temporal patch is decoded, resized and handed on at a time, so that a worker never holds more
than a picture and what becomes of it, however long the video is.

In memory the channels of a pixel are neighbours, as decoders write them: the resize then takes half
the time, and gives the same bytes. ``preprocessing: bridge`` goes through the sizes that
Megatron-Bridge goes through: Pillow's resize first and, for frames, torchvision's to whole numbers
of type float32, from which the processor makes fractions.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any

import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as tvf
from transformers.image_utils import SizeDict

from energon_pack.candidate import Medium
from energon_pack.config import PackingConfig
from energon_pack.decoding.clips import decode_clip
from energon_pack.decoding.images import ImageDecoder
from energon_pack.family import Family
from energon_pack.refusal import SampleError


class PixelReader:
    """Decodes media that were measured; a fault costs the sample, not the run."""

    def __init__(self, family: Family, config: PackingConfig) -> None:
        """Take the resize from the family's processor, orientation and alpha from the config."""
        self._resize = {
            "image": _resize_of(family.processor.image_processor),
            "video": _resize_of(family.processor.video_processor),
        }
        self._temporal = family.temporal_patch_size
        # Megatron-Bridge's chain has dropped alpha before it reaches a resize.
        alpha = "drop" if config.preprocessing == "bridge" else config.alpha
        self._images = ImageDecoder(exif=config.exif, alpha=alpha)

    def frames(self, media: Iterable[Medium]) -> Iterator[torch.Tensor]:
        """Yield each temporal patch of each medium, (frames, 3, height, width) uint8, resized.

        An image is one frame, and the last patch of a video has fewer where the frames run out.
        Videos of ``preprocessing: bridge`` are float32. Raises ``SampleError("decode_failed")``
        when the bytes break or are not what was measured.
        """
        for medium in media:
            try:
                yield from self._temporal_patches(medium)
            except Exception as error:  # decoders raise whatever broken bytes provoke
                known = isinstance(error, SampleError)
                reason = str(error) if known else "the file is damaged or cut short"
                message = f"the {medium.kind} broke while it was decoded: {reason}"
                raise SampleError("decode_failed", message) from error

    def _temporal_patches(self, medium: Medium) -> Iterator[torch.Tensor]:
        if not medium.data:
            raise SampleError("decode_failed", "its bytes could not be read back from spill_dir")
        dtype = torch.float32 if len(medium.earlier_sizes) > 1 else torch.uint8
        pictures = self._pictures(medium)
        for start in range(0, medium.num_frames, self._temporal):
            count = min(self._temporal, medium.num_frames - start)
            frames = torch.empty((count, *medium.resized, 3), dtype=dtype).permute(0, 3, 1, 2)
            for slot in frames:
                slot.copy_(self._resized(medium, next(pictures)))
            yield frames

    def _pictures(self, medium: Medium) -> Iterator[torch.Tensor]:
        if isinstance(medium.data, tuple):
            for index in medium.frame_indices:
                yield self._image(medium, medium.data[index])
        elif medium.kind == "video":
            yield from decode_clip(medium.data, medium.frame_indices)
        else:
            yield self._image(medium, medium.data)

    def _image(self, medium: Medium, data: bytes) -> torch.Tensor:
        with _pillow_limit(medium.height * medium.width):
            return self._images.decode(data)

    def _resized(self, medium: Medium, picture: torch.Tensor) -> torch.Tensor:
        if picture.shape[1:] != (medium.height, medium.width):
            raise SampleError(
                "decode_failed",
                f"it is {picture.shape[2]}x{picture.shape[1]} pixels, "
                f"its header said {medium.width}x{medium.height}",
            )
        if medium.earlier_sizes:
            picture = _through_earlier_sizes(picture, medium.earlier_sizes)
        height, width = medium.resized
        return self._resize[medium.kind](picture[None], SizeDict(height=height, width=width))[0]


def _resize_of(processor: Any) -> Callable[[torch.Tensor, SizeDict], torch.Tensor]:
    """Return the processor's resize to a given size.

    Since transformers 5.24 the model's own ``resize`` chooses the size as well and then calls the
    one that it inherits.
    """
    resize = next(
        vars(owner)["resize"]
        for owner in type(processor).__mro__
        if "resize" in vars(owner) and "factor" not in signature(vars(owner)["resize"]).parameters
    )
    return partial(resize, processor, resample=processor.resample)


@contextmanager
def _pillow_limit(num_pixels: int) -> Iterator[None]:
    """Let Pillow allocate what was measured; its own limit would overrule max_source_pixels."""
    before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, 2 * num_pixels
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = before


def _through_earlier_sizes(
    picture: torch.Tensor, sizes: tuple[tuple[int, int], ...]
) -> torch.Tensor:
    (height, width), *more = sizes
    image = Image.fromarray(picture.permute(1, 2, 0).numpy()).resize((width, height))
    picture = tvf.pil_to_tensor(image)
    for size in more:
        picture = tvf.resize(
            picture, list(size), interpolation=InterpolationMode.BICUBIC, antialias=True
        ).float()
    return picture
