# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Chosen samples to one THD row: the batch that ``vlm_step`` trains on.

1. Each segment is padded at its own end to the alignment. Attention is causal, so no real token
   sees a pad; a pad has label -100.
2. A pack without media may get a smallest image, and a row of fixed width gets its missing tokens,
   each as one more segment without loss.
3. ``cu_seqlens`` are the physical offsets; the ``*_padded`` twins are never emitted.
4. Patches are written once, while their sample is decoded, into the tensors that travel to the
   trainer. A sample that breaks on the way leaves nothing in the pack.

Samples of 5 and 4 tokens at alignment 4 and a fixed width of 16 give ``cu_seqlens`` 0, 8, 12, 16.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from energon_pack.alignment import padded_length
from energon_pack.assembling.positions import mrope_positions
from energon_pack.assembling.visual import OpenVisual, VisualBuilder
from energon_pack.candidate import Candidate, Medium
from energon_pack.family import Family
from energon_pack.stats import PackInfo

IGNORED = -100
"""Label of a token that is not trained."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLayout:
    """How long a row and its segments have to be, in tokens."""

    seq_length: int
    alignment: int = 1
    """Multiple of every segment's length."""
    fixed_width: bool = False
    """Whether every row is filled up to ``seq_length``."""


class PackBuilder:
    """Opens one pack after the other, for one processor family and one layout."""

    def __init__(
        self, family: Family, layout: RowLayout, *, pixel_dtype: str, text_only_packs: str
    ) -> None:
        """Take ``pixel_dtype`` and ``text_only_packs`` as the config names them."""
        self._family = family
        self._layout = layout
        self._with_dummy = text_only_packs == "dummy_image"
        self._visual = VisualBuilder(family, pixel_dtype)

    def open(self, candidates: Sequence[Candidate]) -> "OpenPack":
        """Return an empty pack with room for ``candidates``."""
        media = [medium for candidate in candidates for medium in candidate.media]
        return OpenPack(self, self._visual.open(media))

    def close(self, candidates: Sequence[Candidate], visual: OpenVisual) -> dict[str, Any]:
        """Return the batch of ``candidates`` in their order."""
        parts = [self._part(candidate) for candidate in candidates]
        has_media = any(candidate.media for candidate in candidates)
        if self._with_dummy and not has_media:
            dummy = _dummy_candidate(self._family)
            parts.append(self._part(dummy))
            visual = self._visual.open(dummy.media)
            visual.add(dummy.media, iter([_black(dummy.media[0])]))
        missing = self._layout.seq_length - sum(part.width for part in parts)
        assert missing >= 0, f"pack is {-missing} tokens longer than seq_length"
        if missing and self._layout.fixed_width:
            parts.append(self._filler(missing))
        row = _row(parts)
        row["visual_inputs"] = visual.close() if has_media or self._with_dummy else None
        row["pack_info"] = self._info(candidates, parts)
        return row

    def _part(self, candidate: Candidate) -> "_Part":
        width = padded_length(candidate.length, self._layout.alignment)
        labels = np.full(width, IGNORED, dtype=np.int64)
        labels[: candidate.length - 1] = np.where(candidate.trained, candidate.ids, IGNORED)[1:]
        ids = np.full(width, self._family.tokenizer.pad_token_id, dtype=np.int64)
        ids[: candidate.length] = candidate.ids
        return _Part(ids=ids, labels=labels, positions=self._positions(candidate, width))

    def _positions(self, candidate: Candidate, width: int) -> NDArray[np.int64]:
        if not self._family.uses_mrope_positions:
            return np.arange(width)[None]
        real = mrope_positions(self._family, candidate)
        padding = np.arange(width - candidate.length) + real.max() + 1
        return np.concatenate([real, np.broadcast_to(padding, (3, len(padding)))], axis=1)

    def _filler(self, width: int) -> "_Part":
        rows = 3 if self._family.uses_mrope_positions else 1
        return _Part(
            ids=np.full(width, self._family.tokenizer.pad_token_id, dtype=np.int64),
            labels=np.full(width, IGNORED, dtype=np.int64),
            positions=np.tile(np.arange(width), (rows, 1)),
        )

    def _info(self, candidates: Sequence[Candidate], parts: Sequence["_Part"]) -> PackInfo:
        return PackInfo(
            samples=len(candidates),
            tokens=sum(candidate.length for candidate in candidates),
            trained_tokens=sum(int(candidate.trained[1:].sum()) for candidate in candidates),
            width=sum(part.width for part in parts),
            seq_length=self._layout.seq_length,
            visual_tokens=sum(candidate.visual_tokens for candidate in candidates),
            visual_patches=sum(candidate.num_patches for candidate in candidates),
            images=sum(candidate.num_images for candidate in candidates),
            videos=sum(len(candidate.media) - candidate.num_images for candidate in candidates),
            media_bytes=sum(candidate.media_bytes for candidate in candidates),
            longest=max(part.width for part in parts),
        )


