# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Which frames of a video are used, and when they are shown.

A clip is sampled by the processor's own rule at ``video_fps``. A stored frame list was sampled by
whoever stored it and is kept whole. Above ``max_num_frames`` either is thinned evenly, first and
last frame kept. Example: 10 s at 30 fps and ``video_fps`` 2 give 20 of 300 frames for Qwen3-VL.

``preprocessing: bridge`` follows Megatron-Bridge 0.6.2 instead: the first ``max_num_frames``,
filled up to an even number, count as 24 fps whatever they are, and Qwen3-VL's processor samples
them again (16 stored frames become 4).
"""

from dataclasses import dataclass

import numpy as np

from energon_pack.config import PackingConfig
from energon_pack.family import Family
from energon_pack.reading.conversation import RawMedium
from energon_pack.reading.demux import Clip
from energon_pack.refusal import SampleError


@dataclass(frozen=True, kw_only=True, slots=True)
class Frames:
    """The used frames of one video."""

    indices: tuple[int, ...]
    times: tuple[float, ...]
    """Seconds of each."""
    second_per_grid: float
    """Seconds that one temporal patch covers."""
    num_before_sampling: int
    """Frames that they were chosen from."""


_BRIDGE_FPS = 24
"""What the processors assume where they are told nothing."""


class FrameSampler:
    """Chooses frames for one family and configuration."""

    def __init__(self, family: Family, config: PackingConfig) -> None:
        """Take the sampling rule from the processor."""
        self._processor = family.processor.video_processor
        self._temporal = family.temporal_patch_size
        self._config = config

    def clip(self, clip: Clip) -> Frames:
        """Sample an encoded clip; raises ``SampleError`` (``bad_video``)."""
        if self._config.preprocessing == "bridge":
            message = "Megatron-Bridge 0.6.2 reads no encoded clips; set preprocessing: native"
            raise SampleError("bad_video", message)
        total = len(clip.times)
        indices = self._thinned(self._sampled(total, clip.fps, self._config.video_fps))
        return Frames(
            indices=indices,
            times=tuple(clip.times[at] for at in indices),
            second_per_grid=self._temporal * total / len(indices) / clip.fps,
            num_before_sampling=total,
        )

    def frame_list(self, raw: RawMedium, notes: set[str]) -> Frames:
        """Keep a stored frame list, with the sample's own time or ``frame_list_fps``."""
        total = len(raw.data)
        if total == 0:
            raise SampleError("bad_video", "the video is an empty list of frames")
        if self._config.preprocessing == "bridge":
            return self._as_bridge(total)
        indices = self._thinned(tuple(range(total)))
        times, fps = self._times(raw, total, notes)
        return Frames(
            indices=indices,
            times=tuple(times[at] for at in indices),
            second_per_grid=self._temporal * total / len(indices) / fps,
            num_before_sampling=total,
        )

    def _as_bridge(self, total: int) -> Frames:
        stored = list(range(total))[: self._config.max_num_frames]
        stored += stored[-1:] * (len(stored) % 2)
        places = tuple(range(len(stored)))
        if self._processor.do_sample_frames:
            places = self._sampled(len(stored), _BRIDGE_FPS, self._processor.fps)
        return Frames(
            indices=tuple(stored[at] for at in places),
            times=tuple(at / _BRIDGE_FPS for at in places),
            second_per_grid=self._temporal / _BRIDGE_FPS,
            num_before_sampling=len(stored),
        )

    def _sampled(self, total: int, fps: float, wanted_fps: float) -> tuple[int, ...]:
        from transformers.video_utils import VideoMetadata

        if total <= self._temporal:
            # One patch either way; Qwen2.5-VL's rule would divide by zero for a single frame.
            return tuple(range(total))
        metadata = VideoMetadata(total_num_frames=total, fps=fps)
        chosen = self._processor.sample_frames(metadata=metadata, fps=wanted_fps)
        return tuple(np.asarray(chosen).tolist())

    def _thinned(self, indices: tuple[int, ...]) -> tuple[int, ...]:
        limit = self._config.max_num_frames
        if limit is None or len(indices) <= limit:
            return indices
        places = np.linspace(0, len(indices) - 1, limit).round().astype(int)
        return tuple(indices[at] for at in places)

    def _times(
        self, raw: RawMedium, total: int, notes: set[str]
    ) -> tuple[tuple[float, ...], float]:
        if raw.times is not None:
            if len(raw.times) != total:
                raise SampleError(
                    "bad_video", f"the sample has {len(raw.times)} timestamps for {total} frames"
                )
            duration = raw.times[-1] - raw.times[0]
            if duration > 0:
                return raw.times, (total - 1) / duration
        fps = raw.fps or self._config.frame_list_fps
        if fps is None:
            raise SampleError(
                "bad_video",
                "the sample does not say its frames' rate; give it fps or set frame_list_fps",
            )
        if raw.fps is None:
            notes.add("assumed_fps")
        return tuple(at / fps for at in range(total)), fps
