# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The visual half of a batch, in the form that Megatron-Bridge's ``vlm_step`` walks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch

from energon_pack.candidate import Medium
from energon_pack.decoding.patchify import DTYPES, PatchWriter, mean_and_std, normalize
from energon_pack.decoding.shared_memory import PackMemory, PatchSheet
from energon_pack.family import Family

_PATCHES = {"pixel_values", "pixel_values_videos"}


@dataclass(kw_only=True)
class VisualInputs:
    """Patches and grids of one pack in conversation order; each attribute is a tensor or None.

    Not slotted and without other attributes: ``vlm_step`` moves every value in ``__dict__`` to the
    device, then calls :meth:`normalized_for_model`.
    """

    pixel_values: torch.Tensor | None = None
    """(patches, 3 * temporal * patch * patch) of the images."""
    image_grid_thw: torch.Tensor | None = None
    """(images, 3) int64."""
    pixel_values_videos: torch.Tensor | None = None
    """(patches, 3 * temporal * patch * patch) of the videos."""
    video_grid_thw: torch.Tensor | None = None
    """(videos, 3) int64."""
    second_per_grid_ts: torch.Tensor | None = None
    """(videos,) float32, seconds that a temporal patch covers; Qwen2.5-VL only."""
    patch_mean_std: torch.Tensor | None = None
    """(2, 3) float32, with uint8 patches only: what normalises them."""

    def normalized_for_model(self) -> dict[str, torch.Tensor]:
        """Return the model's keyword arguments, uint8 patches normalised where they are."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        mean_std = values.pop("patch_mean_std")
        arguments = {name: value for name, value in values.items() if value is not None}
        if mean_std is not None:
            for name in _PATCHES & arguments.keys():
                arguments[name] = normalize_patches(arguments[name], mean_std)
        return arguments

    def pin_memory(self) -> "VisualInputs":
        """Return a copy in pinned memory; DataLoaders call this on objects they do not know."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return VisualInputs(
            **{
                name: None if value is None else value.pin_memory()
                for name, value in values.items()
            }
        )


def normalize_patches(patches: torch.Tensor, mean_std: torch.Tensor) -> torch.Tensor:
    """Turn uint8 (patches, 3 * k) into the float32 that the processor would have returned."""
    return normalize(patches.view(len(patches), 3, -1), mean_std).view(patches.shape)


class VisualBuilder:
    """Opens the visual half of one pack after the other."""

    def __init__(self, family: Family, pixel_dtype: str) -> None:
        """Take the geometry and the normalisation from the family."""
        self.writer = PatchWriter(family, DTYPES[pixel_dtype])
        self.mean_std = mean_and_std(family) if pixel_dtype == "uint8" else None
        self.with_seconds = family.name == "qwen2_5_vl"
        self._memory = PackMemory()

    def open(self, media: Sequence[Medium]) -> "OpenVisual":
        """Return an empty visual half with room for ``media``."""
        rows: dict[str, int] = {}
        for medium in media:
            rows[medium.kind] = rows.get(medium.kind, 0) + medium.num_patches
        numel, dtype = self.writer.patch_numel, self.writer.dtype
        sheets = {kind: self._memory.sheet((count, numel), dtype) for kind, count in rows.items()}
        return OpenVisual(self, sheets)


class OpenVisual:
    """The visual half of a pack while its samples are decoded into it."""

    def __init__(self, builder: VisualBuilder, sheets: dict[str, PatchSheet]) -> None:
        """Take an empty sheet for each kind of media there is."""
        self._builder = builder
        self._sheets = sheets
        self._media: dict[str, list[Medium]] = {"image": [], "video": []}

    def add(self, media: Sequence[Medium], frames: Iterator[torch.Tensor]) -> None:
        """Write all of a sample's media, or, when ``frames`` raises, nothing.

        ``frames`` are the media's temporal patches in order, each (frames, 3, height, width).
        """
        rows = {kind: sheet.num_rows for kind, sheet in self._sheets.items()}
        try:
            for medium in media:
                for _ in range(medium.grid[0]):
                    for band in self._builder.writer.bands(next(frames)):
                        self._sheets[medium.kind].append(band)
        except Exception:
            for kind, sheet in self._sheets.items():
                sheet.cut(rows[kind])
            raise
        for medium in media:
            self._media[medium.kind].append(medium)

    def close(self) -> VisualInputs:
        """Return what was added."""
        images, videos = self._media["image"], self._media["video"]
        return VisualInputs(
            pixel_values=self._sheets["image"].tensor() if images else None,
            image_grid_thw=_grids(images),
            pixel_values_videos=self._sheets["video"].tensor() if videos else None,
            video_grid_thw=_grids(videos),
            second_per_grid_ts=_seconds(videos) if videos and self._builder.with_seconds else None,
            patch_mean_std=self._builder.mean_std,
        )


def _grids(media: list[Medium]) -> torch.Tensor | None:
    return torch.tensor([medium.grid for medium in media]) if media else None


def _seconds(videos: list[Medium]) -> torch.Tensor:
    return torch.tensor([video.second_per_grid for video in videos], dtype=torch.float32)
