# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Cut a pack into its segments again, to run them one by one or to show them.

A segment's media are found by its placeholder tokens: images and videos stand in conversation
order, each with grid t * h * w patches, ``merge_size ** 2`` patches a token. Example: 64 image
tokens are a grid of 1 x 16 x 16, or two grids of 1 x 8 x 16.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from energon_pack.assembling.visual import VisualInputs
from energon_pack.family import Family

Pack = dict[str, Any]

_Media = Iterator[tuple[torch.Tensor, torch.Tensor]]
"""(patches, grid) of one image or video after the other."""


def split_pack(pack: Pack, family: Family) -> list[Pack]:
    """Return the physical segments of a pack, padding included, each as a pack of its own."""
    visual = pack["visual_inputs"]
    arguments = visual.normalized_for_model() if visual else {}
    images = _media(arguments.get("pixel_values"), arguments.get("image_grid_thw"))
    videos = _media(arguments.get("pixel_values_videos"), arguments.get("video_grid_thw"))
    segments = []
    for start, end in itertools.pairwise(pack["cu_seqlens_q"].tolist()):
        ids = pack["input_ids"][:, start:end]
        patches, grids = _take(images, _num_patches(ids, family.image_token_id, family))
        frames, video_grids = _take(videos, _num_patches(ids, family.video_token_id, family))
        segments.append(
            {
                "input_ids": ids,
                "labels": pack["labels"][:, start:end],
                "loss_mask": pack["loss_mask"][:, start:end],
                "position_ids": pack["position_ids"][..., start:end],
                "cu_seqlens_q": torch.tensor([0, end - start], dtype=torch.int32),
                "visual_inputs": VisualInputs(
                    pixel_values=patches,
                    image_grid_thw=grids,
                    pixel_values_videos=frames,
                    video_grid_thw=video_grids,
                ),
            }
        )
    return segments


def _num_patches(ids: torch.Tensor, token_id: int, family: Family) -> int:
    return int((ids == token_id).sum()) * family.merge_size**2


def _media(patches: torch.Tensor | None, grids: torch.Tensor | None) -> _Media:
    if patches is None or grids is None:
        return iter(())
    return zip(patches.split(grids.prod(dim=1).tolist()), grids, strict=True)


def _take(media: _Media, num_patches: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Take the next media, which together have ``num_patches``."""
    taken: list[tuple[torch.Tensor, torch.Tensor]] = []
    while sum(len(patches) for patches, _ in taken) < num_patches:
        taken.append(next(media))
    if not taken:
        return None, None
    return torch.cat([patches for patches, _ in taken]), torch.stack([grid for _, grid in taken])
