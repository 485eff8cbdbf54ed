# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Measured ids are the real processor's, token for token; what it refuses is refused here.

The default profile is small; ``-m full`` measures 1000 images and 200 clips a family.
"""

import pickle
import random
import re
from fractions import Fraction
from io import BytesIO

import numpy as np
import pytest
from lengths.media_parts import FORMATS, average_rate, clip, decoded, encode, frames, picture
from lengths.oracle import (
    assert_same,
    exchange,
    frames_as_video,
    measure,
    measured,
    processed,
    raw,
)
from PIL import Image, ImageOps

from energon_pack.candidate import Candidate, Refused
from energon_pack.family import load_family

IMAGES = [pytest.param(50), pytest.param(1000, marks=pytest.mark.full)]
CLIPS = [pytest.param(10), pytest.param(200, marks=pytest.mark.full)]
BOUNDS = [(None, None), (3136, 50_000), (None, 100_000), (200_704, 1_003_520), (1 << 20, None)]
CODECS = (
    ("libx264", "mp4"), ("libx264", "matroska"), ("libx265", "mp4"), ("libvpx-vp9", "webm"),
    ("libvpx-vp9", "matroska"), ("libsvtav1", "mp4"), ("mpeg4", "mp4"),
)  # fmt: skip


def _sizes(rng: random.Random) -> tuple[int, int]:
    kind = rng.choice(("usual", "usual", "tiny", "thin", "edge", "large"))
    if kind == "tiny":
        return rng.randint(1, 40), rng.randint(1, 40)
    if kind == "thin":
        short = rng.randint(1, 4)
        return rng.sample((short, short * 200 + rng.choice((-1, 0, 1))), 2)
    if kind == "edge":
        factor = rng.choice((28, 32))
        return tuple(
            factor * rng.randint(1, 12) + rng.choice((-1, 0, 1, factor // 2)) for _ in "hw"
        )
    return tuple(rng.randint(60, 2400 if kind == "large" else 900) for _ in "hw")


def _image_case(rng: random.Random) -> tuple[bytes, str]:
    file_format = rng.choice(sorted(FORMATS))
    image = picture(*_sizes(rng), mode=rng.choice(FORMATS[file_format]), seed=rng.random() > 0.5)
    turned = file_format in ("JPEG", "PNG", "WEBP") and rng.random() < 0.4
    options = {"orientation": rng.randint(1, 8)} if turned else {}
    return encode(image, file_format, **options), rng.choice(("ignore", "apply"))


def _as_read(data: bytes, exif: str) -> Image.Image:
    image = Image.open(BytesIO(data))
    return ImageOps.exif_transpose(image) if exif == "apply" else image


@pytest.mark.parametrize("count", IMAGES)
@pytest.mark.parametrize("bounds", range(len(BOUNDS)))
def test_images_measure_as_the_processor_makes_them(count, bounds, family, processors):
    least, most = BOUNDS[bounds]
    bounded = load_family(str(processors[family.name]), min_pixels=least, max_pixels=most)
    rng = random.Random(bounds)
    done = refusals = 0
    while done < count // len(BOUNDS):
        exif = rng.choice(("ignore", "apply"))
        cases = [_image_case(rng)[0] for _ in range(rng.choice((1, 1, 2)))]
        done += len(cases)
        messages = exchange("image", "Look: ", *["image"] * (len(cases) - 1), "what?")
        parts = {f"_{at}_jpg": data for at, data in enumerate(cases)}
        found = measure(bounded, raw(messages, **parts), exif=exif)
        real = _processed_or_refused(
            bounded, messages, images=[_as_read(data, exif) for data in cases]
        )
        if real is None:
            assert isinstance(found, Refused)
            assert found.cause == "bad_size"
            refusals += 1
        else:
            assert isinstance(found, Candidate), found
            assert_same(found, real)
    assert refusals < done


def _processed_or_refused(family, messages, **media):
    """What the processor makes of media; None where it refuses their shape."""
    try:
        return processed(family, messages, **media)
    except ValueError as error:
        if not re.search("aspect ratio|must be larger than", str(error)):
            raise
        return None


def _clip_case(rng: random.Random) -> bytes:
    codec, container = rng.choice(CODECS)
    size = [2 * rng.randint(32, 110) for _ in "hw"]
    options = {}
    if codec == "libx264":
        options = {"bf": str(rng.randint(0, 3)), "g": str(rng.choice((1, 5, 250)))}
    count = rng.randint(6 if codec == "libx265" else 1, 40)
    ticks = None
    if codec in ("libx264", "libvpx-vp9") and rng.random() < 0.3:
        ticks = np.cumsum([0, *(rng.randint(10, 400) for _ in range(count - 1))]).tolist()
    return clip(
        frames(count, *size, seed=rng.randint(0, 9)),
        codec=codec,
        container=container,
        fps=rng.choice((30, 25, 24, 60, 5, 1, Fraction(30000, 1001), Fraction(24000, 1001))),
        ticks=ticks,
        **options,
    )


@pytest.mark.parametrize("count", CLIPS)
def test_clips_measure_as_the_processor_makes_them(count, family):
    rng = random.Random(7)
    for _ in range(count):
        data = _clip_case(rng)
        shown = decoded(data)
        wanted = rng.choice((2.0, 1.0, 4.0, 0.5))
        messages = exchange("video", "what?")
        candidate = measured(family, raw(messages, mp4=data), video_fps=wanted)
        medium = candidate.media[0]
        assert medium.frame_indices[-1] < len(shown)
        rate = average_rate(data)
        even = np.allclose(
            medium.frame_times, np.array(medium.frame_indices) / rate, rtol=0, atol=1e-9
        )
        if len(shown) > 2 and even:
            metadata = {"fps": rate, "total_num_frames": len(shown)}
            sampling = {"do_sample_frames": True, "fps": wanted}
            chosen = shown
        else:  # of uneven rate: its true times, as frame numbers at one a second
            metadata = {
                "fps": 1,
                "total_num_frames": len(medium.frame_times),
                "frames_indices": list(medium.frame_times),
            }
            sampling = {"do_sample_frames": False}
            chosen = shown[list(medium.frame_indices)]
        real = processed(
            family,
            messages,
            videos=[frames_as_video(chosen)],
            video_metadata=[metadata],
            **sampling,
        )
        assert_same(candidate, real)
        if "second_per_grid_ts" in real and even and len(shown) > 2:
            assert medium.second_per_grid == pytest.approx(float(real["second_per_grid_ts"][0]))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 20, 49])
@pytest.mark.parametrize("fps", [0.5, 1, 2, 3.7])
def test_frame_lists_are_kept_whole_with_their_time(count, fps, family):
    pictures = frames(count, 66, 100)
    stored = [encode(Image.fromarray(pixels), "PNG") for pixels in pictures]
    messages = exchange("video", "what?")
    messages[0]["content"][0]["fps"] = fps
    sample = raw(messages)
    sample.parts["videos"] = pickle.dumps([stored])
    found = measure(family, sample)
    real = _processed_or_refused(
        family,
        messages,
        videos=[frames_as_video(pictures)],
        video_metadata=[
            {"fps": fps, "total_num_frames": count, "frames_indices": list(range(count))}
        ],
        do_sample_frames=False,
    )
    if real is None:  # transformers 5.24 takes no single frame for Qwen3-VL
        assert isinstance(found, Refused)
        return
    candidate = found
    assert_same(candidate, real)
    assert candidate.media[0].grid[0] == -(-count // 2)
    assert candidate.notes == ()
    if "second_per_grid_ts" in real:
        assert candidate.media[0].second_per_grid == pytest.approx(2 / fps)
