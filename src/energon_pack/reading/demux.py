# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Clip bytes to the size and times of the frames that a player shows, without decoding.

1. The first bytes say mp4 or Matroska; nothing else is opened (FFmpeg would follow playlists).
2. FFmpeg reads the container and may use no decoder: it would decode frames just to probe them,
   12 ms for 720p H.264, where the container says all that is asked here in 0.1 ms. Where it does
   not say the size (MPEG-4 part 2), the clip is opened again with probing.
3. Every packet with a time that is not marked to be discarded is one shown frame. The container's
   own frame count is 0 for Matroska and counts trimmed frames in an edit list (40 for 28 shown).
4. Times come from the packets in presentation order. Where they stay within half a frame of an even
   grid at the average rate, the grid is taken: containers round times, some to milliseconds.
"""

from dataclasses import dataclass
from io import BytesIO
from typing import Any

import av

from energon_pack.media import check_pixels
from energon_pack.refusal import SampleError

_NO_DECODERS = {"codec_whitelist": "none"}
_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"styp")


@dataclass(frozen=True, kw_only=True, slots=True)
class Clip:
    """What a clip shows."""

    height: int
    width: int
    fps: float
    """Average frames a second."""
    times: tuple[float, ...]
    """Seconds of each shown frame, from the first one on."""


def read_clip(data: bytes, *, max_pixels: int | None = None) -> Clip:
    """Read an encoded clip; raises ``SampleError`` (``bad_video``, ``too_large``)."""
    file_format = container_format(data)
    try:
        clip = _open(data, file_format, _NO_DECODERS)
        if not (clip.height and clip.width):
            clip = _open(data, file_format, {})
    except (av.error.FFmpegError, ArithmeticError, LookupError) as error:
        message = "the clip cannot be opened; the file is damaged or cut short"
        raise SampleError("bad_video", message) from error
    if not (clip.height and clip.width):
        raise SampleError("bad_video", "the clip does not say its size")
    check_pixels("clip", clip.height, clip.width, max_pixels)
    return clip


def is_clip(data: bytes) -> bool:
    """Tell by its first bytes whether ``data`` is an mp4 or Matroska (mkv, webm) file."""
    return data[:4] == b"\x1a\x45\xdf\xa3" or data[4:8] in _BOXES


def container_format(data: bytes) -> str:
    """Return FFmpeg's name of the container; raises ``SampleError`` (``bad_video``) for others."""
    if not is_clip(data):
        raise SampleError("bad_video", "the video is no mp4, mkv or webm file")
    return "mp4" if data[4:8] in _BOXES else "matroska"


def is_shown(packet: Any) -> bool:
    """Tell whether a demuxed packet becomes a frame that a player shows."""
    return packet.pts is not None and not packet.is_discard


def _open(data: bytes, file_format: str, options: dict[str, str]) -> Clip:
    with av.open(BytesIO(data), format=file_format, options=options) as container:
        if not container.streams.video:
            raise SampleError("bad_video", "the file has no video stream")
        if container.streams.video[0].codec_context is None:
            raise SampleError("bad_video", "the clip is in a coding that FFmpeg does not know")
        return _read_stream(container, container.streams.video[0])


def _read_stream(container: Any, stream: Any) -> Clip:
    ticks = sorted(packet.pts for packet in container.demux(stream) if is_shown(packet))
    if not ticks:
        raise SampleError("bad_video", "the clip shows no frame")
    times = [float((tick - ticks[0]) * stream.time_base) for tick in ticks]
    rate = stream.average_rate or stream.guessed_rate
    if rate:
        fps = float(rate)
    elif times[-1] > 0:
        fps = (len(times) - 1) / times[-1]
    else:
        raise SampleError("bad_video", "the clip does not say its frame rate")
    return Clip(height=stream.height, width=stream.width, fps=fps, times=_on_grid(times, fps))


def _on_grid(times: list[float], fps: float) -> tuple[float, ...]:
    grid = tuple(at / fps for at in range(len(times)))
    even = all(abs(time - point) < 0.5 / fps for time, point in zip(times, grid, strict=True))
    return grid if even else tuple(times)
