# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Decoding parts of a clip gives the frames that decoding all of it gives."""

import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import av
import pytest
import torch
from pictures import clip, reader_of, video_medium, visual_family, visual_of

from energon_pack.decoding import clips
from energon_pack.decoding.clips import decode_clip
from energon_pack.refusal import SampleError

NUM_FRAMES = 60

KINDS = {
    "H.264": {},
    "H.264, closed GOPs": {"g": "12"},
    "H.264, open GOPs": {"x264-params": "open-gop=1:keyint=12:min-keyint=12"},
    "H.264, intra refresh": {"x264-params": "intra-refresh=1:keyint=12"},
    "H.265, open GOPs": {
        "codec": "libx265",
        "x265-params": "log-level=none:keyint=12:min-keyint=12:open-gop=1",
    },
    "MPEG-4 with B-frames": {"codec": "mpeg4", "bf": "2", "g": "12"},
    "VP9": {"codec": "libvpx-vp9", "container": "webm", "g": "12", "cpu-used": "8"},
    "VP8": {"codec": "libvpx", "container": "webm", "g": "12", "cpu-used": "8"},
    "Matroska": {"container": "matroska", "g": "12"},
}

PLACES = {
    "every fifth": range(0, NUM_FRAMES, 5),
    "two": (13, 55),
    "the last": (NUM_FRAMES - 1,),
    "neighbours of a key frame": (10, 11, 12, 13, 22, 23),
    "all": range(NUM_FRAMES),
}


def all_frames(data):
    with av.open(BytesIO(data)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


@pytest.mark.parametrize("kind", KINDS)
def test_chosen_frames_are_those_of_a_full_decode(kind):
    data = clip(NUM_FRAMES, **KINDS[kind])
    frames = all_frames(data)
    assert len(frames) == NUM_FRAMES
    for name, places in PLACES.items():
        ours = list(decode_clip(data, tuple(places)))
        assert len(ours) == len(places), name
        for place, frame in zip(places, ours, strict=True):
            assert torch.equal(frame.permute(1, 2, 0), torch.from_numpy(frames[place])), name


def test_a_clip_is_decoded_in_parts_unless_it_cannot_be(monkeypatch):
    from_the_start = []
    original = clips._from_the_start

    def counted(data, indices):
        from_the_start.append(tuple(indices))
        return original(data, indices)

    monkeypatch.setattr(clips, "_from_the_start", counted)
    list(decode_clip(clip(NUM_FRAMES, **KINDS["H.264, open GOPs"]), (13, 55)))
    assert from_the_start == []
    list(decode_clip(clip(NUM_FRAMES, **KINDS["H.264, intra refresh"]), (2, 55)))
    assert from_the_start == [(55,)]


def test_frames_that_are_not_there_are_a_decode_failure():
    family = visual_family()
    data = clip(10)
    reference = {"video_grid_thw": torch.tensor([[1, 6, 8]])}
    medium = video_medium(family, data, (96, 128), (0, 12), reference)
    with pytest.raises(SampleError, match="it has 10 frames, frame 12 is used") as caught:
        list(reader_of(family).frames([medium]))
    assert caught.value.cause == "decode_failed"


def test_a_clip_cut_off_in_its_middle_is_a_decode_failure():
    family = visual_family()
    data = clip(40, container="matroska", g="10")
    reference = {"video_grid_thw": torch.tensor([[1, 6, 8]])}
    medium = video_medium(family, data[: len(data) // 2], (96, 128), (0, 39), reference)
    with pytest.raises(SampleError) as caught:
        list(reader_of(family).frames([medium]))
    assert caught.value.cause == "decode_failed"


FORK = """
import multiprocessing, sys
from test_clips import all_frames, clip, decode_clip
data = clip(8, size=(480, 640))
all_frames(data)
list(decode_clip(data, range(8)))
worker = multiprocessing.get_context("fork").Process(
    target=lambda: sys.exit(len(list(decode_clip(data, range(8)))))
)
worker.start()
worker.join(60)
worker.kill()
sys.exit(worker.exitcode != 8)
"""


def test_a_forked_worker_decodes_after_its_trainer_has_decoded():
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    assert subprocess.run(command, env=environment, check=False).returncode == 0


@pytest.mark.parametrize("name", ["qwen2_5_vl", "qwen3_vl"])
def test_a_clip_in_a_pack_equals_the_processor_on_the_same_frames(name):
    family = visual_family(name)
    data = clip(NUM_FRAMES, size=(180, 240))
    used = (0, 14, 31, 45, 59)
    frames = all_frames(data)
    reference = family.processor.video_processor(
        videos=[torch.stack([torch.from_numpy(frames[at]).permute(2, 0, 1) for at in used])],
        do_sample_frames=False,
        return_tensors="pt",
    )
    medium = video_medium(family, data, (180, 240), used, reference)
    ours = visual_of(family, [medium])
    assert torch.equal(ours.pixel_values_videos, reference["pixel_values_videos"])
