# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Sizes from headers, for every format and mode, and without any decoder."""

import struct
import tracemalloc
import zlib
from contextlib import contextmanager
from io import BytesIO

import pytest
from lengths.media_parts import FORMATS, encode, picture
from PIL import Image, ImageFile, ImageOps, WebPImagePlugin

from energon_pack.media import image_size
from energon_pack.refusal import SampleError

KINDS = [(name, mode) for name, modes in FORMATS.items() for mode in modes]


@contextmanager
def no_decoder():
    """Make any decoding fail."""

    def fail(*arguments, **options):
        raise AssertionError("a decoder was opened")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImageFile.ImageFile, "load", fail)
        patch.setattr(Image, "_getdecoder", fail)
        patch.setattr(WebPImagePlugin.WebPImageFile, "_open", fail)
        yield


@pytest.mark.parametrize(("file_format", "mode"), KINDS)
def test_size_is_what_pillow_decodes(file_format, mode):
    data = encode(picture(37, 53, mode=mode), file_format)
    with Image.open(BytesIO(data)) as image:
        image.load()
        assert image_size(data)[:2] == (image.height, image.width) == (37, 53)


@pytest.mark.parametrize(("file_format", "mode"), KINDS)
@pytest.mark.parametrize("exif", ["ignore", "apply"])
def test_no_decoder_is_opened(file_format, mode, exif):
    data = encode(picture(5, 9, mode=mode), file_format)
    with no_decoder():
        assert image_size(data, exif=exif) == (5, 9, False)


@pytest.mark.parametrize("file_format", ["JPEG", "WEBP"])
def test_a_decoder_would_be_noticed(file_format):
    data = encode(picture(5, 9), file_format)
    with no_decoder(), pytest.raises(AssertionError, match="decoder was opened"):
        Image.open(BytesIO(data)).load()


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_followed_when_asked(file_format, orientation):
    data = encode(picture(20, 30), file_format, orientation=orientation)
    with Image.open(BytesIO(data)) as image:
        stored = image.size
        turned = ImageOps.exif_transpose(image).size
    assert image_size(data, exif="apply")[1::-1] == turned
    assert image_size(data, exif="ignore")[1::-1] == stored


@pytest.mark.parametrize("lossless", [True, False])
@pytest.mark.parametrize("size", [(1, 1), (1, 300), (17, 2), (16383, 1)])
def test_webp_sizes_are_pillows(lossless, size):
    data = encode(picture(*size), "WEBP", lossless=lossless)
    with Image.open(BytesIO(data)) as image:
        assert image_size(data)[:2] == (image.height, image.width) == size


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_an_animation_is_told(file_format):
    first, second = picture(8, 8, seed=1), picture(8, 8, seed=2)
    assert image_size(encode(first, file_format)).animated is False
    assert (
        image_size(encode(first, file_format, save_all=True, append_images=[second])).animated
        is True
    )


def test_a_bomb_is_refused_before_anything_is_allocated():
    header = b"IHDR" + struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    small = encode(picture(4, 4), "PNG")
    bomb = small[:12] + header + struct.pack(">I", zlib.crc32(header)) + small[33:]
    webp = bytearray(encode(picture(4, 4), "WEBP", orientation=1))
    assert webp[12:16] == b"VP8X"
    webp[24:30] = b"\xfe\x3f\x00\xfe\x3f\x00"
    tracemalloc.start()
    for data in (bomb, bytes(webp)):
        with pytest.raises(SampleError, match="above max_source_pixels 100000000") as caught:
            image_size(data, max_pixels=100_000_000)
        assert caught.value.cause == "too_large"
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("file_format", sorted(FORMATS))
def test_any_cut_of_a_file_gives_its_size_or_a_refusal(file_format):
    data = encode(picture(12, 34), file_format)
    for stop in range(min(len(data), 700)):
        assert size_or_cause(data[:stop]) in ((12, 34, False), "bad_image")


def size_or_cause(data):
    try:
        return image_size(data)
    except SampleError as error:
        return error.cause


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no JPEG, PNG, WebP, TIFF, BMP or GIF"),
        (b"\x00\x00\x00\x1cftypavif", "no JPEG, PNG, WebP, TIFF, BMP or GIF"),
        (b"\xff\xd8\xff\xe0" + bytes(40), "the JPEG header cannot be read"),
        (b"RIFF\x00\x00\x00\x00WEBP", "the WebP header cannot be read"),
        (b"BM" + bytes(60), "the BMP header cannot be read"),
    ],
)
def test_a_broken_file_is_named(data, says):
    with pytest.raises(SampleError, match=says) as caught:
        image_size(data)
    assert caught.value.cause == "bad_image"
