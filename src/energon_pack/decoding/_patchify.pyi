# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0

def write_patches(
    out: int,
    band: int,
    table: int,
    itemsize: int,
    present_stride_height_width: tuple[int, int, int, int],
    patch_merge_temporal: tuple[int, int, int],
    /,
) -> None: ...
