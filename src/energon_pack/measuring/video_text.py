# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What the installed processor writes in a video's place, for one token a temporal patch.

From transformers 5.10 on the processor is asked. Before, it wrote within its call: Qwen3-VL's
timestamps are asked from it and laid out here, and the template's own ``<|vision_start|>`` and
``<|vision_end|>`` go with the placeholder, which later releases leave (two tokens a video).
"""

import re

import numpy as np

from energon_pack.candidate import Medium
from energon_pack.family import Family


class VideoText:
    """Writes the text of videos for one processor."""

    def __init__(self, family: Family) -> None:
        """Look which way the processor writes."""
        self._family = family
        self._processor = family.processor
        self._asks = hasattr(self._processor, "replace_video_token")
        token = re.escape(self._processor.video_token)
        self.place = token
        """Regular expression of what is replaced."""
        if not self._asks and family.uses_mrope_positions:
            start, end = (
                re.escape(self._processor.vision_start_token),
                re.escape(self._processor.vision_end_token),
            )
            self.place = f"{start}{token}{end}|{token}"

    def write(self, medium: Medium) -> str:
        """Return what stands in the place of ``medium``."""
        return self._asked(medium) if self._asks else self._laid_out(medium)

    def _asked(self, medium: Medium) -> str:
        from transformers.video_utils import VideoMetadata

        merge = self._family.merge_size
        # Seconds as "frame numbers" at 1 frame a second: the processor's own time rule applies to
        # clips of variable rate as well. It appends to the list it is given.
        metadata = VideoMetadata(
            total_num_frames=len(medium.frame_times), fps=1, frames_indices=list(medium.frame_times)
        )
        one_token_a_patch = np.array([[medium.grid[0], merge, merge]])
        text: str = self._processor.replace_video_token(
            {"video_grid_thw": one_token_a_patch, "video_metadata": [metadata]}, 0
        )
        return text

    def _laid_out(self, medium: Medium) -> str:
        token: str = self._processor.video_token
        if not self._family.uses_mrope_positions:
            return token * medium.grid[0]
        times = self._processor._calculate_timestamps(  # noqa: SLF001 - the one place of its rule
            list(medium.frame_times), 1, self._family.temporal_patch_size
        )
        start, end = self._processor.vision_start_token, self._processor.vision_end_token
        return "".join(f"<{time:.1f} seconds>{start}{token}{end}" for time in times)
