# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Encoded pictures and clips of every kind, made from a seed."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from io import BytesIO
from typing import Any

import av
import numpy as np
from PIL import Image

FORMATS: dict[str, tuple[str, ...]] = {
    "JPEG": ("RGB", "L", "CMYK"),
    "PNG": ("RGB", "RGBA", "L", "LA", "P", "1", "I;16"),
    "WEBP": ("RGB", "RGBA"),
    "TIFF": ("RGB", "RGBA", "L", "LA", "P", "1", "CMYK", "YCbCr", "LAB", "I", "F", "I;16"),
    "BMP": ("RGB", "L", "P", "1"),
    "GIF": ("RGB", "L", "P", "1"),
}
"""Which modes Pillow writes into which format."""


def picture(height: int, width: int, *, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Soft random colours, which encode fast and small."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((width, height))
    if mode == "I;16":
        return Image.fromarray(np.array(image.convert("L")).astype(np.uint16) * 257)
    if mode == "LAB":
        return Image.merge("LAB", image.split())
    return image.convert(mode)


def encode(image: Image.Image, file_format: str = "JPEG", **options: Any) -> bytes:
    """Write a picture; ``orientation=6`` adds that EXIF tag."""
    orientation = options.pop("orientation", None)
    if orientation is not None:
        exif = Image.Exif()
        exif[0x0112] = orientation
        options["exif"] = exif
    file = BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def frames(count: int, height: int, width: int, *, seed: int = 0) -> np.ndarray:
    """(count, height, width, 3) uint8 pictures that differ."""
    still = np.array(picture(height, width, seed=seed))
    return np.stack([np.roll(still, 3 * at, axis=1) for at in range(count)])


def clip(
    pictures: np.ndarray,
    *,
    codec: str = "libx264",
    container: str = "mp4",
    fps: Fraction | int = 30,
    ticks: Sequence[int] | None = None,
    **options: str,
) -> bytes:
    """Encode pictures; ``ticks`` gives their times in 1/1000 s instead of an even rate.

    x265 of PyAV 19 now and then cannot write one or two pictures: give it six.
    """
    base = 1 / Fraction(fps) if ticks is None else Fraction(1, 1000)
    times = list(ticks or range(len(pictures)))
    if codec == "libx265":
        options = {"x265-params": "log-level=none"}
    file = BytesIO()
    with _own_priority(), av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=fps, options=options)
        stream.height, stream.width = pictures.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.thread_count = 1
        stream.time_base = stream.codec_context.time_base = base
        for time, pixels in zip(times, pictures, strict=True):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = time, base
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    return file.getvalue()


@contextmanager
def _own_priority() -> Iterator[None]:
    """Undo what SVT-AV1 does as root: its caller, and all it forks, take the machine first."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def decoded(data: bytes) -> np.ndarray:
    """All frames that a player would show, (n, height, width, 3) uint8."""
    with av.open(BytesIO(data)) as container:
        return np.stack([f.to_ndarray(format="rgb24") for f in container.decode(video=0)])


def average_rate(data: bytes) -> float:
    """Average frames a second, as readers of clips take it."""
    with av.open(BytesIO(data)) as container:
        return float(container.streams.video[0].average_rate)
