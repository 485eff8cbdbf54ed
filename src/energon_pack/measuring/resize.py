# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The size that a picture gets before it is cut into patches, by the installed processor's rule.

``native`` applies the processor's own ``smart_resize`` once. ``bridge`` goes through the sizes that
Megatron-Bridge 0.6.2 goes through: qwen-vl-utils with factor 28 whatever the model (56, then 28 for
video frames), then the processor with that framework's pixel bounds.
"""

import math
import sys
from typing import Any, NamedTuple

from energon_pack.config import PackingConfig
from energon_pack.family import Family
from energon_pack.measuring.frames import Frames
from energon_pack.refusal import SampleError

Size = tuple[int, int]

_UTILS_FACTOR = 28
_UTILS_IMAGE_TOKENS = (4, 16_384)
_UTILS_FRAME_TOKENS = (128, 768)
_UTILS_VIDEO_PIXELS = 128_000 * _UTILS_FACTOR**2 * 0.9
"""Pixels that qwen-vl-utils allows a whole video, for its default MODEL_SEQ_LEN."""
_MAX_RATIO = 200
_BRIDGE_BOUNDS = (200_704, 1_003_520)
"""min_pixels and max_pixels of Megatron-Bridge's Energon recipe."""


class Resize(NamedTuple):
    """(height, width) in pixels at the end, and those passed through before it (``bridge``)."""

    final: Size
    earlier: tuple[Size, ...] = ()


class Resizer:
    """Sizes of images and videos for one family and configuration."""

    def __init__(self, family: Family, config: PackingConfig) -> None:
        """Take the rules and bounds from the processor."""
        image, video = family.processor.image_processor, family.processor.video_processor
        self._factor = family.factor
        self._temporal = family.temporal_patch_size
        self._whole_video = family.name != "qwen2_5_vl"
        self._bridge = config.preprocessing == "bridge"
        self._image_rule = _rule_of(image)
        self._video_rule = _rule_of(video)
        self._image_bounds = _edges(image.size)
        self._video_bounds = _edges(video.size)
        # An option since transformers 5.24: no frame gets more than this, nor than an even share.
        capped = getattr(video, "cap_pixels_per_frame", None)
        self._most_frame_tokens: int | None = video.max_video_tokens if capped else None
        if self._bridge:
            self._image_bounds = (
                config.min_pixels or _BRIDGE_BOUNDS[0],
                config.max_pixels or _BRIDGE_BOUNDS[1],
            )
            if not self._whole_video:
                self._video_bounds = self._image_bounds

    def image(self, height: int, width: int) -> Resize:
        """Return the size of an image; raises ``SampleError`` (``bad_size``)."""
        earlier: tuple[Size, ...] = ()
        if self._bridge:
            least, most = (tokens * _UTILS_FACTOR**2 for tokens in _UTILS_IMAGE_TOKENS)
            earlier = (_utils_resize((height, width), _UTILS_FACTOR, least, most),)
        final = self._image(*(earlier[-1] if earlier else (height, width)))
        return Resize(final, earlier)

    def video(self, frames: Frames, height: int, width: int) -> Resize:
        """Return the size of a video's used frames; raises ``SampleError`` (``bad_size``)."""
        earlier: tuple[Size, ...] = ()
        if self._bridge:
            earlier = _utils_frame_sizes((height, width), frames.num_before_sampling)
        num_frames = len(frames.indices)
        final = self._video(num_frames, *(earlier[-1] if earlier else (height, width)))
        return Resize(final, earlier)

    def _image(self, height: int, width: int) -> Size:
        return _guarded(
            self._image_rule, height, width, factor=self._factor, bounds=self._image_bounds
        )

    def _video(self, num_frames: int, height: int, width: int) -> Size:
        if not self._whole_video:
            return _guarded(
                self._video_rule, height, width, factor=self._factor, bounds=self._video_bounds
            )
        least, most = self._video_bounds
        if self._most_frame_tokens:
            share = min(self._most_frame_tokens * self._factor**2, most // num_frames)
            most = num_frames * max(share, int(least * 1.05))
        return _guarded(
            self._video_rule, num_frames, height, width, self._temporal,
            factor=self._factor, bounds=(least, most),
        )  # fmt: skip


def _rule_of(processor: Any) -> Any:
    return sys.modules[type(processor).__module__].smart_resize


def _edges(size: Any) -> tuple[int, int]:
    return size["shortest_edge"], size["longest_edge"]


def _guarded(rule: Any, *sizes: int, factor: int, bounds: tuple[int, int]) -> Size:
    try:
        height, width = rule(*sizes, factor=factor, min_pixels=bounds[0], max_pixels=bounds[1])
    except ValueError as error:
        raise SampleError("bad_size", f"the model's resize refuses the picture: {error}") from None
    return height, width


def _utils_frame_sizes(size: Size, num_frames: int) -> tuple[Size, ...]:
    """Follow one frame through qwen-vl-utils: as an image of factor 56, then as video of 28."""
    factor = 2 * _UTILS_FACTOR
    first = _utils_resize(size, factor, *(tokens * factor**2 for tokens in _UTILS_IMAGE_TOKENS))
    least, most = (tokens * _UTILS_FACTOR**2 for tokens in _UTILS_FRAME_TOKENS)
    limit = max(min(most, _UTILS_VIDEO_PIXELS / num_frames * 2), int(least * 1.05))
    return first, _utils_resize(first, _UTILS_FACTOR, least, limit)


def _utils_resize(size: Size, factor: int, least: float, most: float) -> Size:
    """Follow qwen-vl-utils 0.0.14, which rounds a thin side up to one factor first."""
    height, width = size
    if max(size) / min(size) > _MAX_RATIO:
        message = f"the picture's sides are {height} and {width}, more than {_MAX_RATIO} to 1"
        raise SampleError("bad_size", message)
    tall, wide = (max(factor, round(side / factor) * factor) for side in size)
    if tall * wide > most:
        beta = math.sqrt(height * width / most)
        tall, wide = (math.floor(side / beta / factor) * factor for side in size)
    elif tall * wide < least:
        beta = math.sqrt(least / (height * width))
        tall, wide = (math.ceil(side * beta / factor) * factor for side in size)
    if tall == 0 or wide == 0:
        raise SampleError("bad_size", f"qwen-vl-utils would make the picture {wide}x{tall} pixels")
    return tall, wide
