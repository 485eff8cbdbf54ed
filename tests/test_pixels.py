# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Pixels are the Hugging Face processors', bit for bit; whatever breaks costs its sample only."""

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
import torch
from pictures import FAMILIES, encoded, image_medium, noise, video_medium, visual_family, visual_of
from PIL import Image, ImageOps

from energon_pack.decoding import patchify
from energon_pack.refusal import SampleError

DTYPES = ("float32", "bfloat16", "uint8")


@pytest.fixture(params=["compiled", "torch"])
def loop(request, monkeypatch):
    """Both ways of making patches."""
    if request.param == "torch":
        monkeypatch.setattr(patchify, "_patchify", None)
    elif patchify._patchify is None:
        pytest.skip("built without a C compiler")
    return request.param


def packed(family, media, dtype="float32", **settings):
    return visual_of(family, media, dtype, **settings).normalized_for_model()


def hf_image(family, data, *, prepare=lambda image: image):
    with Image.open(BytesIO(data)) as image:
        return family.processor.image_processor(images=[prepare(image)], return_tensors="pt")


def hf_video(family, frames):
    return family.processor.video_processor(
        videos=[frames], do_sample_frames=False, return_tensors="pt"
    )


def as_dtype(tensor, dtype):
    return tensor.bfloat16() if dtype == "bfloat16" else tensor


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FAMILIES)
def test_images_and_videos_of_a_pack_equal_the_processors(name, dtype, loop):
    family = visual_family(name)
    images = [encoded(noise(*size), "JPEG") for size in ((300, 421), (64, 900), (1031, 777))]
    references = [hf_image(family, data) for data in images]
    lists = [[noise(170, 243, seed=at) for at in range(count)] for count in (5, 8, 1)]
    video_references = [hf_video(family, frames) for frames in lists]
    media = [
        medium
        for data, reference, frames, video_reference in zip(
            images, references, lists, video_references, strict=True
        )
        for medium in (
            image_medium(family, data, reference),
            video_medium(
                family, tuple(map(encoded, frames)), (170, 243), range(len(frames)), video_reference
            ),
        )
    ]
    ours = packed(family, media, dtype)
    for ours_key, all_references in (
        ("pixel_values", references),
        ("image_grid_thw", references),
        ("pixel_values_videos", video_references),
        ("video_grid_thw", video_references),
    ):
        wanted = torch.cat([reference[ours_key] for reference in all_references])
        wanted = as_dtype(wanted, dtype) if wanted.is_floating_point() else wanted
        assert torch.equal(ours[ours_key], wanted), ours_key


FILES = {
    "grey JPEG": encoded(noise(200, 300, mode="L"), "JPEG"),
    "progressive JPEG": encoded(noise(200, 300), "JPEG", progressive=True),
    "4:4:4 JPEG": encoded(noise(201, 303), "JPEG", subsampling=0),
    "4:2:2 JPEG": encoded(noise(201, 303), "JPEG", subsampling=1),
    "CMYK JPEG": encoded(noise(200, 300, mode="CMYK"), "JPEG"),
    "PNG": encoded(noise(200, 300)),
    "palette PNG": encoded(noise(200, 300).quantize(16)),
    "bilevel PNG": encoded(noise(200, 300, mode="1")),
    "16-bit PNG": encoded(Image.fromarray(np.arange(60_000, dtype=np.uint16).reshape(200, 300))),
    "WebP": encoded(noise(200, 300), "WEBP"),
    "TIFF": encoded(noise(200, 300), "TIFF"),
    "BMP": encoded(noise(200, 300), "BMP"),
    "GIF": encoded(noise(200, 300), "GIF"),
}
TRANSPARENT = {
    "RGBA PNG": encoded(noise(200, 300, mode="RGBA")),
    "LA PNG": encoded(noise(200, 300, mode="LA")),
    "palette PNG with a transparent colour": encoded(noise(200, 300).quantize(16), transparency=3),
    "RGBA WebP": encoded(noise(200, 300, mode="RGBA"), "WEBP", lossless=True),
}


@pytest.mark.parametrize("file", FILES)
def test_every_mode_looks_to_us_as_to_the_processor(file):
    family, data = visual_family(), FILES[file]
    reference = hf_image(family, data)
    ours = packed(family, [image_medium(family, data, reference)])
    assert torch.equal(ours["pixel_values"], reference["pixel_values"])


@pytest.mark.parametrize("file", TRANSPARENT)
def test_dropped_alpha_keeps_the_colour_beneath_as_the_processor_does(file):
    family, data = visual_family(), TRANSPARENT[file]
    reference = hf_image(family, data)
    ours = packed(family, [image_medium(family, data, reference)], alpha="drop")
    assert torch.equal(ours["pixel_values"], reference["pixel_values"])


@pytest.mark.parametrize("file", TRANSPARENT)
def test_white_shows_through_transparent_pixels(file):
    family, data = visual_family(), TRANSPARENT[file]

    def on_white(image):
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")

    reference = hf_image(family, data, prepare=on_white)
    ours = packed(family, [image_medium(family, data, reference)])
    assert (ours["pixel_values"] - reference["pixel_values"]).abs().max() <= 2.1 / 127.5
    dropped = packed(family, [image_medium(family, data, reference)], alpha="drop")
    assert (ours["pixel_values"] - dropped["pixel_values"]).abs().max() > 0.3


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_the_picture_only_where_it_is_applied(file_format, orientation):
    family = visual_family()
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(noise(200, 300), file_format, exif=exif)
    for setting, prepare in (("ignore", lambda image: image), ("apply", ImageOps.exif_transpose)):
        reference = hf_image(family, data, prepare=prepare)
        medium = image_medium(family, data, reference)
        if setting == "apply" and orientation >= 5:
            medium = replace(medium, height=medium.width, width=medium.height)
        ours = packed(family, [medium], exif=setting)
        assert torch.equal(ours["pixel_values"], reference["pixel_values"]), setting


def test_only_the_used_frames_of_a_list_are_decoded():
    family = visual_family()
    frames = [noise(96, 128, seed=at) for at in range(6)]
    used = (0, 2, 5)
    reference = hf_video(family, [frames[at] for at in used])
    stored = tuple(encoded(frames[at]) if at in used else b"never read" for at in range(6))
    ours = packed(family, [video_medium(family, stored, (96, 128), used, reference)])
    assert torch.equal(ours["pixel_values_videos"], reference["pixel_values_videos"])


JPEG = encoded(noise(200, 300), "JPEG")


@pytest.mark.parametrize(
    "data", [JPEG[: len(JPEG) // 2], JPEG[:300], FILES["PNG"][:-200], b"", b"no picture at all"]
)
def test_a_broken_picture_is_a_decode_failure_told_in_one_sentence(data):
    family = visual_family()
    medium = replace(image_medium(family, JPEG, hf_image(family, JPEG)), data=data)
    with pytest.raises(SampleError, match="the image broke while it was decoded: ") as caught:
        packed(family, [medium])
    assert caught.value.cause == "decode_failed"
    assert "\n" not in str(caught.value)


def test_a_picture_of_another_size_than_measured_is_refused():
    family = visual_family()
    medium = image_medium(family, JPEG, hf_image(family, JPEG))
    with pytest.raises(SampleError, match="300x200 pixels, its header said 299x200"):
        packed(family, [replace(medium, width=299)])
