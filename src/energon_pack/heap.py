# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The trainer's Python objects, which its forked workers share until they write to them.

Energon's workers visit every object when they start, lest a tensor on a GPU be collected in them,
and collect garbage now and then. Both write to the object's header, and so copy it: 250 MB and 1.5
seconds for each worker of a trainer that has imported Megatron-Bridge. They pass over frozen ones.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

_FROZEN_AT_START = 10_000
"""More than the interpreter freezes itself: 375 objects in Python 3.12."""


def begun[T](packs: Iterator[T]) -> Iterator[T]:
    """Yield ``packs``, whose workers are forked when the first is asked for, with a frozen heap."""
    with frozen_heap():
        first = list(islice(packs, 1))
    if first:
        yield first.pop()
        yield from packs


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Hide from the collector what is there, in this process and in those forked meanwhile.

    Garbage is collected before: a worker must not do that later, it may hold memory of a GPU.
    """
    if gc.get_freeze_count() > _FROZEN_AT_START:  # somebody's, whom unfreezing would surprise
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
