# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""One picture of a pack: its segments as coloured bars on the token axis, with what the model sees.

The token axis is broken into lines, as text is. Above each run of visual tokens stands the image
or frame it stands for, put together again from the very patches that go to the model.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from energon_pack.family import Family
from energon_pack.plots.axes import FAINT, INK, WORKER_COLOURS, colour_of, pyplot, save

Pack = dict[str, Any]

NUM_LINES: Final = 4
BAR: Final = 0.34
"""Height of a bar; a line is 1 high."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A run of visual tokens and the image or frame it stands for."""

    start: int
    end: int
    pixels: NDArray[np.float32]
    """(height, width, 3) from 0 to 1."""


def plot_pack(path: Path, pack: Pack, family: Family) -> Path:
    """Draw ``pack``, ``NUM_LINES`` lines high."""
    plt = pyplot()
    info = pack["pack_info"]
    per_line = -(-info.seq_length // NUM_LINES)
    figure, lines = plt.subplots(NUM_LINES, 1, figsize=(16, 2.15 * NUM_LINES + 1.1))
    figure.subplots_adjust(left=0.02, right=0.98, top=0.92, bottom=0.09, hspace=0.22)
    shown = list(shown_media(pack, family))
    for number, axes in enumerate(lines):
        _draw_line(axes, pack, shown, number * per_line, per_line)
    figure.suptitle(
        f"One pack: {info.samples} samples, {info.images} images and {info.videos} clips in "
        f"{info.tokens} of {info.seq_length} tokens ({info.fill:.1%})",
        x=0.02,
        ha="left",
        fontsize=18,
        fontweight="bold",
        color=INK,
    )
    _legend(figure, lines[-1])
    save(figure, path)
    return path


def shown_media(pack: Pack, family: Family) -> Iterator[Shown]:
    """Yield the images and frames of a pack in token order; a video has one a temporal patch."""
    visual = pack["visual_inputs"]
    if visual is None:
        return
    arguments = visual.normalized_for_model()
    waiting = {
        family.image_token_id: _pictures(arguments, "pixel_values", "image_grid_thw", family),
        family.video_token_id: _pictures(
            arguments, "pixel_values_videos", "video_grid_thw", family
        ),
    }
    for token_id, start, end in _runs(pack["input_ids"][0].tolist(), set(waiting)):
        place = start
        while place < end:  # Qwen2.5-VL has all frames of a video in one run
            pixels = next(waiting[token_id])
            tokens = pixels.shape[0] * pixels.shape[1] // family.factor**2
            yield Shown(start=place, end=place + tokens, pixels=pixels)
            place += tokens


def _runs(ids: list[int], wanted: set[int]) -> Iterator[tuple[int, int, int]]:
    start = 0
    for token_id, run in itertools.groupby(ids):
        end = start + sum(1 for _ in run)
        if token_id in wanted:
            yield token_id, start, end
        start = end


def _pictures(
    arguments: dict[str, torch.Tensor], pixels: str, grids: str, family: Family
) -> Iterator[NDArray[np.float32]]:
    if pixels not in arguments:
        return
    sizes = arguments[grids].prod(dim=1).tolist()
    for patches, (t, h, w) in zip(
        arguments[pixels].split(sizes), arguments[grids].tolist(), strict=True
    ):
        yield from _unpatchify(patches.float(), (t, h, w), family)


def _unpatchify(
    patches: torch.Tensor, grid: tuple[int, int, int], family: Family
) -> Iterator[NDArray[np.float32]]:
    t, h, w = grid
    merge, patch = family.merge_size, family.patch_size
    # rows are (t, h / merge, w / merge, merge, merge), columns (channel, frame, patch, patch)
    tensor = patches.view(
        t, h // merge, w // merge, merge, merge, 3, family.temporal_patch_size, patch, patch
    )[:, :, :, :, :, :, 0]
    tensor = tensor.permute(0, 1, 3, 6, 2, 4, 7, 5).reshape(t, h * patch, w * patch, 3)
    mean, std = (torch.tensor(values) for values in (family.image_mean, family.image_std))
    for picture in tensor * std + mean:
        yield picture.clamp(0, 1).numpy()


def _draw_line(axes: Any, pack: Pack, shown: list[Shown], first: int, width: int) -> None:
    axes.set_xlim(first, first + width)
    axes.set_ylim(0, 1.6)
    axes.set_yticks([])
    axes.tick_params(axis="x", labelsize=11, colors=FAINT, length=3)
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.spines["bottom"].set_color("#C8C8C8")
    offsets = pack["cu_seqlens_q"].tolist()
    for number, (start, end) in enumerate(itertools.pairwise(offsets)):
        _draw_segment(axes, pack, number, (max(start, first), min(end, first + width)))
    for item in shown:
        _draw_shown(axes, item, offsets, first, width)


def _draw_segment(axes: Any, pack: Pack, number: int, span: tuple[int, int]) -> None:
    from matplotlib.patheffects import withStroke

    start, end = span
    if start >= end:
        return
    colour = colour_of(number)
    axes.broken_barh([(start, end - start)], (0.1, BAR), facecolor=colour, alpha=0.28)
    axes.vlines([start], 0.1, 0.1 + BAR, color="white", linewidth=1.5)
    trained = pack["loss_mask"][0, start:end].tolist()
    bars = [(start + at, stop - at) for _, at, stop in _runs([int(t) for t in trained], {1})]
    axes.broken_barh(bars, (0.0, 0.075), facecolor=INK)
    if end - start > 14:
        axes.text(
            start + 4,
            0.1 + BAR / 2,
            str(number + 1),
            va="center",
            fontsize=12,
            fontweight="bold",
            color=INK,
            clip_on=True,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )


def _draw_shown(axes: Any, item: Shown, offsets: list[int], first: int, width: int) -> None:
    start, end = max(item.start, first), min(item.end, first + width)
    if start >= end:
        return
    number = next(place for place, offset in enumerate(offsets[1:]) if item.start < offset)
    colour = colour_of(number)
    axes.broken_barh([(start, end - start)], (0.1, BAR), facecolor=colour, edgecolor="white")
    if 2 * (end - start) >= item.end - item.start:  # the larger part of it is on this line
        _draw_picture(axes, item, (start, end), colour)


def _draw_picture(axes: Any, item: Shown, span: tuple[int, int], colour: str) -> None:
    box = axes.get_position()
    across, up = axes.figure.get_size_inches()
    unit = (box.width * across / (axes.get_xlim()[1] - axes.get_xlim()[0]),
            box.height * up / (axes.get_ylim()[1] - axes.get_ylim()[0]))  # fmt: skip
    height, width = item.pixels.shape[:2]
    scale = min((span[1] - span[0] - 2) * unit[0] / width, 1.06 * unit[1] / height)
    wide, high = width * scale / unit[0], height * scale / unit[1]
    left, low = (sum(span) - wide) / 2, 0.1 + BAR + 0.06
    axes.imshow(
        item.pixels, extent=(left, left + wide, low, low + high), aspect="auto", clip_on=False
    )
    axes.add_patch(
        pyplot().Rectangle((left, low), wide, high, fill=False, edgecolor=colour, linewidth=2)
    )


def _legend(figure: Any, axes: Any) -> None:
    plt = pyplot()
    axes.set_xlabel("token", fontsize=12, color=INK)
    handles = [
        plt.Rectangle((0, 0), 1, 1, facecolor=WORKER_COLOURS[0], alpha=0.28),
        plt.Rectangle((0, 0), 1, 1, facecolor=WORKER_COLOURS[0]),
        plt.Rectangle((0, 0), 1, 1, facecolor=INK),
    ]
    figure.legend(
        handles,
        ["text tokens", "tokens of the image or frame above", "trained tokens"],
        loc="lower right",
        bbox_to_anchor=(0.98, 0.005),
        ncols=3,
        fontsize=12,
        frameon=False,
    )
