# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What each pack tells the trainer about itself and its stream."""

from collections import Counter
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


@dataclass(kw_only=True, slots=True)
class PackStats:
    """Running totals over packs; two of them merge into the totals of both."""

    packs: int = 0
    samples: int = 0
    tokens: int = 0
    capacity: int = 0
    """Tokens that the packs could have held."""
    width: int = 0
    """Tokens that they physically have."""
    trained_tokens: int = 0
    visual_tokens: int = 0
    visual_patches: int = 0
    overfull: int = 0
    """Packs with more tokens than seq_length; anything but 0 is a fault of ours."""
    fills: list[float] = field(default_factory=list)
    """Fill of each pack, in order."""
    skipped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    def add(self, info: PackInfo) -> None:
        """Count one pack and what its stream lost since the one before."""
        self.packs += 1
        self.samples += info.samples
        self.tokens += info.tokens
        self.capacity += info.seq_length
        self.width += info.width
        self.trained_tokens += info.trained_tokens
        self.visual_tokens += info.visual_tokens
        self.visual_patches += info.visual_patches
        self.overfull += info.tokens > info.seq_length
        self.fills.append(info.fill)
        self.skipped.update(info.stream.skipped)
        self.notes.update(info.stream.notes)

    def merge(self, other: "PackStats") -> None:
        """Take in the totals of another worker or rank."""
        for name in (
            "packs",
            "samples",
            "tokens",
            "capacity",
            "width",
            "trained_tokens",
            "visual_tokens",
            "visual_patches",
            "overfull",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.fills.extend(other.fills)
        self.skipped.update(other.skipped)
        self.notes.update(other.notes)

    @property
    def fill(self) -> float:
        """Real tokens over the packs' capacity; 0 without packs."""
        return self.tokens / self.capacity if self.capacity else 0.0

    @property
    def samples_per_pack(self) -> float:
        """Mean number of samples; 0 without packs."""
        return self.samples / self.packs if self.packs else 0.0
