# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""How long a segment and a row must physically be: the only round-up in the project."""

import math
from dataclasses import dataclass
from typing import Final

ROW_BYTES: Final = 44
"""Bytes a token of a row takes: ids and labels of 8, loss mask of 4, positions of 3 * 8."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelShape:
    """The parallel sizes that a packed row has to divide by."""

    tensor: int = 1
    context: int = 1
    sequence_parallel: bool = False
    eval_context: int | None = None
    """Context parallel size of evaluation; None when it is the training size."""


def _multiple_for(tensor: int, context: int, *, sequence_parallel: bool) -> int:
    balanced = 2 * context if context > 1 else 1
    scattered = context * tensor if sequence_parallel and tensor > 1 else 1
    return math.lcm(balanced, scattered)


def required_multiple(shape: ParallelShape) -> int:
    """Return the multiple in tokens that every segment of a packed row must have.

    Context parallelism cuts each segment into ``2 * CP`` chunks; sequence parallelism scatters the
    row over ``CP * TP`` ranks. Evaluation may run with a context size of its own, so both count.
    Source: Megatron-Bridge 0.6.2, ``training/config.py``.
    """
    contexts = {shape.context, shape.context if shape.eval_context is None else shape.eval_context}
    return math.lcm(
        *(
            _multiple_for(shape.tensor, context, sequence_parallel=shape.sequence_parallel)
            for context in contexts
        )
    )


def padded_length(length: int, multiple: int) -> int:
    """Round ``length`` tokens up to the next multiple."""
    return -(-length // multiple) * multiple
