# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' datasets: the demo's photos and clips, cropped, scaled and panned.

Every folder is a prepared Energon dataset in Megatron-Bridge's format; ``clips`` is there twice,
as mp4 files and, for loaders that read no mp4, as the JPEG frames that would be sampled from them.
"""

import contextlib
import io
import json
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import webdataset as wds
import yaml
from PIL import Image

from energon_pack.decoding.clips import decode_clip
from energon_pack.demo.media import CLIPS, PHOTOS, load_photo
from energon_pack.demo.processor import build_processor

DATA = Path(__file__).parent / "data"
NUM_SAMPLES = 300
SHARD_SAMPLES = 50
MEGAPIXELS = (0.3, 12.0)
FRAME_SIZES = ((854, 480), (1280, 720), (1920, 1080))
FRAMES_PER_LIST = (6, 12)
CLIP_FPS = 25
SAMPLED_FPS = 2

_BRIDGE_CLASS = {
    "__module__": "megatron.bridge.data.energon.task_encoder_utils",
    "__class__": "ChatMLWebdataset",
}
_WORDS = ("the", "picture", "shows", "light", "and", "shade", "over", "a", "wide", "place", "here")

Parts = dict[str, bytes]


def build(kind: str) -> Path:
    """Write the dataset ``kind`` unless it is there; return its folder."""
    folder = DATA / kind
    if (folder / ".nv-meta" / "dataset.yaml").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    maker, fields = _KINDS[kind]
    chance = random.Random(kind.removesuffix("_as_frames"))
    samples = maker(chance)
    for split, count in (("train", NUM_SAMPLES), ("val", 2)):
        _write(folder, split, samples, count)
    _prepare(folder, fields)
    return folder


def processor() -> Path:
    """Return the folder of the Qwen3-VL processor."""
    return build_processor("qwen3_vl", DATA / "processor")


def _write(folder: Path, split: str, samples: Iterator[Parts], count: int) -> None:
    for start in range(0, count, SHARD_SAMPLES):
        path = folder / f"{split}-{start // SHARD_SAMPLES:03d}.tar"
        with wds.TarWriter(str(path), encoder=False) as shard:
            for place in range(start, min(start + SHARD_SAMPLES, count)):
                shard.write({"__key__": f"{split}{place:06d}", **next(samples)})


def _prepare(folder: Path, fields: dict[str, str] | None) -> None:
    from megatron.energon.tools.prepare import command

    last = NUM_SAMPLES // SHARD_SAMPLES - 1
    arguments = [
        "--non-interactive", "--no-progress", "--num-workers", "1",
        f"--split-parts=train:train-{{000..{last:03d}}}.tar", "--split-parts=val:val-000.tar",
        "--sample-type", "CrudeWebdataset", str(folder),
    ]  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        command.main(arguments, standalone_mode=False)
    path = folder / ".nv-meta" / "dataset.yaml"
    described = yaml.safe_load(path.read_text())
    if fields is None:
        described["subflavors"] = {"format": "chatml"}
    else:
        described = {**_BRIDGE_CLASS, "field_map": {"conversation": "json", **fields}}
    path.write_text(yaml.safe_dump(described, sort_keys=False))


def _conversation(chance: random.Random, media: str) -> bytes:
    answer = " ".join(chance.choices(_WORDS, k=chance.randint(40, 160)))
    question = " ".join(chance.choices(_WORDS, k=chance.randint(10, 40)))
    turns = [{"from": "human", "value": media + question}, {"from": "gpt", "value": answer}]
    return json.dumps(turns).encode()


def _photos(chance: random.Random) -> Iterator[Parts]:
    while True:
        yield {"json": _conversation(chance, "<image>\n"), "jpg": _photo(chance)}


def _frames(chance: random.Random) -> Iterator[Parts]:
    pool = [
        [_jpeg(frame) for frame in _panned(clip, size, 2 * FRAMES_PER_LIST[1], chance)]
        for clip in range(len(CLIPS))
        for size in FRAME_SIZES
    ]
    while True:
        video = _some(chance, pool)
        yield {"json": _conversation(chance, "<video>\n"), "videos": pickle.dumps([video])}


def _some(chance: random.Random, pool: list[list[bytes]]) -> list[bytes]:
    frames = chance.choice(pool)
    count = chance.randint(*FRAMES_PER_LIST)
    start = chance.randint(0, len(frames) - count)
    return frames[start : start + count]


def _clips(chance: random.Random) -> Iterator[Parts]:
    for data in _dealt_clips(chance):
        yield {"json": _conversation(chance, "<video>\n"), "mp4": data}


def _clips_as_frames(chance: random.Random) -> Iterator[Parts]:
    lists: dict[bytes, bytes] = {}
    for data in _dealt_clips(chance):
        if data not in lists:
            frames = [
                _jpeg(Image.fromarray(frame.permute(1, 2, 0).numpy()))
                for frame in decode_clip(data, _sampled(data))
            ]
            lists[data] = pickle.dumps([frames])
        yield {"json": _conversation(chance, "<video>\n"), "videos": lists[data]}


def _sampled(data: bytes) -> list[int]:
    with av.open(io.BytesIO(data)) as container:
        total = container.streams.video[0].frames
    count = min(max(total * SAMPLED_FPS // CLIP_FPS, 4), total)
    return np.linspace(0, total - 1, count).round().astype(int).tolist()


def _dealt_clips(chance: random.Random) -> Iterator[bytes]:
    pool = [
        _mp4(_panned(clip, size, CLIP_FPS * seconds, chance), size)
        for clip in range(len(CLIPS))
        for size, seconds in zip(FRAME_SIZES, (6, 5, 4), strict=True)
    ]
    while True:
        yield chance.choice(pool)


def _mix(chance: random.Random) -> Iterator[Parts]:
    frame_lists, nothing = _frames(chance), pickle.dumps([])
    while True:
        kind = chance.choices(("photos", "frames", "text"), (6, 2, 2))[0]
        images = [_photo(chance) for _ in range(chance.choice((1, 1, 2, 3)))]
        images = images if kind == "photos" else []
        media = "<video>\n" if kind == "frames" else "<image>\n" * len(images)
        yield {
            "json": _conversation(chance, media),
            "jpgs": pickle.dumps(images),
            "videos": next(frame_lists)["videos"] if kind == "frames" else nothing,
        }


def _photo(chance: random.Random) -> bytes:
    image = load_photo(chance.choice(PHOTOS))
    share = chance.uniform(0.5, 1)
    width, height = (round(edge * share) for edge in image.size)
    left, top = (
        chance.randint(0, whole - part)
        for whole, part in zip(image.size, (width, height), strict=True)
    )
    low, high = np.log(MEGAPIXELS)
    scale = (1e6 * np.exp(chance.uniform(low, high)) / (width * height)) ** 0.5
    part = image.crop((left, top, left + width, top + height))
    return _jpeg(
        part.resize((round(width * scale), round(height * scale)), Image.Resampling.BICUBIC)
    )


def _panned(
    clip: int, size: tuple[int, int], count: int, chance: random.Random
) -> Iterator[Image.Image]:
    """Yield ``count`` frames of a clip, scaled to 1.2 times ``size`` and panned over."""
    room = (size[0] // 5, size[1] // 5)
    speed = chance.uniform(0.5, 1.5)
    for at, frame in zip(range(count), _forever(clip), strict=False):
        image = frame.to_image(width=size[0] + room[0], height=size[1] + room[1])
        left, top = (round(edge * abs((speed * at / 40) % 2 - 1)) for edge in room)
        yield image.crop((left, top, left + size[0], top + size[1]))


def _forever(clip: int) -> Iterator[Any]:
    while True:
        with av.open(str(CLIPS[clip].path)) as container:
            yield from container.decode(video=0)


def _jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _mp4(frames: Iterator[Image.Image], size: tuple[int, int]) -> bytes:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=CLIP_FPS, options={"preset": "veryfast"})
        (stream.width, stream.height), stream.pix_fmt = size, "yuv420p"
        for image in frames:
            container.mux(stream.encode(av.VideoFrame.from_image(image)))
        container.mux(stream.encode())
    return buffer.getvalue()


_KINDS: dict[str, tuple[Callable[[random.Random], Iterator[Parts]], dict[str, str] | None]] = {
    "photos": (_photos, {"imgs": "jpg"}),
    "frames": (_frames, {"videos": "videos"}),
    "clips": (_clips, None),
    "clips_as_frames": (_clips_as_frames, {"videos": "videos"}),
    "mix": (_mix, {"imgs": "jpgs", "videos": "videos"}),
}
"""Kind: what makes its samples, and the parts that hold media in Megatron-Bridge's class."""
