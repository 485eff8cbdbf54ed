# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""JPEG files of every kind, whole or damaged, become the bytes that Pillow shows."""

from io import BytesIO

import numpy as np
import pytest
import simplejpeg
from pictures import encoded, noise
from PIL import Image

from energon_pack.decoding import images
from energon_pack.decoding.images import ImageDecoder

SIZES = [(1, 1), (7, 9), (16, 16), (17, 33), (250, 101)]
KINDS = {
    "grey": {"mode": "L"},
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "progressive": {"progressive": True},
    "restart markers": {"restart_marker_blocks": 1},
    "stored as RGB": {"keep_rgb": True, "subsampling": 0},
    "stored as CMYK": {"mode": "CMYK"},
    "best": {"quality": 100},
    "worst": {"quality": 3},
}


def jpeg(size, *, mode="RGB", **options):
    return encoded(noise(*size, mode=mode), "JPEG", **options)


def shown(data):
    """What Pillow shows."""
    with Image.open(BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


@pytest.fixture
def decoder():
    return ImageDecoder(exif="ignore", alpha="drop")


@pytest.fixture
def refusals(monkeypatch):
    """How often simplejpeg has refused a file."""
    seen = []
    decode = simplejpeg.decode_jpeg

    def noting(*arguments, **named):
        try:
            return decode(*arguments, **named)
        except ValueError as error:
            seen.append(error)
            raise

    monkeypatch.setattr(simplejpeg, "decode_jpeg", noting)
    return seen


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_what_pillow_shows(kind, size, decoder, refusals):
    data = jpeg(size, **KINDS[kind])
    assert np.array_equal(decoder.decode(data).permute(1, 2, 0), shown(data))
    assert refusals == []


def test_what_others_only_warn_of_is_decoded_as_they_do(decoder, refusals):
    whole = jpeg((120, 200))
    tables = whole.index(b"\xff\xdb")
    data = whole[:tables] + b"\1\2\3" + whole[tables:]
    assert np.array_equal(decoder.decode(data).permute(1, 2, 0), shown(whole))
    assert len(refusals) == 1


@pytest.mark.parametrize("at", [0.3, 0.6, 0.9])
def test_a_flipped_byte_gives_what_pillow_gives(at, decoder):
    data = bytearray(jpeg((120, 200)))
    data[int(at * len(data))] ^= 0x10
    assert np.array_equal(decoder.decode(bytes(data)).permute(1, 2, 0), shown(bytes(data)))


def test_a_smaller_picture_after_a_larger_one_holds_nothing_of_it(decoder):
    for size in ((300, 400), (10, 10), (200, 30), (301, 401)):
        data = jpeg(size)
        assert np.array_equal(decoder.decode(data).permute(1, 2, 0), shown(data))


def test_memory_is_kept_for_usual_pictures_only(decoder, monkeypatch):
    monkeypatch.setattr(images, "_MOST_KEPT_BYTES", 3_000_000)
    decoder.decode(jpeg((300, 400)))
    kept = decoder._memory
    decoder.decode(jpeg((200, 300)))
    assert decoder._memory is kept
    larger = decoder.decode(jpeg((1200, 1500)))
    assert decoder._memory is kept
    assert np.array_equal(larger.permute(1, 2, 0), shown(jpeg((1200, 1500))))


def test_what_is_cut_short_breaks(decoder):
    with pytest.raises(RuntimeError, match="incomplete or truncated"):
        decoder.decode(jpeg((120, 200))[:-900])
