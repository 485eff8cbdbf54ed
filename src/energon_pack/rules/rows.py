# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Rules about the shape of a row and of a batch: lengths, alignment, batch sizes, losses."""

from collections.abc import Iterator
from typing import Final

from energon_pack.alignment import ParallelShape, required_multiple
from energon_pack.facts import RunFacts
from energon_pack.rules.base import Fault, Rule, Unknown, faults_of, packing_of, rule


@rule("pipeline", "error")
def pipeline(facts: RunFacts) -> Iterator[Fault]:
    """No pipeline parallelism, virtual stages or layouts."""
    yield from faults_of(
        facts.parallel.pipeline_switches,
        "Stages exchange activations of a fixed shape, while widths differ from pack to pack; with "
        "virtual stages the loader's state is silently not restored.",
        "Keep one pipeline stage, {setting} at its default; use tensor or context parallelism for "
        "memory.",
    )


@rule("alignment", "error")
def alignment(facts: RunFacts) -> Iterator[Fault]:
    """Segments are aligned to what the parallel sizes need."""
    packing = packing_of(facts)
    wanted = _training_multiple(facts)
    if packing.alignment % wanted:
        yield Fault(
            setting="dataset.alignment",
            value=packing.alignment,
            consequence=f"CP {facts.parallel.context} and TP {facts.parallel.tensor} cut each "
            f"segment into parts; other lengths than multiples of {wanted} shift tokens between "
            "segments or stop the run.",
            fix=f"Call use_packing after the last change of the topology, or set "
            f"dataset.alignment={wanted}.",
        )


@rule("eval-alignment", "error")
def eval_alignment(facts: RunFacts) -> Iterator[Fault]:
    """The alignment covers the evaluation's context parallelism."""
    packing = packing_of(facts)
    wanted = facts.parallel.multiple
    if packing.alignment % _training_multiple(facts) == 0 and packing.alignment % wanted:
        yield Fault(
            setting="dist.eval_context_parallel_size",
            value=facts.parallel.eval_context,
            consequence=f"Evaluation cuts segments for another context size and needs multiples of "
            f"{wanted}; packs have multiples of {packing.alignment}.",
            fix=f"Set dataset.alignment={wanted}, or evaluate with the training's context size.",
        )


@rule("eval-context", "error")
def eval_context(facts: RunFacts) -> Iterator[Fault]:
    """Evaluation's context size is not above the training's."""
    shape = facts.parallel
    if shape.eval_context is not None and shape.context % shape.eval_context:
        yield Fault(
            setting="dist.eval_context_parallel_size",
            value=shape.eval_context,
            consequence="Megatron-Bridge tells a dataset the training's groups only, so ranks that "
            f"share a row in evaluation but not in training (CP {shape.context}) would read "
            "different packs and attend across them, without an error.",
            fix=f"Set it to a divisor of {shape.context}; ranks of one training replica read the "
            "same packs.",
        )


def _training_multiple(facts: RunFacts) -> int:
    shape = facts.parallel
    return required_multiple(
        ParallelShape(
            tensor=shape.tensor, context=shape.context, sequence_parallel=shape.sequence_parallel
        )
    )


@rule("sequence-length", "error", any_packing=True)
def sequence_length(facts: RunFacts) -> Iterator[Fault]:
    """The seq_length is a multiple of the alignment."""
    length = facts.packing.seq_length if facts.packing else facts.model.seq_length
    wanted = facts.parallel.multiple
    if length % wanted:
        down = length // wanted * wanted
        yield Fault(
            setting="dataset.seq_length" if facts.packing else "model.seq_length",
            value=length,
            consequence=f"A full row does not divide over the ranks, which need multiples of "
            f"{wanted} tokens.",
            fix=f"Set seq_length of model and dataset to {down or wanted} or {down + wanted}.",
        )


@rule("equal-lengths", "error")
def equal_lengths(facts: RunFacts) -> Iterator[Fault]:
    """Model and dataset have the same seq_length."""
    packing = packing_of(facts)
    if packing.seq_length != facts.model.seq_length:
        yield Fault(
            setting="model.seq_length",
            value=facts.model.seq_length,
            consequence=f"The dataset packs {packing.seq_length} tokens; buffers, schedules and "
            "throughput would be computed for another length.",
            fix=f"Set model.seq_length={packing.seq_length}, or seq_length in the dataset's YAML.",
        )


@rule("micro-batch", "error")
def micro_batch(facts: RunFacts) -> Iterator[Fault]:
    """Micro batch 1 in training, evaluation and dataset."""
    sizes = {
        "train.micro_batch_size": facts.batch.micro,
        "validation.eval_micro_batch_size": facts.batch.eval_micro,
        "dataset.micro_batch_size": facts.batch.dataset_micro,
    }
    for setting, size in sizes.items():
        if size not in (1, None):
            yield Fault(
                setting=setting,
                value=size,
                consequence="A pack is already a whole micro batch, one row of many samples; more "
                "rows have no common width, and vlm_step reads one row's boundaries.",
                fix=f"Set {setting}=1; keep tokens a step with seq_length and global_batch_size.",
            )


