# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Encoded clip bytes to the RGB frames that are used, decoding little more than they need.

1. Packets are known by their times; the wanted ones stand at the wanted places in time order.
2. They fall into groups that start at a key frame. A group without a wanted frame is left out. One
   that shows a wanted frame before its key frame (open GOP) is joined to the group before it.
3. A group is decoded up to its last wanted packet. On the way, pictures that are neither wanted nor
   needed by others are passed over.

Some clips cannot be taken apart: a group that does not start with an intra picture, a time that
occurs twice, a packet without a picture. They are decoded from the first frame on.
"""

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

import av
import torch
from av.video.frame import PictureType
from av.video.reformatter import VideoReformatter

from energon_pack.reading.demux import container_format, is_shown
from energon_pack.refusal import SampleError

_CODECS_THAT_SKIP = ("h264", "hevc", "mpeg4")
"""Decoders that ask before each packet whether pictures that no other needs are wanted."""


def decode_clip(data: bytes, indices: Sequence[int]) -> Iterator[torch.Tensor]:
    """Yield the shown frames of the ascending ``indices``, each (3, height, width) uint8 RGB.

    Raises ``SampleError`` (``decode_failed``) when the clip ends before the last of them.
    """
    num_done = 0
    try:
        for frame in _wanted_groups(data, indices):
            yield _rgb(frame)
            num_done += 1
    except _NotSeparableError:
        for frame in _from_the_start(data, indices[num_done:]):
            yield _rgb(frame)


class _NotSeparableError(Exception):
    """The clip cannot be decoded in parts."""


def _rgb(frame: Any) -> torch.Tensor:
    # PyAV's own conversion keeps a pool of threads in the process. A worker forked from a trainer
    # that has converted a frame inherits the pool without its threads and waits for them for ever.
    converted = VideoReformatter().reformat(frame, format="rgb24", threads=1)
    return torch.from_numpy(converted.to_ndarray()).permute(2, 0, 1)


def _open(data: bytes) -> Any:
    container: Any = av.open(BytesIO(data), mode="r", format=container_format(data))
    container.streams.video[0].thread_type = "NONE"
    return container


def _from_the_start(data: bytes, indices: Sequence[int]) -> Iterator[Any]:
    wanted = set(indices)
    num_frames = 0
    with _open(data) as container:
        for index, frame in enumerate(container.decode(video=0)):
            if index in wanted:
                yield frame
            if index >= indices[-1]:
                return
            num_frames += 1
    message = f"it has {num_frames} frames, frame {indices[-1]} is used"
    raise SampleError("decode_failed", message)


def _wanted_groups(data: bytes, indices: Sequence[int]) -> Iterator[Any]:
    with _open(data) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        ticks = sorted(packet.pts for packet in packets if is_shown(packet))
        if len(set(ticks)) < len(ticks) or indices[-1] >= len(ticks):
            raise _NotSeparableError
        wanted = {ticks[index] for index in indices}
        for group in _groups(packets, wanted):
            yield from _decode_group(stream.codec_context, group, wanted)


def _groups(packets: list[Any], wanted: set[int]) -> list[list[Any]]:
    groups: list[list[Any]] = []
    for packet in packets:
        if packet.is_keyframe or not groups:
            groups.append([])
        elif packet.pts in wanted and packet.pts < groups[-1][0].pts and len(groups) > 1:
            groups[-2:] = [groups[-2] + groups[-1]]
        groups[-1].append(packet)
    return [group for group in groups if any(packet.pts in wanted for packet in group)]


def _decode_group(context: Any, group: list[Any], wanted: set[int]) -> Iterator[Any]:
    awaited = {packet.pts for packet in group} & wanted
    unwanted = "NONREF" if context.name in _CODECS_THAT_SKIP else "DEFAULT"
    entered = False
    for packet in [*group, None]:  # None makes the decoder hand out what it holds back
        if packet is not None:
            context.skip_frame = "DEFAULT" if packet.pts in wanted else unwanted
        for frame in context.decode(packet):
            if not entered and frame.pict_type != PictureType.I:
                raise _NotSeparableError
            entered = True
            if frame.pts in awaited:
                awaited.remove(frame.pts)
                yield frame
        if not awaited:
            break
    if awaited:
        raise _NotSeparableError
    context.flush_buffers()
