# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What packing needs of a config, and what of it follows from the topology at the very end."""

import math
from typing import Any, Final

from energon_pack.config import PackingConfig
from energon_pack.read_facts import read_facts
from energon_pack.settings import Change, Setting, apply_settings

_HYBRIDEP_PADDING: Final = (
    "moe_hybridep_pad_uneven_dispatch_inputs",
    "moe_hybridep_pad_variable_tokens",
)


def packing_settings(data: PackingConfig) -> list[Setting]:
    """Return what a user should see set: it holds unless an override changes it again."""
    return [
        Setting(
            path="model.seq_length",
            value=data.seq_length,
            why="a pack holds this many tokens, for the model and for the dataset",
        ),
        Setting(path="train.micro_batch_size", value=1, why="a pack is the whole micro batch"),
        Setting(
            path="validation.eval_micro_batch_size", value=1, why="a pack is the whole micro batch"
        ),
        Setting(
            path="model.calculate_per_token_loss",
            value=True,
            why="packs differ in trained tokens; each token has to weigh the same",
        ),
        Setting(
            path="ddp.average_in_collective",
            value=False,
            why="per-token loss sums gradients and divides once by the tokens of all ranks",
        ),
        Setting(
            path="model.mtp_num_layers",
            value=None,
            why="multi-token prediction looks across the ends of packed samples",
        ),
    ]


def settle(cfg: Any) -> list[Change]:
    """Set what follows from the rest of the config; calling it again changes nothing.

    The alignment only grows: a larger one than needed costs a few pads, a smaller one is wrong.
    """
    facts = read_facts(cfg, None)
    alignment = math.lcm(cfg.dataset.alignment, facts.parallel.multiple)
    settings = [
        Setting(
            path="dataset.alignment",
            value=alignment,
            why="every segment is cut over the context and sequence parallel ranks",
        )
    ]
    if facts.experts.hybridep:
        why = "packs of different width reach HybridEP; Megatron-Bridge sets it for its own only"
        paths = (f"model.{name}" for name in _HYBRIDEP_PADDING)
        settings += [Setting(path=path, value=True, why=why) for path in paths]
    return apply_settings(cfg, settings)
