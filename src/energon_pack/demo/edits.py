# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Changes made to a picture, each with the words that describe it truly."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from PIL import Image, ImageEnhance, ImageFilter, ImageOps

Change = Callable[[Image.Image], Image.Image]
"""Keeps the picture's size, so that it can be applied to every frame of a clip."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change and its description."""

    words: str
    """Completes "the picture was ..."."""
    apply: Change


def _grey(image: Image.Image) -> Image.Image:
    return ImageOps.grayscale(image).convert("RGB")


EDITS: Final = (
    Edit("left as it is", lambda image: image),
    Edit("turned into shades of grey", _grey),
    Edit("mirrored from left to right", ImageOps.mirror),
    Edit("turned upside down", ImageOps.flip),
    Edit("turned into its negative", ImageOps.invert),
    Edit("made darker", lambda image: ImageEnhance.Brightness(image).enhance(0.5)),
    Edit("made brighter", lambda image: ImageEnhance.Brightness(image).enhance(1.6)),
    Edit("blurred", lambda image: image.filter(ImageFilter.GaussianBlur(4))),
)

PARTS: Final = {
    "all of it": (0.0, 0.0, 1.0, 1.0),
    "its left half": (0.0, 0.0, 0.5, 1.0),
    "its right half": (0.5, 0.0, 1.0, 1.0),
    "its upper half": (0.0, 0.0, 1.0, 0.5),
    "its lower half": (0.0, 0.5, 1.0, 1.0),
    "its middle": (0.2, 0.2, 0.8, 0.8),
}
"""Name of a part: (left, top, right, bottom) as shares of the picture."""


def crop(image: Image.Image, part: str) -> Image.Image:
    """Cut out one of ``PARTS``."""
    left, top, right, bottom = PARTS[part]
    width, height = image.size
    return image.crop(
        (round(left * width), round(top * height), round(right * width), round(bottom * height))
    )


def scale(image: Image.Image, longest: int) -> Image.Image:
    """Resize so that the longer edge has ``longest`` pixels."""
    factor = longest / max(image.size)
    width, height = (max(1, round(edge * factor)) for edge in image.size)
    return image.resize((width, height), Image.Resampling.BILINEAR)


def pick(chance: random.Random) -> tuple[str, Edit]:
    """Choose a part and an edit."""
    return chance.choice(list(PARTS)), chance.choice(EDITS)
