# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""mRoPE positions are those of the installed transformers models."""

import pickle
import random

import numpy as np
import pytest
import torch
import transformers as hf
from lengths.media_parts import clip, encode, frames, picture
from lengths.oracle import exchange, measured, raw
from PIL import Image

from energon_pack.assembling.positions import _takes_whole_seconds, mrope_positions
from energon_pack.candidate import Candidate, Medium

_TEXT = {
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 8,
}
_VISION = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 1}


def transformers_positions(family, candidate: Candidate) -> np.ndarray:
    """Ask the model class's own method, on a model of the smallest size."""
    model = _model(family)
    types = np.select(
        [candidate.ids == family.image_token_id, candidate.ids == family.video_token_id], [1, 2], 0
    )
    grids = {
        f"{kind}_grid_thw": torch.tensor([m.grid for m in candidate.media if m.kind == kind])
        for kind in {medium.kind for medium in candidate.media}
    }
    if family.name == "qwen2_5_vl":
        seconds = [m.second_per_grid for m in candidate.media if m.kind == "video"]
        grids["second_per_grid_ts"] = torch.tensor(seconds)
    positions, _ = model.get_rope_index(
        input_ids=torch.from_numpy(candidate.ids.astype(np.int64))[None],
        mm_token_type_ids=torch.from_numpy(types)[None],
        **grids,
    )
    return positions[:, 0].numpy()


def _model(family):
    if family.name == "qwen2_5_vl":
        vision = {**_VISION, "out_hidden_size": 8, "tokens_per_second": 2}
        return hf.Qwen2_5_VLModel(hf.Qwen2_5_VLConfig(text_config=_TEXT, vision_config=vision))
    vision = {**_VISION, "out_hidden_size": 8, "deepstack_visual_indexes": [0]}
    if family.name == "qwen3_vl":
        text = {**_TEXT, "head_dim": 8}
        return hf.Qwen3VLModel(hf.Qwen3VLConfig(text_config=text, vision_config=vision))
    del vision["deepstack_visual_indexes"]
    text = {**_TEXT, "head_dim": 8, "layer_types": ["full_attention"]}
    return hf.Qwen3_5Model(hf.Qwen3_5Config(text_config=text, vision_config=vision))


def _sample(rng: random.Random):
    """Text, images and videos in any order and number."""
    question, images, videos = [], [], []
    for _ in range(rng.randint(0, 4)):
        question.append("some words " * rng.randint(0, 3))
        if rng.random() < 0.6:
            images.append(encode(picture(rng.randint(40, 300), rng.randint(40, 300))))
            question.append("image")
        else:
            shown = frames(rng.randint(2, 9), 2 * rng.randint(20, 60), 2 * rng.randint(20, 60))
            stored = [encode(Image.fromarray(pixels)) for pixels in shown]
            videos.append(clip(shown) if rng.random() < 0.3 else stored)
            question.append("video")
    messages = exchange(*question, "and now?")
    fps = rng.choice((0.4, 1, 2, 4))
    sample = raw({"messages": messages, "fps": fps}, jpgs=pickle.dumps(images))
    sample.parts["videos"] = pickle.dumps(videos)
    return sample


@pytest.mark.parametrize("seed", range(8))
def test_positions_are_those_of_the_transformers_model(seed, family):
    rng = random.Random(seed)
    for _ in range(3):
        candidate = measured(family, _sample(rng), max_pixels=None)
        expected = transformers_positions(family, candidate)
        assert mrope_positions(family, candidate).tolist() == expected.tolist()


def test_a_worked_example(qwen3):
    image = Medium(kind="image", data=b"", height=64, width=96, resized=(64, 96), grid=(1, 4, 6))
    ids = np.array([7, *[qwen3.image_token_id] * 6, 7], dtype=np.int32)
    candidate = Candidate(
        __key__="", __restore_key__=(), ids=ids, trained=np.zeros(8, bool), media=(image,)
    )
    assert mrope_positions(qwen3, candidate).tolist() == [
        [0, 1, 1, 1, 1, 1, 1, 4],
        [0, 1, 1, 1, 2, 2, 2, 4],
        [0, 1, 2, 3, 1, 2, 3, 4],
    ]


def test_time_stands_still_above_two_frames_a_second_on_qwen2_5_up_to_transformers_5_12(processors):
    from energon_pack.family import load_family

    family = load_family(str(processors["qwen2_5_vl"]))
    stored = [encode(picture(56, 56))] * 8
    candidates = {
        fps: measured(
            family,
            raw({"messages": exchange("video"), "fps": fps}, videos=pickle.dumps([stored])),
        )
        for fps in (4, 1)
    }
    assert candidates[4].media[0].second_per_grid == 0.5
    assert _takes_whole_seconds() == (hf.__version__ < "5.13")
    still = 1 if _takes_whole_seconds() else 4
    for fps, distinct in ((4, still), (1, 4)):
        visual = candidates[fps].ids == family.video_token_id
        times = mrope_positions(family, candidates[fps])[0][visual]
        assert len(set(times.tolist())) == distinct
