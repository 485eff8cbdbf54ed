# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors that a worker hands to the trainer without a copy."""

import math

import torch
from torch.utils.data import get_worker_info


def empty_for_trainer(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Allocate an uninitialised tensor in shared memory, where the DataLoader passes it by handle.

    An ordinary tensor is copied into shared memory as it is sent: 1068 MB for one of 400 MB. In
    the trainer's own process (``num_workers: 0``) nothing is sent, so it is ordinary memory.
    """
    if get_worker_info() is None:
        return torch.empty(shape, dtype=dtype)
    storage = torch.UntypedStorage._new_shared(math.prod(shape) * dtype.itemsize)
    return torch.empty(0, dtype=dtype).set_(storage, 0, shape)
