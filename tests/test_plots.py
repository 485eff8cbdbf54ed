# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Plots are written, and the picture of a pack shows what the model sees."""

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

from energon_pack.assembling.visual import VisualInputs
from energon_pack.encoder import PackingTaskEncoder
from energon_pack.family import load_family
from energon_pack.loader import build_loader
from energon_pack.plots.figures import plot_fill, plot_loss, plot_memory
from energon_pack.plots.pack import plot_pack, shown_media

MIB = 1 << 20


@pytest.fixture(scope="module")
def family(demo_config):
    return load_family(demo_config.model)


@pytest.fixture(scope="module")
def pack(demo_config, family):
    config = dataclasses.replace(demo_config, num_workers=0)
    return next(iter(build_loader(config, encoder=PackingTaskEncoder(config, family=family))))


def is_plot(path) -> bool:
    with Image.open(path) as image:
        return image.format == "PNG" and min(image.size) > 500


def test_each_plot_is_a_png_of_a_readable_size(tmp_path):
    plots = (
        plot_fill(tmp_path / "new" / "fill.png", [0.99, 1.0, 0.5]),
        plot_memory(tmp_path / "memory.png", [(1.0, 0, 300 * MIB), (2.0, 1, 310 * MIB)]),
        plot_loss(tmp_path / "loss.png", [12.0, 7.0, 3.0]),
    )
    assert all(is_plot(path) for path in plots)


def test_a_pack_becomes_one_picture(tmp_path, pack, family):
    assert is_plot(plot_pack(tmp_path / "pack.png", pack, family))


def test_every_visual_token_belongs_to_one_shown_image_or_frame(pack, family):
    visual = {family.image_token_id, family.video_token_id}
    places = [at for at, token in enumerate(pack["input_ids"][0].tolist()) if token in visual]
    shown = [at for item in shown_media(pack, family) for at in range(item.start, item.end)]
    assert shown == places


def test_patches_are_put_together_in_the_right_order(family):
    """The real processor's patches of a gradient come back as that gradient."""
    across = np.linspace(0, 255, 320, dtype=np.uint8)
    down = np.linspace(255, 0, 256, dtype=np.uint8)
    picture = np.stack(
        [
            np.broadcast_to(across, (256, 320)),
            np.broadcast_to(down[:, None], (256, 320)),
            np.full((256, 320), 90, dtype=np.uint8),
        ],
        axis=-1,
    )
    inputs = family.processor.image_processor(Image.fromarray(picture), return_tensors="pt")
    pack = pack_of(inputs, family)
    (shown,) = shown_media(pack, family)
    assert np.abs(shown.pixels * 255 - picture).max() < 1


def pack_of(inputs, family):
    tokens = int(inputs["image_grid_thw"].prod()) // family.merge_size**2
    return {
        "input_ids": torch.full((1, tokens), family.image_token_id),
        "visual_inputs": VisualInputs(
            pixel_values=inputs["pixel_values"], image_grid_thw=inputs["image_grid_thw"]
        ),
    }


def test_a_text_only_pack_shows_nothing(pack, family):
    assert list(shown_media({**pack, "visual_inputs": None}, family)) == []
