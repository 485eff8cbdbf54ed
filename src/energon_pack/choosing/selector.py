# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A packing policy bound to the limits of one dataset: what the window asks for its next pack."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from energon_pack.alignment import padded_length
from energon_pack.candidate import Candidate
from energon_pack.config import CostWeights, PackingConfig
from energon_pack.policies import POLICIES, Item, Limits, Policy, Room
from energon_pack.strict import ConfigError, Problem

DUMMY_IMAGE_TOKENS = 3
"""Start, one visual token and end: what ``text_only_packs: dummy_image`` adds to a pack."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selector:
    """Chooses packs for one dataset."""

    policy: Policy
    limits: Limits
    cost: CostWeights
    alignment: int = 1

    @classmethod
    def of(cls, config: PackingConfig) -> "Selector":
        """Bind the policy that a config names to its limits; raises ``ConfigError``."""
        problems = list(_problems(config))
        if problems:
            raise ConfigError(problems)
        limits = Limits(
            tokens=capacity(config),
            samples=config.max_samples_per_pack,
            visual_tokens=config.max_visual_tokens_per_pack,
            images=config.max_images_per_pack,
            tolerance=int(config.fill_tolerance * config.seq_length),
            with_media=config.text_only_packs == "with_media",
        )
        return cls(
            policy=POLICIES[config.packing_policy],
            limits=limits,
            cost=config.cost,
            alignment=config.alignment,
        )

    def item(self, candidate: Candidate) -> Item:
        """Reduce a candidate to what a policy looks at."""
        tokens = padded_length(candidate.length, self.alignment)
        cost = (
            self.cost.token * tokens
            + self.cost.attention * tokens * tokens
            + self.cost.patch * candidate.num_patches
        )
        return Item(
            tokens=tokens,
            visual_tokens=candidate.visual_tokens,
            images=candidate.num_images,
            cost=cost,
            has_media=bool(candidate.media),
        )

    def too_big(self, item: Item) -> str | None:
        """Return the cause for which an item fits no pack, if so."""
        room = Room.of(self.limits)
        if item.tokens > room.tokens:
            return "overlong"
        if item.visual_tokens > room.visual_tokens:
            return "too_many_visual_tokens"
        if item.images > room.images:
            return "too_many_images"
        return None

    def next_pack(self, items: Sequence[Item], mean_cost: float | None) -> list[int]:
        """Return the indices of the next pack, oldest first."""
        return self.policy.choose(items, self.limits, mean_cost)


def _problems(config: PackingConfig) -> Iterator[Problem]:
    if config.packing_policy not in POLICIES:
        names = ", ".join(POLICIES)
        yield Problem("packing_policy", f"is {config.packing_policy}; it can be {names}")
    if config.text_only_packs == "with_media" and config.packing_policy != "window":
        yield Problem("text_only_packs", "is with_media, which only packing_policy window can do")


def capacity(config: PackingConfig) -> int:
    """Return the tokens that samples may take of a pack: a dummy image has its room kept."""
    if config.text_only_packs != "dummy_image":
        return config.seq_length
    return config.seq_length - padded_length(DUMMY_IMAGE_TOKENS, config.alignment)
