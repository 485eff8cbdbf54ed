# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A raw sample to its exact token ids and media sizes, without decoding.

1. ``sources`` turns whatever Energon read into a conversation with its media in their places.
2. Headers give each medium's size, times and frames; the processor's rules give grid and text.
3. One pass of the tokenizer gives the ids, one pass over the ids what is trained.

Example: a 1024x768 JPEG for Qwen3-VL is resized to 1024x768, a grid of (1, 48, 64) patches, so 768
visual tokens; with a short question and answer the candidate has about 1,040 tokens.
It costs 0.6 ms for that sample and 1 ms for a clip, nearly all of it the tokenizer.
"""

import textwrap
from collections.abc import Sequence
from typing import Any

from energon_pack.candidate import Candidate, Medium, Refused
from energon_pack.config import PackingConfig
from energon_pack.family import Family
from energon_pack.measuring.frames import Frames, FrameSampler
from energon_pack.measuring.labels import TurnMarker
from energon_pack.measuring.resize import Resizer
from energon_pack.measuring.text import TextEncoder
from energon_pack.media import ImageSize, image_size
from energon_pack.reading.conversation import Conversation, RawMedium
from energon_pack.reading.demux import read_clip
from energon_pack.reading.sources import read_conversation
from energon_pack.refusal import SampleError

_MESSAGE_LENGTH = 300
"""Characters; a broken sample may hold anything of any length."""


class Measurer:
    """Measures raw samples for one family and configuration."""

    def __init__(self, family: Family, config: PackingConfig) -> None:
        """Take the rules from the processor."""
        self._family = family
        self._config = config
        self._resizer = Resizer(family, config)
        self._sampler = FrameSampler(family, config)
        self._text = TextEncoder(family)
        self._marker = TurnMarker(family.tokenizer, config.train_turns)

    def measure(self, sample: Any) -> Candidate | Refused:
        """Measure one raw sample; whatever is wrong with it comes back as ``Refused``."""
        try:
            return self._measure(sample)
        except SampleError as error:
            return _refused(sample, error.cause, str(error), error.length)
        except MemoryError:
            return _refused(sample, "unexpected", "measuring it needs more memory than there is")
        except Exception as error:  # noqa: BLE001 - one sample must not end a run
            return _refused(sample, "unexpected", f"{type(error).__name__}: {error}")

    def _measure(self, sample: Any) -> Candidate:
        conversation = read_conversation(sample, as_bridge=self._config.preprocessing == "bridge")
        self._check_image_count(conversation)
        notes: set[str] = set()
        media = tuple(self._medium(raw, notes) for raw in conversation.media)
        visual_tokens = sum(medium.num_patches for medium in media) // self._family.merge_size**2
        self._check_visual_tokens(visual_tokens)
        ids = self._text.encode(conversation, media, most_tokens=self._config.seq_length)
        turns = sum(message["role"] == "assistant" for message in conversation.messages)
        trained = self._marker.trained(ids, turns)
        self._check_length(len(ids))
        return Candidate(
            __key__=sample.__key__,
            __restore_key__=sample.__restore_key__,
            __subflavors__=sample.__subflavors__,
            ids=ids,
            trained=trained,
            media=media,
            visual_tokens=visual_tokens,
            notes=tuple(sorted(notes)),
        )

    def _medium(self, raw: RawMedium, notes: set[str]) -> Medium:
        if raw.kind == "image":
            return self._image(raw.data, notes)
        if isinstance(raw.data, bytes):
            clip = read_clip(raw.data, max_pixels=self._config.max_source_pixels)
            return self._video(raw.data, clip.height, clip.width, self._sampler.clip(clip))
        frames = self._sampler.frame_list(raw, notes)
        size = self._frame_size([raw.data[at] for at in frames.indices])
        return self._video(raw.data, size.height, size.width, frames)

    def _image(self, data: Any, notes: set[str]) -> Medium:
        size = self._size(data)
        if size.animated:
            notes.add("animated_image")
        resize = self._resizer.image(size.height, size.width)
        return Medium(
            kind="image",
            data=data,
            height=size.height,
            width=size.width,
            resized=resize.final,
            earlier_sizes=resize.earlier,
            grid=self._grid(1, resize.final),
        )

    def _video(self, data: Any, height: int, width: int, frames: Frames) -> Medium:
        resize = self._resizer.video(frames, height, width)
        patches = -(-len(frames.indices) // self._family.temporal_patch_size)
        return Medium(
            kind="video",
            data=data,
            height=height,
            width=width,
            resized=resize.final,
            earlier_sizes=resize.earlier,
            grid=self._grid(patches, resize.final),
            frame_indices=frames.indices,
            frame_times=frames.times,
            second_per_grid=None if self._family.uses_mrope_positions else frames.second_per_grid,
        )

    def _grid(self, patches: int, size: tuple[int, int]) -> tuple[int, int, int]:
        side = self._family.patch_size
        return patches, size[0] // side, size[1] // side

    def _size(self, data: bytes) -> ImageSize:
        return image_size(data, exif=self._config.exif, max_pixels=self._config.max_source_pixels)

    def _frame_size(self, frames: Sequence[bytes]) -> ImageSize:
        sizes = {self._size(frame)[:2] for frame in frames}
        if len(sizes) > 1:
            first, second = sorted(sizes)[:2]
            raise SampleError(
                "bad_video",
                f"its frames differ in size: {first[1]}x{first[0]} and {second[1]}x{second[0]}",
            )
        return ImageSize(*sizes.pop())

    def _check_image_count(self, conversation: Conversation) -> None:
        limit = self._config.max_num_images
        count = sum(raw.kind == "image" for raw in conversation.media)
        if limit is not None and count > limit:
            raise SampleError(
                "too_many_images", f"it has {count} images, max_num_images is {limit}"
            )

    def _check_visual_tokens(self, count: int) -> None:
        limit = self._config.max_visual_tokens
        if limit is not None and count > limit:
            raise SampleError(
                "too_many_visual_tokens",
                f"it has {count} visual tokens, max_visual_tokens is {limit}",
            )

    def _check_length(self, length: int) -> None:
        if length > self._config.seq_length:
            raise SampleError(
                "overlong",
                f"it has {length} tokens, seq_length is {self._config.seq_length}",
                length=length,
            )


def _refused(sample: Any, cause: str, message: str, length: int | None = None) -> Refused:
    return Refused(
        __key__=getattr(sample, "__key__", ""),
        __restore_key__=getattr(sample, "__restore_key__", ()),
        cause=cause,
        message=textwrap.shorten(message, _MESSAGE_LENGTH, placeholder=" ..."),
        length=length,
    )
