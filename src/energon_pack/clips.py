# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Encoded clip bytes to the RGB frames that are used, in presentation order."""

from collections.abc import Iterator, Sequence
from io import BytesIO

import av
import torch


def decode_clip(data: bytes, indices: Sequence[int]) -> Iterator[torch.Tensor]:
    """Yield the shown frames of the ascending ``indices``, each (3, height, width) uint8 RGB.

    Raises ``ValueError`` when the clip ends before the last of them.
    """
    wanted = iter(indices)
    target = next(wanted, None)
    with av.open(BytesIO(data), mode="r") as container:
        stream = container.streams.video[0]
        stream.thread_type = "NONE"
        for index, frame in enumerate(container.decode(stream)):
            while target == index:
                yield torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1)
                target = next(wanted, None)
            if target is None:
                return
    if target is not None:
        raise ValueError(f"clip ends before frame {target}")
