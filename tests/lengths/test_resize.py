# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Sizes by hand; that they are the processor's is tested with its grids and pixels."""

import pytest
from lengths.oracle import config

from energon_pack.measuring.frames import Frames
from energon_pack.measuring.resize import Resizer


@pytest.mark.parametrize(
    ("capped", "num_frames", "side"),
    [
        (None, 8, 1504),  # 1500 to the next multiple of 32: 8 frames are within the whole's limit
        (True, 8, 864),  # 768 tokens of 32x32 a frame are 886x886
        (True, 40, 768),  # an even share of 25,165,824 is 793x793
    ],
)
def test_a_cap_on_the_pixels_of_a_frame(capped, num_frames, side, qwen3, monkeypatch):
    # Processors have it since transformers 5.24.
    video = qwen3.processor.video_processor
    monkeypatch.setattr(video, "cap_pixels_per_frame", capped, raising=False)
    monkeypatch.setattr(video, "max_video_tokens", 768, raising=False)
    frames = Frames(
        indices=tuple(range(num_frames)),
        times=(0.0,) * num_frames,
        second_per_grid=1.0,
        num_before_sampling=num_frames,
    )
    assert video.size["longest_edge"] == 25_165_824
    assert Resizer(qwen3, config()).video(frames, 1500, 1500).final == (side, side)
