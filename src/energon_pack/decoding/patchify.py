# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Resized uint8 frames to normalised patches, one band of merge blocks at a time.

1. A band is one row of merge blocks of one temporal patch: 1 MB of float32 for 1536 pixels.
2. Its bytes are put into the order of the patches.
3. Each channel's mean and deviation are applied by the processor's own operations, while the band
   is in the cache. The processor passes over the whole picture at each step instead.

Where the package was built with a C compiler, one loop does 2 and 3 with a table of what every byte
becomes, made by the same operations. 1.5 megapixels take 1.4 ms with it and 4 ms without.
"""

from collections.abc import Iterator

import torch

from energon_pack.family import Family

try:
    from energon_pack.decoding import _patchify
except ImportError:  # built without a C compiler
    _patchify = None  # type: ignore[assignment]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "uint8": torch.uint8}
"""What the config calls them."""


class PatchWriter:
    """Makes patches in the processors' order: merge blocks by row, then the patches inside each.

    A patch is (channel, temporal, row, column). A missing last frame of a temporal patch repeats
    the frame before it, which also makes an image's single frame the two that the model wants.
    """

    def __init__(self, family: Family, dtype: torch.dtype) -> None:
        """Take geometry and normalisation from the family; uint8 patches stay as they are."""
        self.dtype = dtype
        self._patch = family.patch_size
        self._merge = family.merge_size
        self._temporal = family.temporal_patch_size
        self._mean_std = mean_and_std(family)
        every_byte = torch.arange(256, dtype=torch.uint8).expand(1, 3, 256)
        self._table = self._converted(every_byte)[0].contiguous()
        self._kept = torch.empty((0, self.patch_numel), dtype=dtype)

    @property
    def patch_numel(self) -> int:
        """Values of one patch."""
        return 3 * self._temporal * self._patch**2

    def bands(self, frames: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield the patches of one temporal patch as (patches, patch_numel) tensors.

        Its (frames, 3, height, width) are as ``PixelReader`` gives them: channels innermost in
        memory, uint8 or, in bridge mode, float32. Each tensor yielded may be written over by the
        next: memory of this size that is freed and asked for again leaves holes, and a worker grows
        by 60 MB before glibc gives some back.
        """
        compiled = _patchify is not None and frames.dtype is torch.uint8
        make = self._band if compiled else self._band_by_torch
        for band in frames.permute(0, 2, 3, 1).split(self._patch * self._merge, dim=1):
            yield make(band)

    def _band(self, band: torch.Tensor) -> torch.Tensor:
        present, height, width, _ = band.shape
        assert band.stride()[1:] == (width * 3, 3, 1), band.stride()
        num_patches = height * width // self._patch**2
        if len(self._kept) < num_patches:
            self._kept = torch.empty((num_patches, self.patch_numel), dtype=self.dtype)
        patches = self._kept[:num_patches]
        _patchify.write_patches(
            patches.data_ptr(),
            band.data_ptr(),
            self._table.data_ptr(),
            self.dtype.itemsize,
            (present, band.stride(0), height, width),
            (self._patch, self._merge, self._temporal),
        )
        return patches

    def _band_by_torch(self, band: torch.Tensor) -> torch.Tensor:
        present, height, width, _ = band.shape
        side, merge = self._patch, self._merge
        blocks = band.reshape(
            present, height // side // merge, merge, side, width // side // merge, merge, side, 3
        ).permute(1, 4, 2, 5, 7, 0, 3, 6)
        values = self._converted(blocks.reshape(-1, 3, present * side**2))
        values = values.view(-1, 3, present, side**2)
        if missing := self._temporal - present:
            repeats = values[:, :, -1:].expand(-1, -1, missing, -1)
            values = torch.cat((values, repeats), dim=2)
        return values.view(-1, self.patch_numel)

    def _converted(self, patches: torch.Tensor) -> torch.Tensor:
        if self.dtype is torch.uint8:
            return patches.round().clamp(0, 255).to(torch.uint8)
        return normalize(patches, self._mean_std).to(self.dtype)


def normalize(patches: torch.Tensor, mean_std: torch.Tensor) -> torch.Tensor:
    """Turn (n, 3, k) uint8 into the float32 that the processor's fused normalisation gives."""
    mean, std = mean_std[:, :, None]
    return patches.to(torch.float32, copy=True).sub_(mean).div_(std)


def mean_and_std(family: Family) -> torch.Tensor:
    """Return (2, 3) float32: what is subtracted from a byte, and what it is then divided by."""
    return torch.tensor([family.image_mean, family.image_std]) * (1.0 / family.rescale_factor)
