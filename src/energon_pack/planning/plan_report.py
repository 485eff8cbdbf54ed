# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A plan with the settings of one packing mode, for a person or as JSON."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass

from energon_pack.plan import EpochPlan, Plan
from energon_pack.planning.hcp import Factorisation
from energon_pack.settings import Setting, as_overrides, as_python, as_yaml


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanReport:
    """What ``energon-pack plan`` prints."""

    plan: Plan
    mode: str
    settings: list[Setting]
    splits: tuple[Factorisation, ...]
    """Splits of the context size into two levels."""
    epoch: EpochPlan | None = None

    def to_json(self) -> str:
        """Return the plan, the splits and the settings as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    def text(self) -> str:
        """Return all of it for a terminal."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        plan, batch = self.plan, self.plan.topology.global_batch
        yield f"alignment          {plan.alignment} tokens"
        yield from (f"                   {line}" for line in plan.derivation)
        yield f"data parallel      {plan.data_parallel} ranks"
        yield f"packs a step       {batch}, {plan.packs_per_rank} on each rank"
        yield f"slots a step       {plan.slots_per_step} tokens"
        yield f"valid seq_lengths  {', '.join(map(str, plan.valid_lengths))}"
        pairs = ", ".join(f"{length} x {batch}" for length, batch in plan.equal_tokens)
        yield f"equal tokens       {pairs or 'no other seq_length x global batch divides'}"
        if self.epoch:
            yield (
                f"an epoch           about {self.epoch.packs} packs; "
                f"train_iters {self.epoch.train_iters}; "
                f"{self.epoch.conversations_per_step:.0f} conversations a step"
            )
        if plan.topology.context > 1:
            yield from self._split_lines()
        yield ""
        yield f"settings for mode {self.mode}"
        for title, text in (
            ("Python", as_python(self.settings)),
            ("overrides", as_overrides(self.settings)),
            ("YAML", as_yaml(self.settings)),
        ):
            yield ""
            yield f"# {title}"
            yield text

    def _split_lines(self) -> Iterator[str]:
        for split in self.splits:
            mark = "*" if split.recommended else " "
            sizes = f"{split.a2a},{split.p2p}"
            yield f"CP split {mark}         {sizes:6} {split.comm_type:8} {split.reason}"
