# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energon_pack.alignment import ParallelShape, padded_length, required_multiple

SIZES = st.sampled_from([1, 2, 3, 4, 8])


@pytest.mark.parametrize(
    ("shape", "multiple"),
    [
        (ParallelShape(), 1),
        (ParallelShape(tensor=4), 1),
        (ParallelShape(tensor=4, sequence_parallel=True), 4),
        (ParallelShape(context=2), 4),
        (ParallelShape(context=2, tensor=4, sequence_parallel=True), 8),
        (ParallelShape(context=4, tensor=2, sequence_parallel=True), 8),
        (ParallelShape(context=1, eval_context=2), 4),
        (ParallelShape(context=3, eval_context=2), 12),
    ],
)
def test_the_multiple_of_known_topologies(shape, multiple):
    assert required_multiple(shape) == multiple


@given(SIZES, SIZES, st.booleans(), st.none() | SIZES)
def test_the_multiple_serves_training_and_evaluation(
    tensor, context, sequence_parallel, evaluation
):
    multiple = required_multiple(
        ParallelShape(
            tensor=tensor,
            context=context,
            sequence_parallel=sequence_parallel,
            eval_context=evaluation,
        )
    )
    for size in {context, evaluation or context}:
        assert size == 1 or multiple % (2 * size) == 0
        assert not sequence_parallel or tensor == 1 or multiple % (size * tensor) == 0


@given(st.integers(0, 10**6), st.integers(1, 512))
def test_padding_is_the_least_multiple_that_holds_the_length(length, multiple):
    padded = padded_length(length, multiple)
    assert padded % multiple == 0
    assert 0 <= padded - length < multiple
