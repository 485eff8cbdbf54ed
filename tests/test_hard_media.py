# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Pictures and clips of every odd kind: packed and right, or refused with a sentence."""

import io
import os
import struct
import time
import zlib
from fractions import Fraction

import av
import numpy as np
import pytest
import torch
from hard_parts import JPEG
from lengths.media_parts import FORMATS, clip, encode, frames, picture
from lengths.oracle import config, exchange, measure, measured, raw, refused
from PIL import Image

from energon_pack.candidate import Candidate
from energon_pack.decoding.images import ImageDecoder
from energon_pack.media import image_size
from energon_pack.pixels import PixelReader
from energon_pack.refusal import SampleError

MP4 = clip(frames(10, 64, 96))
UNREAD = "no JPEG, PNG, WebP, TIFF, BMP or GIF"
AS_STORED = ImageDecoder(exif="ignore", alpha="drop")
Image.init()


def image_sample(data):
    return raw(exchange("image", "?"), jpg=data)


def video_sample(data):
    return raw(exchange("video", "?"), mp4=data)


def decoded(family, sample, **settings):
    """The first medium's frames, of the size that was measured."""
    medium = measured(family, sample, **settings).media[0]
    return medium, pictures_of(PixelReader(family, config(**settings)), medium)


def pictures_of(reader, medium):
    """All frames of a medium, as (frames, 3, height, width)."""
    pictures = torch.cat(list(reader.frames([medium])))
    assert pictures.shape[2:] == medium.resized
    return pictures


def breaks(reader, medium):
    """What is said when a medium is decoded; None where it does not break."""
    try:
        pictures_of(reader, medium)
    except SampleError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("name", "mode"), [(n, mode) for n, all_ in FORMATS.items() for mode in all_]
)
def test_every_mode_of_a_format_that_is_read_is_what_pillow_shows(name, mode, qwen3):
    data = encode(picture(40, 56, mode=mode), name)
    decoded(qwen3, image_sample(data))
    shown = Image.open(io.BytesIO(data)).convert("RGB")
    ours = AS_STORED.decode(data).permute(1, 2, 0).numpy()
    assert np.abs(ours.astype(int) - np.array(shown)).max() <= (2 if name == "JPEG" else 0)


