# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The visual half of a batch, in the form that Megatron-Bridge's ``vlm_step`` walks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch

from energon_pack.candidate import Medium
from energon_pack.family import Family
from energon_pack.patchify import PatchWriter, mean_and_std, patch_writer
from energon_pack.shared_memory import empty_for_trainer


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
    image_mean_std: torch.Tensor | None = None
    """(2, 3) float32, for uint8 ``pixel_values`` only."""
    video_mean_std: torch.Tensor | None = None
    """(2, 3) float32, for uint8 ``pixel_values_videos`` only."""

    def normalized_for_model(self) -> dict[str, torch.Tensor]:
        """Return the model's keyword arguments; uint8 patches are normalised here, on the device."""
        arguments = {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) is not None
        }
        for patches, mean_std in (
            ("pixel_values", arguments.pop("image_mean_std", None)),
            ("pixel_values_videos", arguments.pop("video_mean_std", None)),
        ):
            if mean_std is not None:
                arguments[patches] = normalize_patches(arguments[patches], mean_std)
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
    """Turn (n, 3 * k) uint8 patches into the float32 that the processor would have returned."""
    mean, std = mean_std[:, :, None]
    return patches.view(len(patches), 3, -1).float().sub_(mean).div_(std).view(patches.shape)


class VisualBuilder:
    """Turns one pack's decoded media into its :class:`VisualInputs`."""

    def __init__(self, family: Family, pixel_dtype: str) -> None:
        """Take the geometry and the normalisation from the family's processor."""
        self._family = family
        self._uint8 = pixel_dtype == "uint8"
        self._image_writer = patch_writer(family, "image", pixel_dtype)
        self._video_writer = patch_writer(family, "video", pixel_dtype)

    def build(self, media: Sequence[Medium], frames: Iterator[torch.Tensor]) -> VisualInputs:
        """Write the patches of ``media``; each tensor of ``frames`` is let go once it is written."""
        images = [medium for medium in media if medium.kind == "image"]
        videos = [medium for medium in media if medium.kind == "video"]
        inputs = VisualInputs(
            pixel_values=_empty_patches(images, self._image_writer),
            image_grid_thw=_grids(images),
            pixel_values_videos=_empty_patches(videos, self._video_writer),
            video_grid_thw=_grids(videos),
            second_per_grid_ts=self._seconds(videos),
            image_mean_std=mean_and_std(self._family, "image") if images and self._uint8 else None,
            video_mean_std=mean_and_std(self._family, "video") if videos and self._uint8 else None,
        )
        image_rows = _rows(inputs.pixel_values, images)
        video_rows = _rows(inputs.pixel_values_videos, videos)
        for medium in media:
            if medium.kind == "image":
                self._image_writer.write(next(frames), next(image_rows))
            else:
                self._video_writer.write(next(frames), next(video_rows))
        return inputs

    def _seconds(self, videos: list[Medium]) -> torch.Tensor | None:
        # Qwen3-VL's forward passes the argument on to a language model that refuses it.
        if not videos or self._family.uses_mrope_positions:
            return None
        return torch.tensor([video.second_per_grid for video in videos], dtype=torch.float32)


def _empty_patches(media: list[Medium], writer: PatchWriter) -> torch.Tensor | None:
    if not media:
        return None
    num_patches = sum(medium.num_patches for medium in media)
    return empty_for_trainer((num_patches, writer.patch_numel), writer.dtype)


def _grids(media: list[Medium]) -> torch.Tensor | None:
    return torch.tensor([medium.grid for medium in media]) if media else None


def _rows(patches: torch.Tensor | None, media: list[Medium]) -> Iterator[torch.Tensor]:
    if patches is None:
        return iter(())
    return iter(patches.split([medium.num_patches for medium in media]))
