# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Limits, notes and everything that a sample can do wrong."""

import json
import pickle
import re

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lengths.media_parts import clip, encode, frames, picture
from lengths.oracle import (
    assert_same,
    config,
    exchange,
    frames_as_video,
    measure,
    measured,
    processed,
    raw,
    refused,
)
from megatron.energon import InterleavedSample, TextSample, VQASample
from PIL import Image

from energon_pack.candidate import Candidate, Refused
from energon_pack.measure import Measurer
from energon_pack.reading.sources import ChatMLSample
from energon_pack.refusal import CAUSES

JPEG = encode(picture(64, 96))
FRAMES = [encode(Image.fromarray(pixels)) for pixels in frames(8, 64, 64)]
MP4 = clip(frames(3, 64, 64))
BASE = {"__key__": "k", "__restore_key__": ("Webdataset", 3)}


def videos(*lists):
    return pickle.dumps(list(lists))


@pytest.mark.parametrize("ratio", [200, 201])
def test_a_thin_picture_passes_up_to_200_to_1(ratio, family):
    sample = raw(exchange("image"), png=encode(picture(1, ratio), "PNG"))
    if ratio == 200:
        assert_same(
            measured(family, sample),
            processed(family, exchange("image"), images=[picture(1, ratio)]),
        )
    else:
        assert refused(family, sample).cause == "bad_size"


def test_a_clip_smaller_than_a_token_is_refused_where_the_processor_does(family):
    sample = raw(exchange("video"), mp4=clip(frames(4, 30, 64)))
    video = frames_as_video(frames(4, 30, 64))
    metadata = {"fps": 30, "total_num_frames": 4, "frames_indices": [0, 1, 2, 3]}
    try:
        real = processed(
            family,
            exchange("video"),
            videos=[video],
            video_metadata=[metadata],
            do_sample_frames=False,
        )
    except ValueError:
        assert "the model's resize refuses the picture" in refused(family, sample).message
    else:
        assert_same(measured(family, sample), real)


@pytest.mark.parametrize(
    ("limit", "cause", "says"),
    [
        ({"max_num_images": 1}, "too_many_images", "2 images, max_num_images is 1"),
        ({"max_visual_tokens": 100}, "too_many_visual_tokens", "max_visual_tokens is 100"),
        ({"seq_length": 50}, "overlong", "seq_length is 50"),
        ({"max_source_pixels": 6000}, "too_large", "96x64, above max_source_pixels 6000"),
    ],
)
def test_limits_refuse_with_both_numbers(limit, cause, says, qwen3):
    sample = raw(exchange("image", "image"), jpgs=pickle.dumps([JPEG, JPEG]))
    result = refused(qwen3, sample, **limit)
    assert result.cause == cause
    assert says in result.message
    if cause == "overlong":
        assert result.length == measured(qwen3, sample).length


def test_a_sample_of_exactly_seq_length_fits(qwen3):
    sample = raw(exchange("image"), jpg=JPEG)
    length = measured(qwen3, sample).length
    assert measured(qwen3, sample, seq_length=length).length == length
    assert refused(qwen3, sample, seq_length=length - 1).length == length


@pytest.mark.parametrize(("limit", "kept"), [(2, (0, 7)), (3, (0, 4, 7)), (9, range(8))])
def test_frames_above_the_limit_are_taken_evenly(limit, kept, qwen3):
    sample = raw({"messages": exchange("video"), "fps": 2}, videos=videos(FRAMES))
    medium = measured(qwen3, sample, max_num_frames=limit).media[0]
    assert medium.frame_indices == tuple(kept)
    assert medium.frame_times == tuple(at / 2 for at in kept)


def test_a_missing_rate_follows_the_setting_and_is_counted(qwen3):
    sample = raw(exchange("video"), videos=videos(FRAMES))
    candidate = measured(qwen3, sample, frame_list_fps=4)
    assert candidate.notes == ("assumed_fps",)
    assert candidate.media[0].frame_times[-1] == 7 / 4
    result = refused(qwen3, sample, frame_list_fps=None)
    assert result.cause == "bad_video"
    assert "set frame_list_fps" in result.message


def test_timestamps_of_the_sample_are_the_frames_times(qwen3):
    times = [0, 0.1, 0.2, 3, 4, 5, 6, 60]
    sample = raw({"messages": exchange("video"), "timestamps": times}, videos=videos(FRAMES))
    text = qwen3.tokenizer.decode(measured(qwen3, sample).ids)
    shown = re.findall(r"<([\d.]+) seconds>", text)
    assert shown == ["0.1", "1.6", "4.5", "33.0"]


def test_an_animated_image_is_counted(qwen3):
    gif = encode(picture(64, 64), "GIF", save_all=True, append_images=[picture(64, 64, seed=1)])
    assert measured(qwen3, raw(exchange("image"), gif=gif)).notes == ("animated_image",)