@rule("global-batch", "error", any_packing=True)
def global_batch(facts: RunFacts) -> Iterator[Fault | Unknown]:
    """Global batches divide over the data-parallel ranks."""
    shape = facts.parallel
    if shape.world_size is None:
        yield Unknown("the world size (give WORLD_SIZE or --world-size)")
        return
    if shape.data is None:
        yield Fault(
            setting="WORLD_SIZE",
            value=shape.world_size,
            consequence=f"Ranks do not divide into replicas of TP {shape.tensor} x PP "
            f"{shape.pipeline} x CP {shape.context}.",
            fix=f"Use a multiple of {shape.tensor * shape.pipeline * shape.context} ranks.",
        )
        return
    step = shape.data * facts.batch.micro
    if facts.batch.global_batch is not None and facts.batch.global_batch % step:
        yield Fault(
            setting="train.global_batch_size",
            value=facts.batch.global_batch,
            consequence=f"{step} packs are trained at once ({shape.data} data-parallel ranks), so "
            "the batch cannot be split evenly.",
            fix=f"Set train.global_batch_size to a multiple of {step}.",
        )
    replica = shape.tensor * shape.pipeline * (shape.eval_context or shape.context)
    step = facts.batch.eval_micro * max(shape.world_size // replica, 1)
    if facts.batch.eval_global is not None and facts.batch.eval_global % step:
        yield Fault(
            setting="validation.eval_global_batch_size",
            value=facts.batch.eval_global,
            consequence=f"Evaluation takes {step} packs at once, so the batch cannot be split "
            "evenly.",
            fix=f"Set validation.eval_global_batch_size to a multiple of {step}.",
        )


@rule("per-token-loss", "error", any_packing=True)
def per_token_loss(facts: RunFacts) -> Iterator[Fault]:
    """The loss is averaged over tokens."""
    needed = facts.packing is not None or facts.parallel.context > 1
    if needed and not facts.batch.per_token_loss:
        yield Fault(
            setting="model.calculate_per_token_loss",
            value=False,
            consequence="Each micro batch would count the same however many trained tokens it has, "
            "so tokens in sparsely trained packs weigh more, and a rank without any gives NaN.",
            fix="Set model.calculate_per_token_loss=True.",
        )


@rule("average-in-collective", "error", any_packing=True)
def average_in_collective(facts: RunFacts) -> Iterator[Fault]:
    """Gradients are summed, not averaged."""
    needed = facts.packing is not None or facts.parallel.context > 1
    if needed and facts.batch.average_in_collective:
        yield Fault(
            setting="ddp.average_in_collective",
            value=True,
            consequence="Per-token loss divides by the tokens of all ranks; averaging over ranks "
            "as well divides twice.",
            fix="Set ddp.average_in_collective=False.",
        )


@rule("packing-owners", "error")
def packing_owners(facts: RunFacts) -> Iterator[Fault]:
    """One place packs."""
    yield from faults_of(
        facts.other_packing.owners,
        "Packs would be packed again by Megatron-Bridge, or vlm_step refuses the batch.",
        "Unset {setting}; online packing excludes the other modes.",
    )


@rule("forward-step", "error")
def forward_step(facts: RunFacts) -> Iterator[Fault | Unknown]:
    """The forward step is vlm_step."""
    if facts.batch.step is None:
        yield Unknown("the forward step, which the launcher chooses")
    elif facts.batch.step != "vlm_step":
        yield Fault(
            setting="forward step",
            value=facts.batch.step,
            consequence="Other steps do not read the row's boundaries or its visual inputs.",
            fix="Pass megatron.bridge.training.vlm_step.forward_step to finetune or pretrain.",
        )


@rule("test-split", "error")
def test_split(facts: RunFacts) -> Iterator[Fault]:
    """No test split is asked for."""
    if facts.test_split:
        yield Fault(
            setting="dataset.do_test",
            value=True,
            consequence="Energon has a training and a validation stream only, so the test would "
            "run without data.",
            fix="Set dataset.do_test=False.",
        )


@rule("offline-lengths", "error", any_packing=True)
def offline_lengths(facts: RunFacts) -> Iterator[Fault]:
    """Offline packs fit the model's rows."""
    size, multiple = facts.other_packing.offline_size, facts.other_packing.offline_multiple
    specs = "dataset.offline_packing_specs"
    if size is not None and size != facts.model.seq_length:
        yield Fault(
            setting=f"{specs}.packed_sequence_size",
            value=size,
            consequence=f"Packs and model rows ({facts.model.seq_length} tokens) differ in length.",
            fix="Set both, and dataset.seq_length, to one value.",
        )
    if size is not None and (multiple or 1) % facts.parallel.multiple:
        yield Fault(
            setting=f"{specs}.pad_seq_to_mult",
            value=multiple,
            consequence="Segments of the packs do not divide over the parallel ranks.",
            fix=f"Set {specs}.pad_seq_to_mult={facts.parallel.multiple} and pack again into a "
            "fresh output folder.",
        )


RULES: Final[tuple[Rule, ...]] = (
    pipeline,
    alignment,
    eval_alignment,
    eval_context,
    sequence_length,
    equal_lengths,
    micro_batch,
    global_batch,
    per_token_loss,
    average_in_collective,
    packing_owners,
    forward_step,
    test_split,
    offline_lengths,
)
