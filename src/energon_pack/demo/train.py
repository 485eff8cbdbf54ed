# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Train a tiny, randomly initialised Qwen3-VL on packs, on a CPU.

1. A pack is one row. A 4-D additive mask keeps attention inside each segment; positions are the
   batch's own. Example: ``cu_seqlens`` 0, 3, 5 lets token 4 see tokens 3 and 4 only.
2. Logits are made for the trained tokens only: 4096 x 151936 of them would take 2.5 GB.
3. The loss of a step is the mean over its trained tokens, so a long answer counts as its tokens.
4. ``compare`` runs the segments of a pack one by one and puts losses and gradients side by side.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from energon_pack.demo.segments import Pack, split_pack
from energon_pack.family import Family


def tiny_model(family: Family, *, seed: int = 0) -> Any:
    """Return a float32 ``Qwen3VLForConditionalGeneration`` of about 10 million parameters."""
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    hidden = 64
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": 151_936,
            "hidden_size": hidden,
            "intermediate_size": 192,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": hidden,
            "patch_size": family.patch_size,
            "spatial_merge_size": family.merge_size,
            "temporal_patch_size": family.temporal_patch_size,
            "deepstack_visual_indexes": [0],
        },
        image_token_id=family.image_token_id,
        video_token_id=family.video_token_id,
        vision_start_token_id=family.vision_start_id,
        vision_end_token_id=family.vision_end_id,
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    return Qwen3VLForConditionalGeneration(config).float().train()


def block_diagonal_mask(offsets: torch.Tensor) -> torch.Tensor:
    """Return the (1, 1, T, T) float32 additive mask of causal segments ``offsets`` (S + 1,)."""
    width = int(offsets[-1])
    segment = torch.bucketize(torch.arange(width), offsets[1:], right=True)
    allowed = torch.ones(width, width, dtype=torch.bool).tril_()
    allowed &= segment[:, None] == segment[None, :]
    return torch.zeros(width, width).masked_fill_(~allowed, float("-inf"))[None, None]


def summed_loss(model: Any, pack: Pack) -> torch.Tensor:
    """Return the summed loss of the trained tokens of a pack, or of one sample as a pack."""
    trained = pack["loss_mask"][0].nonzero()[:, 0]
    visual = pack["visual_inputs"]
    logits = model(
        input_ids=pack["input_ids"],
        attention_mask=block_diagonal_mask(pack["cu_seqlens_q"]),
        position_ids=pack["position_ids"],
        logits_to_keep=trained,
        use_cache=False,
        **(visual.normalized_for_model() if visual else {}),
    ).logits
    return functional.cross_entropy(logits[0], pack["labels"][0, trained], reduction="sum")


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One optimizer step."""

    number: int
    loss: float
    """Mean over the pack's trained tokens."""
    trained_tokens: int


def train(
    model: Any,
    packs: Iterable[Pack],
    *,
    learning_rate: float = 4e-3,
    observe: Callable[[Step], None] = lambda _: None,
) -> list[Step]:
    """Make one AdamW step a pack and return the steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    steps = []
    for number, pack in enumerate(packs):
        tokens = int(pack["loss_mask"].sum())
        loss = summed_loss(model, pack) / tokens
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps.append(Step(number=number, loss=loss.item(), trained_tokens=tokens))
        observe(steps[-1])
    return steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One pack against its samples one by one."""

    samples: int
    packed_loss: float
    """Mean over the trained tokens of the pack."""
    alone_loss: float
    """The same tokens' mean when each sample is run alone."""
    gradient_difference: float
    """Largest difference of a gradient, as a share of the largest gradient."""


def compare(model: Any, pack: Pack, family: Family) -> Comparison:
    """Run a pack as one row and segment by segment; the model's gradients are cleared."""
    tokens = pack["loss_mask"].sum()
    packed_loss, packed_gradients = _gradients(model, [pack], tokens)
    alone = [part for part in split_pack(pack, family) if part["loss_mask"].any()]
    alone_loss, alone_gradients = _gradients(model, alone, tokens)
    pairs = list(zip(packed_gradients, alone_gradients, strict=True))
    difference = max(float((packed - single).abs().max()) for packed, single in pairs)
    return Comparison(
        samples=len(alone),
        packed_loss=packed_loss,
        alone_loss=alone_loss,
        gradient_difference=difference / max(float(packed.abs().max()) for packed, _ in pairs),
    )


def _gradients(
    model: Any, packs: Iterable[Pack], tokens: torch.Tensor
) -> tuple[float, list[torch.Tensor]]:
    model.zero_grad()
    total = 0.0
    for pack in packs:
        loss = summed_loss(model, pack) / tokens
        loss.backward()
        total += loss.item()
    gradients = [
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for parameter in model.parameters()
    ]
    model.zero_grad()
    return total, gradients
