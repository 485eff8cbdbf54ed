# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Families without a tokenizer, encoded pictures and clips, for tests of everything with pixels."""

from fractions import Fraction
from io import BytesIO
from types import SimpleNamespace

import av
import numpy as np
from PIL import Image
from transformers import Qwen2VLImageProcessor, Qwen2VLVideoProcessor, Qwen3VLVideoProcessor

from energon_pack.assembling.visual import VisualBuilder
from energon_pack.candidate import Medium
from energon_pack.config import PackingConfig
from energon_pack.family import Family
from energon_pack.pixels import PixelReader

FAMILIES = ("qwen2_5_vl", "qwen3_vl", "qwen3_5_vl")

_CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


def visual_family(name="qwen3_vl"):
    """Family with the real image and video processors of ``name``."""
    old = name == "qwen2_5_vl"
    patch, mean, std = (14, _CLIP_MEAN, _CLIP_STD) if old else (16, (0.5,) * 3, (0.5,) * 3)
    settings = {"patch_size": patch, "image_mean": mean, "image_std": std}
    size = {"shortest_edge": 3136, "longest_edge": 200_000}
    video_size = size if old else {"shortest_edge": 4096, "longest_edge": 2_000_000}
    video_processor = Qwen2VLVideoProcessor if old else Qwen3VLVideoProcessor
    return Family(
        name=name,
        processor=SimpleNamespace(
            image_processor=Qwen2VLImageProcessor(size=size, **settings),
            video_processor=video_processor(size=video_size, **settings),
        ),
        tokenizer=SimpleNamespace(pad_token_id=7),
        patch_size=patch,
        merge_size=2,
        temporal_patch_size=2,
        image_token_id=151655,
        video_token_id=151656,
        vision_start_id=151652,
        vision_end_id=151653,
        image_mean=mean,
        image_std=std,
        rescale_factor=1 / 255,
        fingerprint="",
    )


def noise(height, width, *, mode="RGB", seed=0):
    """Smooth random picture, so that codecs keep it recognisable."""
    small = np.random.default_rng(seed).integers(0, 256, (5, 7, 4), dtype=np.uint8)
    return Image.fromarray(small, "RGBA").resize((width, height)).convert(mode)


def encoded(image, file_format="PNG", **options):
    """Bytes of ``image`` as a file."""
    buffer = BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def clip(num_frames, *, codec="libx264", container="mp4", size=(96, 128), fps=25, **options):
    """Bytes of a clip in which every frame is another one."""
    buffer = BytesIO()
    with av.open(buffer, "w", format=container) as file:
        stream = file.add_stream(codec, rate=Fraction(fps), options=options)
        stream.height, stream.width = size
        stream.pix_fmt = "yuv420p"
        for at in range(num_frames):
            pixels = np.roll(np.asarray(noise(*size, seed=at // 20)), at * 3, axis=1)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        file.mux(stream.encode(None))
    return buffer.getvalue()


def image_medium(family, data, reference):
    """Medium of an encoded image with the grid that the reference output has."""
    (grid,) = reference["image_grid_thw"].tolist()
    with Image.open(BytesIO(data)) as image:
        return _medium(family, "image", data, (image.height, image.width), grid)


def video_medium(family, data, size, indices, reference):
    """Medium of a clip or frame list with the grid that the reference output has."""
    (grid,) = reference["video_grid_thw"].tolist()
    return _medium(family, "video", data, size, grid, frame_indices=tuple(indices))


def reader_of(family, **settings):
    """What decodes the family's media."""
    return PixelReader(family, PackingConfig(path="x", model="y", **settings))


def visual_of(family, media, dtype="float32", **settings):
    """The media decoded into the visual half of a pack."""
    opened = VisualBuilder(family, dtype).open(media)
    opened.add(media, reader_of(family, **settings).frames(media))
    return opened.close()


def _medium(family, kind, data, size, grid, **more):
    resized = (grid[1] * family.patch_size, grid[2] * family.patch_size)
    return Medium(
        kind=kind, data=data, height=size[0], width=size[1], resized=resized, grid=tuple(grid),
        second_per_grid=0.5, **more,
    )  # fmt: skip
