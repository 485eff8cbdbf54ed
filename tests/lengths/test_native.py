# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Where ``native`` differs from ``bridge``: the closed list of docs/lengths.md.

``bridge`` is proved equal to Megatron-Bridge 0.6.2 in tests/integration/test_bridge_labels.py.
"""

import pickle
import random

import numpy as np
import pytest
from lengths.media_parts import encode, frames, picture
from lengths.oracle import exchange, measured, raw
from PIL import Image

IMAGE = encode(picture(448, 448))
FRAMES = [encode(Image.fromarray(pixels)) for pixels in frames(16, 448, 448)]


def user(text):
    return [{"role": "user", "content": text}, {"role": "assistant", "content": "An answer."}]


def both(family, sample, **settings):
    ways = ("native", "bridge")
    return [measured(family, sample, preprocessing=way, **settings) for way in ways]


def text(family, candidate):
    return family.tokenizer.decode(_collapsed(family, candidate)[0])


def _collapsed(family, candidate):
    """Ids and what is trained, each run of visual tokens as one."""
    ids = candidate.ids
    visual = np.isin(ids, (family.image_token_id, family.video_token_id))
    kept = ~visual | ~np.append(False, visual[:-1])
    return ids[kept].tolist(), candidate.trained[kept].tolist()


def words(rng):
    return " ".join(
        rng.choice(["dog", "图", "12\n\n", "é", "<b>"]) for _ in range(rng.randint(1, 9))
    )


@pytest.mark.parametrize("seed", range(30))
def test_where_no_point_of_the_list_applies_ids_and_labels_are_equal(seed, family):
    rng = random.Random(seed)
    turns, images = [], 0
    for _ in range(rng.randint(1, 3)):
        count = rng.randint(0, 2)
        images += count
        turns += user("<image>" * count + words(rng))
    sample = raw(turns, jpgs=pickle.dumps([IMAGE] * images))
    native, bridge = both(family, sample, min_pixels=448 * 448, max_pixels=448 * 448)
    assert _collapsed(family, native) == _collapsed(family, bridge)
    if family.factor == 28:
        assert native.ids.tolist() == bridge.ids.tolist()


def test_one_resize_by_the_models_own_factor(qwen3):
    sample = raw(user("<image>"), jpg=encode(picture(500, 430)))
    native, bridge = both(qwen3, sample, min_pixels=65_536, max_pixels=16_777_216)
    assert (native.media[0].resized, native.media[0].earlier_sizes) == ((512, 416), ())
    assert (bridge.media[0].resized, bridge.media[0].earlier_sizes) == ((512, 416), ((504, 420),))


def test_the_processors_own_pixel_bounds(qwen3):
    native, bridge = both(qwen3, raw(user("<image>"), jpg=encode(picture(256, 256))))
    assert (native.media[0].resized, bridge.media[0].resized) == ((256, 256), (448, 448))


def test_media_where_the_conversation_puts_them(qwen3):
    native, bridge = both(qwen3, raw(user("See<image>here"), jpg=IMAGE))
    place = "<|vision_start|><|image_pad|><|vision_end|>"
    assert f"See{place}here" in text(qwen3, native)
    assert f"{place}Seehere" in text(qwen3, bridge)


def test_spaces_beside_a_placeholder_are_kept(qwen3):
    native, bridge = both(qwen3, raw(user("<image> a "), jpg=IMAGE))
    assert "<|vision_end|> a <|im_end|>" in text(qwen3, native)
    assert "<|vision_end|>a<|im_end|>" in text(qwen3, bridge)


def test_placeholders_in_typed_text_are_places(qwen3):
    native, bridge = both(qwen3, raw(exchange("a<image>b"), jpg=IMAGE))
    assert "<image>" not in text(qwen3, native)
    assert "a<image>b" in text(qwen3, bridge)


def test_frame_lists_keep_all_frames_and_their_true_time(qwen3):
    sample = raw({"messages": user("<video>"), "fps": 1}, videos=pickle.dumps([FRAMES]))
    native, bridge = both(qwen3, sample)
    assert native.media[0].frame_indices == tuple(range(16))
    assert native.media[0].frame_times[-1] == 15
    assert bridge.media[0].frame_indices == (0, 5, 10, 15)
    assert bridge.media[0].frame_times[-1] == 15 / 24


def test_frames_above_the_limit_are_taken_evenly(family):
    sample = raw({"messages": user("<video>"), "fps": 1}, videos=pickle.dumps([FRAMES]))
    native, bridge = both(family, sample, max_num_frames=4)
    assert native.media[0].frame_indices == (0, 5, 10, 15)
    assert bridge.media[0].frame_indices == (0, 1, 2, 3)