@pytest.mark.parametrize("name", sorted(Image.SAVE.keys() - FORMATS.keys() - {"MPO"}))
def test_other_formats_are_refused(name, qwen3):
    try:
        data = encode(picture(64, 64), name)
    except (OSError, ValueError, KeyError):
        pytest.skip("Pillow writes no RGB picture of this format here")
    assert UNREAD in refused(qwen3, image_sample(data)).message


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_picture_cut_anywhere_is_packed_or_told(name, qwen3):
    whole = encode(picture(64, 64), name)
    reader = PixelReader(qwen3, config())
    for at in sorted({0, 1, 8, 20, 33, *range(60, len(whole), len(whole) // 6)}):
        found = measure(qwen3, image_sample(whole[:at]))
        if not isinstance(found, Candidate):
            assert found.cause == "bad_image"
            assert UNREAD in found.message or "damaged or cut short" in found.message
            continue
        broken = breaks(reader, found.media[0])
        assert broken is None or broken.endswith("the file is damaged or cut short")


def png(width, height, *more):
    """A PNG file of a few bytes that says how large it is."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), *more,
              (b"IDAT", zlib.compress(b"\0" * 99)), (b"IEND", b"")]  # fmt: skip
    parts = (struct.pack(">I", len(body)) + kind + body
             + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks)  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


WEBP = b"RIFF\x64\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\xff" * 6
GIF = b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + b"," + struct.pack(
    "<HHHHB", 0, 0, 65535, 65535, 0) + b"\x02\x02\x44\x01\0;"  # fmt: skip


@pytest.mark.parametrize(
    "data", [png(100_000, 100_000), png(2**31 - 1, 2**31 - 1), WEBP, GIF, png(16_000, 16_000)]
)
def test_a_bomb_is_refused_by_its_size(data, qwen3):
    assert refused(qwen3, image_sample(data)).cause == "too_large"


def test_a_compressed_text_of_200_mb_in_a_picture_is_not_unpacked(qwen3):
    bomb = (b"zTXt", b"x\0\0" + zlib.compress(b"a" * (200 << 20)))
    assert refused(qwen3, image_sample(png(8, 8, bomb))).cause == "bad_image"


def test_the_pixel_limit_is_the_users_own_in_both_directions(qwen3, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    sample = image_sample(encode(picture(64, 64), "PNG"))
    assert refused(qwen3, sample, max_source_pixels=4095).cause == "too_large"
    decoded(qwen3, sample, max_source_pixels=4096)
    assert Image.MAX_IMAGE_PIXELS == 1000


def test_the_first_of_two_sizes_in_a_webp_file_counts():
    whole = encode(picture(8, 8, mode="RGBA"), "WEBP", save_all=True,
                   append_images=[picture(8, 8, seed=1)])  # fmt: skip
    assert whole[12:16] == b"VP8X"
    second = whole[12:24] + b"\xff" * 6
    assert image_size(whole + second)[:2] == (8, 8)


@pytest.mark.parametrize(
    ("height", "width"), [(1, 200), (200, 1), (3, 600), (1, 1), (1, 28), (27, 28)]
)
def test_thin_and_tiny_pictures_are_packed(height, width, qwen3):
    decoded(qwen3, image_sample(encode(picture(height, width), "PNG")))


@pytest.mark.parametrize(("height", "width"), [(1, 201), (201, 1), (3, 601)])
def test_pictures_beyond_200_to_1_are_refused(height, width, qwen3):
    assert refused(qwen3, image_sample(encode(picture(height, width), "PNG"))).cause == "bad_size"


@pytest.mark.parametrize("data", [MP4, b"hello", b"<html>404</html>", b"", b"\0" * 5000])
def test_what_is_no_picture_is_refused_as_such(data, qwen3):
    assert UNREAD in refused(qwen3, image_sample(data)).message


def test_a_wrong_extension_and_bytes_behind_the_end_change_nothing(qwen3):
    for data in (encode(picture(64, 64), "PNG"), JPEG + os.urandom(3000)):
        decoded(qwen3, image_sample(data))


@pytest.mark.parametrize("name", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_an_animated_picture_the_first_frame_is_packed_and_noted(name, qwen3):
    first, second = picture(64, 64), picture(64, 64, seed=5)
    data = encode(first, name, save_all=True, append_images=[second])
    assert measured(qwen3, image_sample(data)).notes == ("animated_image",)
    alone = AS_STORED.decode(encode(first, name)).clone()
    assert (AS_STORED.decode(data).float() - alone).abs().mean() < 3


def muxed(container, *, audio, pictures):
    """A file with an audio stream, a video stream, or a video stream without frames."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        sound = output.add_stream("aac", rate=44100) if audio else None
        video = output.add_stream("libx264", rate=30) if pictures is not None else None
        if video:
            video.width = video.height = 64
            video.pix_fmt = "yuv420p"
        for number in range(5 if sound else 0):
            tone = np.zeros((1, 1024), np.float32)
            frame = av.AudioFrame.from_ndarray(tone, format="fltp", layout="mono")
            frame.sample_rate, frame.pts = 44100, number * 1024
            output.mux(sound.encode(frame))
        for number, pixels in enumerate(frames(pictures or 1, 64, 64)[: pictures or 0]):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 30)
            output.mux(video.encode(frame))
        for stream in filter(None, (sound, video if pictures else None)):
            output.mux(stream.encode())
    return file.getvalue()


@pytest.mark.parametrize("container", ["mp4", "matroska"])
def test_clips_with_and_without_sound_and_pictures(container, qwen3):
    decoded(qwen3, video_sample(muxed(container, audio=True, pictures=4)))
    for pictures in (None, 0):
        silent = refused(qwen3, video_sample(muxed(container, audio=True, pictures=pictures)))
        assert silent.cause == "bad_video"
        assert says_one_of(silent.message, "no video stream", "shows no frame", "cut short")


def says_one_of(message, *sentences):
    return any(sentence in message for sentence in sentences)


@pytest.mark.parametrize(
    "data", [JPEG, b"hello", b"#EXTM3U\n/etc/passwd\n", b"", b"ffconcat version 1.0"]
)
def test_what_is_no_clip_is_never_opened(data, qwen3):
    assert refused(qwen3, video_sample(data)).message == "the video is no mp4, mkv or webm file"


@pytest.mark.parametrize("container", ["mp4", "matroska"])
def test_a_clip_cut_anywhere_is_packed_or_told(container, qwen3):
    whole = clip(frames(10, 64, 96), container=container)
    reader = PixelReader(qwen3, config())
    for at in range(8, len(whole), len(whole) // 10):
        found = measure(qwen3, video_sample(whole[:at]))
        if not isinstance(found, Candidate):
            assert found.cause == "bad_video"
            assert says_one_of(found.message, "cut short", "no frame", "no video", "does not know")
            continue
        broken = breaks(reader, found.media[0])
        assert broken is None or says_one_of(broken, "cut short", "frames, frame")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_clips_of_a_few_frames_are_packed(count, qwen3):
    medium, pictures = decoded(qwen3, video_sample(clip(frames(count, 64, 64))))
    assert len(pictures) == len(medium.frame_indices) == count


@pytest.mark.parametrize(("height", "width"), [(63, 65), (65, 63)])
@pytest.mark.parametrize("codec", ["libx264", "mpeg4", "ffv1"])
def test_odd_sizes_are_packed(codec, height, width, qwen3):
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as output:
        stream = output.add_stream(codec, rate=5)
        stream.height, stream.width = height, width
        stream.pix_fmt = {"libx264": "yuv444p", "ffv1": "bgr0"}.get(codec, "yuv420p")
        for number, pixels in enumerate(frames(4, height, width)):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 5)
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    medium, _ = decoded(qwen3, video_sample(file.getvalue()))
    assert (medium.height, medium.width) == (height, width)


def changed(box, offset, value):
    """The clip with bytes behind a box's name overwritten."""
    at = MP4.index(box) + 4 + offset
    return MP4[:at] + value + MP4[at + len(value) :]


def test_a_rotated_clip_is_packed_as_it_is_stored(qwen3):
    quarter = struct.pack(">9i", 0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30)
    plain, turned = (decoded(qwen3, video_sample(d)) for d in (MP4, changed(b"tkhd", 40, quarter)))
    assert turned[0].grid == plain[0].grid
    assert (turned[1] == plain[1]).all()


@pytest.mark.parametrize(
    "data",
    [changed(b"stsz", 8, b"\x7f\xff\xff\xff"), changed(b"stts", 8, b"\x7f\xff\xff\xff" * 2),
     changed(b"mvhd", 12, bytes(4)), changed(b"mdhd", 12, bytes(4)),
     changed(b"avc1", 24, b"\xff" * 4), changed(b"avc1", 24, b"\0\1\0\1"),
     MP4.replace(b"avc1", b"xxxx")],
)  # fmt: skip
def test_a_clip_that_lies_about_itself_is_packed_or_refused(data, qwen3):
    found = measure(qwen3, video_sample(data))
    if isinstance(found, Candidate):
        decoded(qwen3, video_sample(data))
    else:
        assert found.cause == "bad_video"


def test_a_clip_of_100_000_frames_is_measured_in_seconds(qwen3):
    file, still = io.BytesIO(), frames(1, 64, 64)[0]
    with av.open(file, "w", format="mp4") as output:
        stream = output.add_stream("libx264", rate=30, options={"preset": "ultrafast"})
        stream.height = stream.width = 64
        stream.pix_fmt, stream.thread_count = "yuv420p", 1
        packets = stream.encode(av.VideoFrame.from_ndarray(still, format="rgb24")) + stream.encode()
        (packet,) = [packet for packet in packets if packet.size]
        payload = bytes(packet)
        for number in range(100_000):
            copy = av.Packet(payload)
            copy.stream, copy.time_base = stream, Fraction(1, 30)
            copy.pts = copy.dts = number
            copy.is_keyframe = True
            output.mux(copy)
    start = time.perf_counter()
    candidate = measured(qwen3, video_sample(file.getvalue()), max_num_frames=16)
    assert time.perf_counter() - start < 10
    assert candidate.media[0].frame_indices[-1] > 99_000
    assert len(pictures_of(PixelReader(qwen3, config()), candidate.media[0])) == 16
