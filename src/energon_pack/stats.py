# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What each pack tells the trainer about itself and its stream."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamInfo:
    """The worker's stream when the pack left it; not part of what a restored pack repeats."""

    worker_id: int = 0
    pid: int = 0
    pack_index: int = 0
    """Packs this worker had made before, restored runs included."""
    candidates: int = 0
    """Candidates left in the buffer."""
    buffer_bytes: int = 0
    """Compressed media bytes that they hold."""
    largest_key: str = ""
    """Candidate with the most media bytes."""
    largest_bytes: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    """Samples lost since this worker's last pack, by cause."""
    notes: dict[str, int] = field(default_factory=dict)
    """Assumptions since the last pack, by slug, such as ``assumed_fps``."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall seconds spent on this pack by stage: ``fill``, ``select``, ``decode``, ``assemble``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackInfo:
    """Figures of one pack. All but ``stream`` follow from its samples alone."""

    samples: int
    tokens: int
    """Real tokens, alignment and width padding not counted."""
    trained_tokens: int
    """Tokens with a label."""
    width: int
    """Physical row length T in tokens."""
    seq_length: int
    """Tokens a pack may hold."""
    visual_tokens: int = 0
    visual_patches: int = 0
    images: int = 0
    videos: int = 0
    media_bytes: int = 0
    longest: int = 0
    """Longest physical segment in tokens."""
    stream: StreamInfo = field(default_factory=StreamInfo)

    @property
    def fill(self) -> float:
        """Real tokens over ``seq_length``."""
        return self.tokens / self.seq_length
