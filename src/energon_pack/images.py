# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Encoded image bytes to RGB pixels, exactly as the Hugging Face processor sees a Pillow image."""

from io import BytesIO
from typing import Literal, cast

import torch
from PIL import Image, ImageOps
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms.v2.functional import pil_to_tensor

_ORIENTATION = 0x0112
_DIRECT_MODES = ("RGB", "L")
"""JPEG modes that torchvision decodes to the bytes Pillow gives; CMYK it converts differently."""


def decode_image(
    data: bytes, *, exif: Literal["ignore", "apply"], alpha: Literal["white", "drop"]
) -> torch.Tensor:
    """Decode the first picture in ``data`` to (3, height, width) uint8 RGB.

    JPEG goes through torchvision, which saves Pillow's copies, everything else through Pillow:
    palette, grey and 16-bit pictures become RGB by its rules.
    """
    image: Image.Image = Image.open(BytesIO(data))
    turned = exif == "apply" and image.getexif().get(_ORIENTATION, 1) != 1
    if image.format == "JPEG" and image.mode in _DIRECT_MODES and not turned:
        encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return cast(torch.Tensor, decode_jpeg(encoded, mode=ImageReadMode.RGB))
    if turned:
        image = ImageOps.exif_transpose(image)
    return cast(torch.Tensor, pil_to_tensor(_to_rgb(image, alpha)))


def _to_rgb(image: Image.Image, alpha: Literal["white", "drop"]) -> Image.Image:
    if alpha == "drop" or not image.has_transparency_data:
        return image.convert("RGB")
    shown = image.convert("RGBA")
    background = Image.new("RGB", shown.size, (255, 255, 255))
    background.paste(shown, mask=shown.getchannel("A"))
    return background
