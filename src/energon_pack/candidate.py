# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A measured sample while it waits for a pack: token ids and compressed media, no pixels."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

RestoreKey = tuple[Any, ...]
Grid = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Medium:
    """One image or one video of a sample, as compressed bytes with its measured sizes."""

    kind: Literal["image", "video"]
    data: bytes | tuple[bytes, ...]
    """Encoded image, encoded clip, or the encoded frames of a frame list."""
    height: int
    """Pixels of the source, after EXIF orientation where that is applied."""
    width: int
    resized: tuple[int, int]
    """(height, width) in pixels after the model's own resize."""
    earlier_sizes: tuple[tuple[int, int], ...] = ()
    """``preprocessing: bridge`` only: (height, width) of the resizes gone through before it."""
    grid: Grid
    """(t, h, w) in patches, as the processor's ``*_grid_thw``."""
    frame_indices: tuple[int, ...] = ()
    """Video only: which shown frames are used, in order; index into ``data`` for a frame list."""
    frame_times: tuple[float, ...] = ()
    """Video only: seconds of each used frame."""
    second_per_grid: float | None = None
    """Video of Qwen2.5-VL only: seconds that one temporal patch covers."""

    @property
    def is_frame_list(self) -> bool:
        """Whether ``data`` holds separately encoded frames."""
        return isinstance(self.data, tuple)

    @property
    def num_bytes(self) -> int:
        """Compressed bytes held."""
        return sum(map(len, self.data)) if isinstance(self.data, tuple) else len(self.data)

    @property
    def num_frames(self) -> int:
        """Frames that are used; 1 for an image."""
        return len(self.frame_indices) if self.kind == "video" else 1

    @property
    def num_patches(self) -> int:
        """Rows of the patch tensor that this medium becomes."""
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass(kw_only=True, slots=True)
class Candidate:
    """A measured sample: exact token ids, which of them are trained, and compressed media."""

    __key__: str
    __restore_key__: RestoreKey
    ids: NDArray[np.int32]
    """(n,) int32, visual placeholders expanded: what the processor would return."""
    trained: NDArray[np.bool_]
    """(n,) bool, True where the token itself is to be predicted."""
    media: tuple[Medium, ...] = ()
    """In the order in which they stand in the conversation."""
    visual_tokens: int = 0
    notes: tuple[str, ...] = ()
    """Slugs of what was assumed or changed, counted: ``assumed_fps``, ``animated_image``."""
    __subflavors__: dict[str, Any] | None = None

    @property
    def length(self) -> int:
        """Tokens, before any alignment padding."""
        return len(self.ids)

    @property
    def num_images(self) -> int:
        """Images, videos not counted."""
        return sum(medium.kind == "image" for medium in self.media)

    @property
    def num_patches(self) -> int:
        """Vision patches of all media."""
        return sum(medium.num_patches for medium in self.media)

    @property
    def media_bytes(self) -> int:
        """Compressed bytes of all media."""
        return sum(medium.num_bytes for medium in self.media)


@dataclass(kw_only=True, slots=True)
class Refused:
    """A sample that will not reach a pack: the window counts it under its cause and drops it."""

    __key__: str
    __restore_key__: RestoreKey
    cause: str
    """One of the slugs in :mod:`energon_pack.refusal`."""
    message: str
    """One sentence for a person."""
    length: int | None = None
    """Tokens, where they are known."""