def test_exif_is_applied_when_asked(qwen3):
    sample = raw(exchange("image"), jpg=encode(picture(320, 640), orientation=6))
    ignored, applied = (measured(qwen3, sample, exif=way).media[0] for way in ("ignore", "apply"))
    assert (ignored.height, ignored.width) == (applied.width, applied.height) == (320, 640)
    assert ignored.grid[1:] == applied.grid[:0:-1]


def test_interleaved_text_and_images_train_the_last_text(qwen3):
    sample = InterleavedSample(**BASE, sequence=["See ", JPEG, " and ", JPEG, "It is a cat."])
    candidate = measured(qwen3, sample)
    assert candidate.num_images == 2
    assert qwen3.tokenizer.decode(candidate.ids[candidate.trained]) == "It is a cat.<|im_end|>\n"
    assert refused(qwen3, InterleavedSample(**BASE, sequence=["See ", JPEG])).cause == "no_target"


def test_a_message_is_one_short_line_whatever_the_sample_holds(qwen3):
    result = refused(qwen3, raw([{"role": "x\n" * 100_000, "content": "?"}]))
    assert len(result.message) <= 300
    assert "\n" not in result.message


def chatml(**fields):
    return ChatMLSample(**BASE, **({"conversation": json.dumps(exchange("image"))} | fields))


@pytest.mark.parametrize(
    ("sample", "cause", "says"),
    [
        (chatml(imgs=JPEG[:200]), "bad_image", "the JPEG header cannot be read"),
        (chatml(imgs=b"hello"), "bad_image", "no JPEG, PNG, WebP, TIFF, BMP or GIF"),
        (chatml(imgs=b"\x80hello"), "bad_pickle", "cannot be read"),
        (chatml(imgs=pickle.dumps("x")), "bad_pickle", "holds a str, no list"),
        (chatml(imgs=pickle.dumps([3])), "bad_pickle", "an image is a int"),
        (chatml(imgs=[torch.zeros(3, 4, 4)]), "bad_pickle", "is decoding on?"),
        (chatml(videos=pickle.dumps([[b"x", 3]])), "bad_pickle", "a frame of a video is a int"),
        (chatml(videos=pickle.dumps([FRAMES])), "media_mismatch", "places 1 image"),
        (raw(exchange("video"), videos=videos([])), "bad_video", "an empty list of frames"),
        (raw(exchange("video"), videos=videos([FRAMES[0], JPEG])), "bad_video", "differ in size"),
        (raw(exchange("video"), videos=videos(b"x")), "bad_video", "no mp4, mkv or webm"),
        (raw({"messages": exchange("video"), "timestamps": [1]}, videos=videos(FRAMES)),
         "bad_video", "1 timestamps for 8 frames"),
        (raw(b"[" * 200_000), "bad_conversation", "nested too deeply"),
        (raw([*exchange("\ud800")]), "bad_conversation", "no valid Unicode"),
        (raw([{"role": "assistant", "content": "x", "tool_calls": 7}]), "bad_conversation",
         "the chat template refuses"),
        (TextSample(**BASE, text="x"), "bad_conversation", "a TextSample does not map"),
        (VQASample(**BASE, image=JPEG, context="?"), "no_target", "no answer"),
        (VQASample(**BASE, image=JPEG, context=b"\xff", answers=["x"]), "bad_conversation",
         "no UTF-8"),
        (7, "bad_conversation", "a int does not map"),
    ],
)  # fmt: skip
def test_a_bad_sample_is_refused_with_one_sentence(sample, cause, says, qwen3):
    result = refused(qwen3, sample)
    assert result.cause == cause
    assert says in result.message
    assert "\n" not in result.message
    if sample != 7:
        assert result.__key__ == sample.__key__
        assert result.__restore_key__ == sample.__restore_key__


@pytest.mark.parametrize("error", [MemoryError, RecursionError, StopIteration, KeyError, OSError])
def test_no_error_of_one_sample_ends_a_run(error, qwen3, monkeypatch):
    def fail(*arguments, **options):
        raise error

    measurer = Measurer(qwen3, config())
    monkeypatch.setattr("energon_pack.measure.image_size", fail)
    result = measurer.measure(raw(exchange("image"), jpg=JPEG))
    assert isinstance(result, Refused)
    assert result.cause in CAUSES
    assert result.message


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=200), at=st.integers(0, 1 << 16), name=st.sampled_from(
    ["jpg", "png", "gif", "webp", "tiff", "bmp", "mp4", "jpgs", "videos", "json"]))  # fmt: skip
def test_random_damage_is_measured_or_refused(data, at, name, qwen3):
    whole = {
        "mp4": MP4, "json": json.dumps(exchange("x")).encode(),
        "jpgs": pickle.dumps([JPEG]), "videos": videos(FRAMES[:2]),
    }.get(name, JPEG)  # fmt: skip
    at %= len(whole)
    damaged = whole[:at] + data + whole[at + len(data) :]
    place = {"mp4": "video", "videos": "video", "json": "x"}.get(name, "image")
    result = measure(qwen3, raw(exchange(place), **{name: damaged}))
    assert isinstance(result, Candidate) or result.cause != "unexpected", result
