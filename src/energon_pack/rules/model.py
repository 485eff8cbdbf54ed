# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Rules about the model: family, multi-token prediction, CUDA graphs, vision tower."""

from collections.abc import Iterator
from typing import Final

from energon_pack.facts import RunFacts
from energon_pack.rules.base import Fault, Rule, Unknown, faults_of, packing_of, rule


@rule("model-family", "error")
def model_family(facts: RunFacts) -> Iterator[Fault]:
    """The model is a Qwen2.5-VL, Qwen3-VL or Qwen3.5-VL."""
    if facts.model.family == "other":
        yield Fault(
            setting="model",
            value=facts.model.kind,
            consequence="Token ids, positions and pixels are made for Qwen-VL; another model would "
            "train on rows that mean nothing to it.",
            fix="Use a Qwen-VL recipe, or Megatron-Bridge's own dataset for this model.",
        )


@rule("mtp", "error")
def mtp(facts: RunFacts) -> Iterator[Fault]:
    """No multi-token prediction."""
    yield from faults_of(
        facts.model.mtp,
        "Its loss on packed rows is reported corrupted under context parallelism with padding "
        "(Megatron-LM #4495 and #6205, open); without context parallelism nothing shows it right.",
        "Set {setting} back to its default, None or False.",
    )


@rule("cuda-graphs", "error")
def cuda_graphs(facts: RunFacts) -> Iterator[Fault]:
    """No CUDA graphs, of language, vision, optimizer or FSDP."""
    yield from faults_of(
        facts.model.graphs,
        "A graph replays the shapes it was captured with; widths, segment counts and pixels differ "
        "from pack to pack, so replay reads stale or foreign memory.",
        "Set {setting} back to its default: implementations to none, deprecated switches to False.",
    )


@rule("idle-graph-settings", "note")
def idle_graph_settings(facts: RunFacts) -> Iterator[Fault]:
    """No graph settings beside an implementation none."""
    yield from faults_of(
        facts.model.idle_graphs,
        "It has no effect while no graph implementation is on.",
        "Leave it, or unset {setting} for clarity.",
    )


@rule("dist-train", "error")
def dist_train(facts: RunFacts) -> Iterator[Fault]:
    """Encoder and decoder on the same ranks."""
    yield from faults_of(
        facts.model.dist_train,
        "Encoder and decoder on separate ranks exchange fixed shapes and know no pack boundaries.",
        "Build the whole model on every rank: use_dist_train=False, add_encoder and add_decoder "
        "True; {setting} is what asks for the split.",
    )


@rule("qwen2-5-context-parallel", "error")
def qwen25_context(facts: RunFacts) -> Iterator[Fault]:
    """Qwen2.5-VL trains without context parallelism."""
    if facts.model.family == "qwen2_5_vl" and facts.parallel.context > 1:
        yield Fault(
            setting="model.context_parallel_size",
            value=facts.parallel.context,
            consequence="Qwen25VLModel has no slicing for context parallelism: every rank would "
            "run the whole row against attention that expects a slice.",
            fix="Set model.context_parallel_size=1, or train Qwen3-VL.",
        )


@rule("qwen2-5-video-time", "note")
def qwen25_video_time(facts: RunFacts) -> Iterator[Fault]:
    """Qwen2.5-VL clips are at most 2 frames a second."""
    packing = packing_of(facts)
    rates = {"video_fps": packing.video_fps, "frame_list_fps": packing.frame_list_fps}
    for name, fps in rates.items():
        if facts.model.family == "qwen2_5_vl" and fps is not None and fps > 2:
            yield Fault(
                setting=f"dataset.{name}",
                value=fps,
                consequence="The model recomputes positions with an integer second_per_grid, so "
                "above 2 frames a second all frames share one time.",
                fix=f"Set dataset.{name} to 2.0 or less where time matters.",
            )


_TEXT_ONLY: Final = (
    "A pack without media skips the vision tower, its gradient bucket is never sent, one rank "
    "stops with 'Communication call has not been issued for this bucket', the others wait for it."
)


@rule("text-only-packs", "error")
def text_only_packs(facts: RunFacts) -> Iterator[Fault]:
    """A trained vision tower sees media in every pack."""
    if facts.batch.overlap_grad_reduce and _vision_may_miss(facts):
        yield Fault(
            setting="dataset.text_only_packs",
            value=packing_of(facts).text_only_packs,
            consequence=_TEXT_ONLY,
            fix="Set text_only_packs: dummy_image (a smallest image without loss, only in packs "
            "that have none), or freeze the vision tower and its projection, or set "
            "ddp.overlap_grad_reduce=False and comm_overlap.overlap_grad_reduce=False.",
        )


@rule("text-only-packs-fsdp", "warning")
def text_only_packs_fsdp(facts: RunFacts) -> Iterator[Fault]:
    """A vision tower trained under Megatron-FSDP sees media in every pack."""
    if facts.batch.megatron_fsdp and _vision_may_miss(facts):
        yield Fault(
            setting="dataset.text_only_packs",
            value=packing_of(facts).text_only_packs,
            consequence="A pack without media skips the vision tower on one rank while others "
            "gather its weights and reduce its gradients; nobody has tried that here.",
            fix="Set text_only_packs: dummy_image, or freeze the vision tower and its projection.",
        )


def _vision_may_miss(facts: RunFacts) -> bool:
    """Whether a pack can leave trained vision weights without a gradient."""
    dummy = packing_of(facts).text_only_packs == "dummy_image"
    return not dummy and facts.model.vision_trained is not False


@rule("linear-attention-kernels", "error")
def linear_attention_kernels(facts: RunFacts) -> Iterator[Fault | Unknown]:
    """Qwen3.5-VL has kernels that know segment boundaries."""
    if facts.model.family != "qwen3_5_vl":
        return
    if facts.software.linear_attention_kernels is None:
        yield Unknown("whether flash-linear-attention is installed where the run will be")
    elif not facts.software.linear_attention_kernels:
        yield Fault(
            setting="flash-linear-attention",
            value="not installed",
            consequence="Megatron Core's fallback for gated delta layers refuses packed rows, and "
            "state would leak from one segment into the next (Automodel #2147, ms-swift #9618).",
            fix="Install flash-linear-attention (module fla) in the training image.",
        )


RULES: Final[tuple[Rule, ...]] = (
    model_family,
    mtp,
    cuda_graphs,
    idle_graph_settings,
    dist_train,
    qwen25_context,
    qwen25_video_time,
    text_only_packs,
    text_only_packs_fsdp,
    linear_attention_kernels,
)
