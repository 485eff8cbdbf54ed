# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Rules about mixtures of experts and about what kernels want of a row's width."""

from collections.abc import Iterator
from typing import Final

from energon_pack.facts import RunFacts
from energon_pack.overlap import OVERLAP_REASON
from energon_pack.rules.base import (
    Fault,
    Rule,
    Unknown,
    faults_of,
    packing_of,
    release_of,
    rule,
)

_PADDING_MASK_SINCE: Final = (0, 7)


@rule("expert-overlap", "warning")
def expert_overlap(facts: RunFacts) -> Iterator[Fault]:
    """No expert-parallel overlap or delayed weight gradients."""
    overlap = facts.experts.overlap
    if overlap:
        yield Fault(
            setting=", ".join(switch.partition("=")[0] for switch in overlap),
            value=True,
            consequence=f"Packs would train wrongly: {OVERLAP_REASON}.",
            fix="use_packing switches it off everywhere; the step then waits for expert exchange.",
        )


@rule("expert-sequence-parallel", "error")
def expert_sequence_parallel(facts: RunFacts) -> Iterator[Fault]:
    """Experts with tensor parallelism have sequence parallelism."""
    shape = facts.parallel
    if facts.experts.count and shape.tensor > 1 and not shape.sequence_parallel:
        yield Fault(
            setting="model.sequence_parallel",
            value=False,
            consequence="Megatron Core's MoE layer refuses to train with TP "
            f"{shape.tensor} without it, at the first step; Qwen3-VL's models switch it on "
            "themselves, others do not.",
            fix="Set model.sequence_parallel=True.",
        )


@rule("expert-dispatcher", "warning")
def expert_dispatcher(facts: RunFacts) -> Iterator[Fault]:
    """Experts exchange tokens with alltoall."""
    experts = facts.experts
    if experts.count and facts.parallel.expert > 1 and experts.dispatcher != "alltoall":
        backend = f" ({experts.flex_backend})" if experts.dispatcher == "flex" else ""
        yield Fault(
            setting="model.moe_token_dispatcher_type",
            value=f"{experts.dispatcher}{backend}",
            consequence="Ranks hold packs of different widths; alltoall takes uneven lengths, the "
            "others were made for equal ones and are unproven with packs.",
            fix="Set model.moe_token_dispatcher_type=alltoall and "
            "model.moe_flex_dispatcher_backend=null.",
        )


@rule("hybridep-uneven-inputs", "error")
def hybridep_uneven_inputs(facts: RunFacts) -> Iterator[Fault]:
    """HybridEP pads uneven inputs, or widths are equal."""
    experts = facts.experts
    if experts.hybridep and not experts.pads_uneven_inputs and not facts.fixed_width:
        yield Fault(
            setting="model.moe_hybridep_pad_uneven_dispatch_inputs",
            value=False,
            consequence="Megatron-Bridge switches this on for its own packed datasets only; with "
            "packs of different widths the ranks would exchange wrong amounts or hang.",
            fix="Set model.moe_hybridep_pad_uneven_dispatch_inputs=True, or "
            "dataset.fixed_width=always.",
        )


@rule("expert-padding", "warning")
def expert_padding(facts: RunFacts) -> Iterator[Fault | Unknown]:
    """Padding does not reach a router that cannot tell it."""
    if not facts.experts.count or not facts.fixed_width:
        return
    bridge = facts.software.bridge
    if bridge is None:
        yield Unknown("which Megatron-Bridge will train, and so whether it masks padding")
    elif release_of(bridge) < _PADDING_MASK_SINCE:
        yield Fault(
            setting="dataset.fixed_width",
            value=packing_of(facts).fixed_width,
            consequence=f"Qwen3VLModel of {bridge} passes no padding mask, so pad tokens enter the "
            "router's auxiliary loss, z-loss and expert bias.",
            fix="Set dataset.fixed_width=never where the kernels allow it; at 99.9 % fill the "
            "effect is about 0.1 % of the tokens.",
        )


@rule("expert-sequence-loss", "warning")
def expert_sequence_loss(facts: RunFacts) -> Iterator[Fault]:
    """No sequence-wise auxiliary loss."""
    if facts.experts.count and "seq_aux_loss" in facts.experts.balancing:
        yield Fault(
            setting="model.moe_router_load_balancing_type",
            value="seq_aux_loss",
            consequence="It balances experts within a row, and a row is a whole pack here, so the "
            "loss changes with how samples are packed (Megatron-LM #6108).",
            fix="Set model.moe_router_load_balancing_type=global_aux_loss or aux_loss.",
        )


@rule("expert-capacity", "warning")
def expert_capacity(facts: RunFacts) -> Iterator[Fault]:
    """No expert capacity and no token dropping."""
    if facts.experts.count:
        yield from faults_of(
            facts.experts.capacity,
            "A full expert drops tokens of whichever sample of the pack comes late, so neighbours "
            "in a pack change each other's result.",
            "Set {setting} back to its default.",
        )


@rule("kernel-multiple", "warning")
def kernel_multiple(facts: RunFacts) -> Iterator[Fault]:
    """Row widths are what the kernels want."""
    packing = packing_of(facts)
    wanted = facts.token_multiple
    if wanted == 1 or packing.alignment % wanted == 0:
        return
    reason = "HybridEP" if facts.experts.hybridep else f"{facts.model.fp8} kernels"
    if packing.seq_length % wanted:
        yield Fault(
            setting="dataset.seq_length",
            value=packing.seq_length,
            consequence=f"{reason} take rows of a multiple of {wanted} tokens over these ranks; "
            "other widths fall back to slow paths or are refused.",
            fix=f"Set seq_length of model and dataset to a multiple of {wanted}.",
        )
    if not facts.fixed_width:
        yield Fault(
            setting="dataset.fixed_width",
            value=packing.fixed_width,
            consequence=f"{reason} take rows of a multiple of {wanted} tokens over these ranks, "
            f"and packs have any multiple of {packing.alignment}.",
            fix=f"Set dataset.fixed_width=auto, or the alignment to a multiple of {wanted}.",
        )


RULES: Final[tuple[Rule, ...]] = (
    expert_overlap,
    expert_sequence_parallel,
    expert_dispatcher,
    hybridep_uneven_inputs,
    expert_padding,
    expert_sequence_loss,
    expert_capacity,
    kernel_multiple,
)