class OpenPack:
    """A pack while its samples are decoded into it, one after the other."""

    def __init__(self, builder: PackBuilder, visual: OpenVisual) -> None:
        """Take the visual half with room for all samples."""
        self._builder = builder
        self._visual = visual
        self._candidates: list[Candidate] = []

    def add(self, candidate: Candidate, frames: Iterator[torch.Tensor]) -> None:
        """Add a sample whose media come as ``frames``; when these raise, it leaves no trace.

        ``frames`` are the temporal patches of its media in order, each (frames, 3, height, width).
        """
        self._visual.add(candidate.media, frames)
        self._candidates.append(candidate)

    def close(self) -> dict[str, Any]:
        """Return the batch of the samples in the order in which they were added."""
        return self._builder.close(self._candidates, self._visual)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """One physical segment, padding included."""

    ids: NDArray[np.int64]
    """(width,)"""
    labels: NDArray[np.int64]
    """(width,), shifted by one."""
    positions: NDArray[np.int64]
    """(3, width) for mRoPE, (1, width) where the model makes its own."""

    @property
    def width(self) -> int:
        return len(self.ids)


def _row(parts: Sequence[_Part]) -> dict[str, Any]:
    widths = [part.width for part in parts]
    labels = np.concatenate([part.labels for part in parts])
    positions = torch.from_numpy(np.concatenate([part.positions for part in parts], axis=1))
    offsets = torch.tensor([0, *np.cumsum(widths)], dtype=torch.int32)
    longest = torch.tensor(max(widths), dtype=torch.int32)
    return {
        "input_ids": torch.from_numpy(np.concatenate([part.ids for part in parts]))[None],
        "labels": torch.from_numpy(labels)[None],
        "loss_mask": torch.from_numpy((labels != IGNORED).astype(np.float32))[None],
        "position_ids": positions[:, None] if len(positions) == 3 else positions,
        "attention_mask": None,
        "cu_seqlens_q": offsets,
        "cu_seqlens_kv": offsets.clone(),
        "max_seqlen_q": longest,
        "max_seqlen_kv": longest.clone(),
        "total_tokens": sum(widths),
    }


def _dummy_candidate(family: Family) -> Candidate:
    """Return one black image of a single visual token, untrained."""
    side, merge = family.factor, family.merge_size
    image = Medium(
        kind="image",
        data=b"",
        height=side,
        width=side,
        resized=(side, side),
        grid=(1, merge, merge),
    )
    ids = np.array([family.vision_start_id, family.image_token_id, family.vision_end_id], np.int32)
    return Candidate(
        __key__="dummy", __restore_key__=(), ids=ids, trained=np.zeros(3, bool), media=(image,)
    )


def _black(image: Medium) -> torch.Tensor:
    return torch.zeros((1, *image.resized, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
