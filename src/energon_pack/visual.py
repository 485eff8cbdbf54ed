# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The visual half of a batch, in the form that Megatron-Bridge's ``vlm_step`` walks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch

from energon_pack.candidate import Medium
from energon_pack.family import Family
from energon_pack.patchify import DTYPES, PatchWriter, mean_and_std, normalize
from energon_pack.shared_memory import PackMemory, PatchSheet

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
    """Turns one pack's decoded media into its :class:`VisualInputs`."""

    def __init__(self, family: Family, pixel_dtype: str) -> None:
        """Take the geometry and the normalisation from the family."""
        self._writer = PatchWriter(family, DTYPES[pixel_dtype])
        self._memory = PackMemory()
        self._mean_std = mean_and_std(family) if pixel_dtype == "uint8" else None
        self._with_seconds = family.name == "qwen2_5_vl"

    def build(self, media: Sequence[Medium], frames: Iterator[torch.Tensor]) -> VisualInputs:
        """Write the patches of ``media``; each of ``frames`` is let go once it is written."""
        images = [medium for medium in media if medium.kind == "image"]
        videos = [medium for medium in media if medium.kind == "video"]
        sheets = {group[0].kind: self._sheet(group) for group in (images, videos) if group}
        for medium in media:
            for band in self._writer.bands(next(frames)):
                sheets[medium.kind].append(band)
        return VisualInputs(
            pixel_values=sheets["image"].tensor() if images else None,
            image_grid_thw=_grids(images),
            pixel_values_videos=sheets["video"].tensor() if videos else None,
            video_grid_thw=_grids(videos),
            second_per_grid_ts=_seconds(videos) if videos and self._with_seconds else None,
            patch_mean_std=self._mean_std,
        )

    def _sheet(self, media: list[Medium]) -> PatchSheet:
        num_patches = sum(medium.num_patches for medium in media)
        return self._memory.sheet((num_patches, self._writer.patch_numel), self._writer.dtype)


def _grids(media: list[Medium]) -> torch.Tensor | None:
    return torch.tensor([medium.grid for medium in media]) if media else None


def _seconds(videos: list[Medium]) -> torch.Tensor:
    return torch.tensor([video.second_per_grid for video in videos], dtype=torch.float32)
