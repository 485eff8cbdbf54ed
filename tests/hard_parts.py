# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Small prepared datasets of hard inputs, and an account of what became of each sample."""

import contextlib
import io
import itertools
import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import webdataset as wds
from lengths.media_parts import FORMATS, clip, encode, frames, picture
from megatron.energon.tools.prepare import command as prepare

JPEG = encode(picture(64, 64))
CRUDE = "__module__: megatron.energon\n__class__: CrudeWebdataset\n"
Parts = Mapping[str, bytes]


def chat(question: str = "<image>What is it?", answer: str = "A cat.", **extra: Any) -> bytes:
    """A stored conversation of one exchange."""
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return json.dumps({"messages": turns, **extra}).encode()


def good(number: int = 0) -> Parts:
    """A sample of one 64x64 image and a few words, which differ by number."""
    return {"json": chat(answer=f"It is number {number}."), "jpg": JPEG}


def write(
    folder: Path, *shards: Sequence[Parts], split: str = "train", prepared: bool = True
) -> Path:
    """Write samples into shards of one split and prepare them; keys are 000, 001, ..."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = itertools.count()
    for place, samples in enumerate(shards):
        with wds.TarWriter(str(folder / f"{split}-{place:03d}.tar"), encoder=False) as shard:
            for parts in samples:
                shard.write({"__key__": f"{next(numbers):03d}", **parts})
    return prepared_(folder, split) if prepared else folder


def prepared_(folder: Path, split: str = "train") -> Path:
    """Run ``energon prepare`` on a folder of shards."""
    options = ["--non-interactive", "--no-progress", "--num-workers", "1", "--skip-dataset-yaml"]
    with contextlib.redirect_stdout(io.StringIO()):
        prepare.main(
            [str(folder), *options, f"--split-parts={split}:{split}-.*"], standalone_mode=False
        )
    (folder / ".nv-meta" / "dataset.yaml").write_text(CRUDE)
    return folder


def media() -> list[tuple[str, bytes, str]]:
    """Whole media of every kind: name of the part, data, kind of its place."""
    images = [
        ("jpg", encode(picture(48, 64, mode=mode), name), "image")
        for name, modes in FORMATS.items()
        for mode in modes
    ]
    turned = [("jpg", encode(picture(48, 64), name, orientation=6), "image")
              for name in ("JPEG", "PNG", "WEBP")]  # fmt: skip
    moving = [picture(48, 64, seed=1)]
    images += [("jpg", encode(picture(48, 64), name, save_all=True, append_images=moving), "image")
               for name in ("GIF", "WEBP", "PNG", "TIFF")]  # fmt: skip
    clips = [
        clip(frames(6, 64, 64), codec=codec, container=container)
        for codec, container in (
            ("libx264", "mp4"), ("libx264", "matroska"), ("libvpx-vp9", "webm"), ("mpeg4", "mp4")
        )
    ]  # fmt: skip
    clips.append(clip(frames(5, 64, 64), ticks=[0, 10, 500, 510, 2000]))
    listed = pickle.dumps([[JPEG, JPEG, JPEG]])
    return [
        *images, *turned, *[("mp4", data, "video") for data in clips] * 4,
        ("videos", listed, "video"), ("jpgs", pickle.dumps([JPEG]), "image"),
        ("jpgs", pickle.dumps([JPEG], 0), "image"),
    ]  # fmt: skip


def conversations() -> list[bytes]:
    """Whole conversations of every form, text only."""
    turns = [{"role": "system", "content": "Be brief."}, *json.loads(chat("What?"))["messages"]]
    old = [{"from": "human", "value": "What?"}, {"from": "gpt", "value": "A cat."}]
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    call = {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": "look", "arguments": {"at": 3}}}]}  # fmt: skip
    used = [*turns[:2], call, {"role": "tool", "content": "a cat"}, turns[2]]
    parts = [{"role": "user", "content": [{"type": "text", "text": "Wh\u00e4t?"}]}, turns[2]]
    stored = [turns, {"conversations": old}, {"messages": used, "tools": tools}, parts]
    return [json.dumps(value, ensure_ascii=at % 2 == 0).encode() for at, value in enumerate(stored)]
