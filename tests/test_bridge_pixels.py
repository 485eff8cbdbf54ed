# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""``preprocessing: bridge`` gives the pixels of qwen-vl-utils followed by the processor."""

from dataclasses import replace
from io import BytesIO

import pytest
import torch
from pictures import FAMILIES, encoded, image_medium, noise, video_medium, visual_family, visual_of
from PIL import Image

from energon_pack.config import PackingConfig
from energon_pack.measuring.frames import Frames
from energon_pack.measuring.resize import Resizer

vision_process = pytest.importorskip("qwen_vl_utils.vision_process")

CONFIG = PackingConfig(path="x", model="y", preprocessing="bridge")


def frames_used(count):
    return Frames(
        indices=tuple(range(count)), times=(0.0,) * count, second_per_grid=1.0,
        num_before_sampling=count,
    )  # fmt: skip


def packed(family, medium, dtype="float32"):
    return visual_of(family, [medium], dtype, preprocessing="bridge")


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_images(name, mode):
    family = visual_family(name)
    data = encoded(noise(517, 689, mode=mode))
    with Image.open(BytesIO(data)) as image:
        first = vision_process.fetch_image({"image": image.convert("RGB")})
    reference = family.processor.image_processor(
        images=[first], min_pixels=200_704, max_pixels=1_003_520, return_tensors="pt"
    )
    resize = Resizer(family, CONFIG).image(517, 689)
    medium = replace(
        image_medium(family, data, reference), earlier_sizes=resize.earlier, resized=resize.final
    )
    assert torch.equal(packed(family, medium).pixel_values, reference["pixel_values"])


@pytest.mark.parametrize("name", FAMILIES)
def test_frame_lists(name):
    family = visual_family(name)
    frames = [noise(217, 389, seed=at) for at in range(6)]
    first = vision_process.fetch_video({"video": frames})
    bounds = {"min_pixels": 200_704, "max_pixels": 1_003_520} if name == "qwen2_5_vl" else {}
    reference = family.processor.video_processor(
        videos=[first], do_sample_frames=False, return_tensors="pt", **bounds
    )
    resize = Resizer(family, CONFIG).video(frames_used(6), 217, 389)
    stored = tuple(map(encoded, frames))
    medium = replace(
        video_medium(family, stored, (217, 389), range(6), reference),
        earlier_sizes=resize.earlier,
        resized=resize.final,
    )
    ours = packed(family, medium)
    assert torch.equal(ours.pixel_values_videos, reference["pixel_values_videos"])


def test_uint8_patches_of_fractional_frames_hold_the_nearest_byte():
    family = visual_family()
    resize = Resizer(family, CONFIG).video(frames_used(2), 217, 389)
    reference = {"video_grid_thw": torch.tensor([[1, *(side // 16 for side in resize.final)]])}
    medium = replace(
        video_medium(family, (encoded(noise(217, 389)),) * 2, (217, 389), (0, 1), reference),
        earlier_sizes=resize.earlier,
    )
    exact = packed(family, medium).pixel_values_videos.clamp(-1, 1)
    rounded = packed(family, medium, "uint8").normalized_for_model()["pixel_values_videos"]
    assert 0 < (rounded - exact).abs().max() <= 0.501 / 127.5
