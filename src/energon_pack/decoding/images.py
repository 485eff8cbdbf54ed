# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Encoded image bytes to RGB pixels, exactly as the Hugging Face processor sees a Pillow image."""

import mmap
from contextlib import suppress
from io import BytesIO
from typing import Literal, cast

import simplejpeg
import torch
from PIL import Image, ImageOps
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms.v2.functional import pil_to_tensor

from energon_pack.alignment import padded_length

_ORIENTATION = 0x0112
_DIRECT_MODES = ("RGB", "L")
"""JPEG modes that others than Pillow decode to the same bytes; CMYK they convert differently."""
_HUGE_PAGE_BYTES = 2 * 1024 * 1024
_MOST_KEPT_BYTES = 64 * 1024 * 1024
"""Memory kept for the next picture, 22 megapixels; a larger picture has memory of its own."""


class ImageDecoder:
    """Decodes one picture after another into the same memory.

    A picture of 12 megapixels takes 36 MB. As a new tensor each time it costs a page fault every
    4 KiB, a third of its decoding, and leaves the heap in pieces.
    """

    def __init__(
        self, *, exif: Literal["ignore", "apply"], alpha: Literal["white", "drop"]
    ) -> None:
        """Take orientation and alpha as the config names them."""
        self._exif = exif
        self._alpha = alpha
        self._memory: mmap.mmap | None = None

    def decode(self, data: bytes) -> torch.Tensor:
        """Decode the first picture in ``data`` to (3, height, width) uint8 RGB.

        The tensor is valid until the next call. JPEG goes through libjpeg-turbo, which saves
        Pillow's copies, everything else through Pillow: palette, grey and 16-bit pictures become
        RGB by its rules.
        """
        image: Image.Image = Image.open(BytesIO(data))
        turned = self._exif == "apply" and image.getexif().get(_ORIENTATION, 1) != 1
        if image.format == "JPEG" and image.mode in _DIRECT_MODES and not turned:
            return self._jpeg(data, image.width * image.height * 3)
        if turned:
            image = ImageOps.exif_transpose(image)
        return cast(torch.Tensor, pil_to_tensor(_to_rgb(image, self._alpha)))

    def _jpeg(self, data: bytes, num_bytes: int) -> torch.Tensor:
        try:
            pixels = simplejpeg.decode_jpeg(data, "RGB", buffer=self._room(num_bytes))
        except ValueError:  # it stops at what others only warn of
            encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            return cast(torch.Tensor, decode_jpeg(encoded, mode=ImageReadMode.RGB))
        return torch.from_numpy(pixels).permute(2, 0, 1)

    def _room(self, num_bytes: int) -> mmap.mmap:
        if self._memory is not None and len(self._memory) >= num_bytes:
            return self._memory
        memory = _huge_pages(num_bytes)
        if num_bytes <= _MOST_KEPT_BYTES:
            self._memory = memory
        return memory


def _huge_pages(num_bytes: int) -> mmap.mmap:
    size = padded_length(num_bytes, _HUGE_PAGE_BYTES)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _to_rgb(image: Image.Image, alpha: Literal["white", "drop"]) -> Image.Image:
    if alpha == "drop" or not image.has_transparency_data:
        return image.convert("RGB")
    shown = image.convert("RGBA")
    background = Image.new("RGB", shown.size, (255, 255, 255))
    background.paste(shown, mask=shown.getchannel("A"))
    return background
