# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Shown frames, their times and size, from the container alone."""

from fractions import Fraction
from io import BytesIO

import av
import numpy as np
import pytest
from lengths.media_parts import clip, decoded, frames

from energon_pack.reading.demux import read_clip
from energon_pack.refusal import SampleError

KINDS = [
    ("libx264", "mp4"), ("libx264", "matroska"), ("libx265", "mp4"), ("libvpx-vp9", "webm"),
    ("libsvtav1", "mp4"), ("libsvtav1", "matroska"), ("mpeg4", "mp4"),
]  # fmt: skip


def remuxed(data: bytes, *, start: int = 0, **options: str) -> bytes:
    """Copy the packets into another mp4; ``start`` ticks are cut off by an edit list."""
    file = BytesIO()
    with (
        av.open(BytesIO(data)) as source,
        av.open(file, "w", format="mp4", options=options) as sink,
    ):
        stream = sink.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.pts -= start
                packet.dts -= start
                packet.stream = stream
                sink.mux(packet)
    return file.getvalue()


@pytest.mark.parametrize(("codec", "container"), KINDS)
@pytest.mark.parametrize("count", [6, 17])
def test_frames_and_size_are_the_decoders(codec, container, count):
    data = clip(frames(count, 90, 122), codec=codec, container=container)
    found = read_clip(data)
    assert (len(found.times), found.height, found.width) == decoded(data).shape[:3]
    assert found.fps == 30
    assert found.times == tuple(at / 30 for at in range(count))


@pytest.mark.parametrize("codec", ["libx264", "libvpx-vp9", "libsvtav1"])
def test_a_single_frame_is_counted(codec):
    assert read_clip(clip(frames(1, 64, 64), codec=codec)).times == (0.0,)


def test_frames_cut_off_by_an_edit_list_are_not_counted():
    data = remuxed(clip(frames(40, 64, 64), fps=25), start=512 * 12, avoid_negative_ts="disabled")
    with av.open(BytesIO(data)) as container:
        assert container.streams.video[0].frames == 40
    assert len(read_clip(data).times) == len(decoded(data)) == 28
    assert read_clip(data).times[0] == 0.0


def test_a_fragmented_file_is_counted():
    data = remuxed(clip(frames(20, 64, 64)), movflags="frag_keyframe+empty_moov")
    assert len(read_clip(data).times) == 20


@pytest.mark.parametrize("container", ["mp4", "matroska"])
def test_uneven_frames_keep_their_own_times(container):
    ticks = [0, 40, 80, 1000, 1040, 3000]
    data = clip(frames(6, 64, 64), container=container, ticks=ticks)
    assert read_clip(data).times == pytest.approx(np.array(ticks) / 1000, abs=2e-3)


def test_times_rounded_by_the_container_are_put_back_on_their_grid():
    data = clip(frames(9, 64, 64), codec="libvpx-vp9", container="webm", fps=Fraction(24000, 1001))
    found = read_clip(data)
    assert found.times == tuple(at / found.fps for at in range(9))


@pytest.mark.parametrize(("codec", "container"), KINDS[:-1])
def test_no_decoder_is_opened(codec, container, monkeypatch):
    data = clip(frames(5, 64, 64), codec=codec, container=container)
    opened = []
    real = av.open
    monkeypatch.setattr(
        av, "open", lambda *args, **kwargs: opened.append(kwargs) or real(*args, **kwargs)
    )
    read_clip(data)
    assert [call["options"] for call in opened] == [{"codec_whitelist": "none"}]


@pytest.mark.parametrize(("codec", "container"), KINDS)
def test_any_cut_of_a_clip_is_read_or_refused(codec, container):
    data = clip(frames(4, 64, 64), codec=codec, container=container)
    for stop in range(0, len(data), max(1, len(data) // 60)):
        found = clip_or_cause(data[:stop])
        assert found == "bad_video" or 1 <= len(found.times) <= 4


def clip_or_cause(data):
    try:
        return read_clip(data)
    except SampleError as error:
        return error.cause


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"#EXTM3U\nhttp://localhost/x.ts\n",
        b"ffconcat version 1.0\nfile /etc/passwd\n",
        b"RIFF",
    ],
)
def test_nothing_but_mp4_and_matroska_is_opened(data):
    with pytest.raises(SampleError, match="no mp4, mkv or webm file"):
        read_clip(data)


def test_a_file_without_video_is_refused():
    file = BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=16000)
        for start in range(0, 4096, 1024):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
            frame.sample_rate, frame.pts = 16000, start
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    with pytest.raises(SampleError, match="no video stream"):
        read_clip(file.getvalue())


def test_a_clip_above_the_pixel_limit_is_refused():
    with pytest.raises(SampleError, match="96x64, above max_source_pixels 1000") as caught:
        read_clip(clip(frames(2, 64, 96)), max_pixels=1000)
    assert caught.value.cause == "too_large"
