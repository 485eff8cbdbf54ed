# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Small prepared datasets of hard inputs, and an account of what became of each sample."""

import contextlib
import io
import itertools
import json
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import webdataset as wds
from lengths.media_parts import FORMATS, clip, encode, frames, picture
from megatron.energon import WorkerConfig
from megatron.energon.tools.prepare import command as prepare

from energon_pack import PackingTaskEncoder, build_loader
from energon_pack.config import MonitorConfig, PackingConfig
from energon_pack.family import Family
from energon_pack.loader import PackLoader
from energon_pack.measure import Measurer
from energon_pack.reading.sources import RawSample

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


def write(folder: Path, *shards: Sequence[Parts], split: str = "val") -> Path:
    """Write samples into shards of one split and prepare them; keys are 000, 001, ..."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = itertools.count()
    for place, samples in enumerate(shards):
        with wds.TarWriter(str(folder / f"{split}-{place:03d}.tar"), encoder=False) as shard:
            for parts in samples:
                shard.write({"__key__": f"{next(numbers):03d}", **parts})
    return prepared(folder, split)


def prepared(folder: Path, split: str) -> Path:
    """Run ``energon prepare`` on a folder of shards."""
    options = ["--non-interactive", "--no-progress", "--num-workers", "1", "--skip-dataset-yaml"]
    with contextlib.redirect_stdout(io.StringIO()):
        prepare.main(
            [str(folder), *options, f"--split-parts={split}:{split}-.*"], standalone_mode=False
        )
    (folder / ".nv-meta" / "dataset.yaml").write_text(CRUDE)
    return folder


def of_length(family: Family, length: int) -> Parts:
    """A text-only sample of so many tokens; an answer of n letters has n tokens more than none."""
    sample = RawSample(__key__="", __restore_key__=(), parts={"json": chat("Go", "a a")})
    settings = PackingConfig(path=".", model=".")
    missing = length - Measurer(family, settings).measure(sample).length
    return {"json": chat("Go", "a a" + " a" * missing)}


@dataclass(kw_only=True)
class Passed:
    """What one pass over a dataset made of its samples."""

    packs: list[dict[str, Any]]
    lost: Counter[str]
    examples: dict[str, Any]
    """The latest loss of each cause: key, length, message."""

    @property
    def keys(self) -> list[str]:
        """Of all packed samples."""
        return sorted(key for pack in self.packs for key in pack["__keys__"])


def one_pass(folder: Path, family: Family, **settings: Any) -> Passed:
    """Pack the validation split once, through the front door."""
    loader = loader_of(folder, family, "val", **settings)
    packs = list(loader)
    lost: Counter[str] = Counter()
    for pack in packs:
        lost.update(pack["pack_info"].stream.skipped)
    records = loader.worker_records()
    for record in records:
        lost.update(record.pending)
    examples = {cause: lost for record in records for cause, lost in record.examples.items()}
    return Passed(packs=packs, lost=lost, examples=examples)


def loader_of(
    folder: Path,
    family: Family,
    split: Literal["train", "val"] = "train",
    *,
    worker_config: WorkerConfig | None = None,
    **settings: Any,
) -> PackLoader:
    """Open a dataset with short packs and a small buffer, read in this process."""
    values = {"seq_length": 512, "packing_buffer_size": 8, "num_workers": 0, **settings}
    config = PackingConfig(
        path=str(folder), model=".", monitor=MonitorConfig(enabled=False), **values
    )
    encoder = PackingTaskEncoder(config, family=family)
    return build_loader(config, split, encoder=encoder, worker_config=worker_config)


def segments(pack: dict[str, Any], name: str) -> list[Any]:
    """Cut a row of a pack at its segments' ends."""
    return list(pack[name].split(pack["cu_seqlens_q"].diff().tolist(), dim=-1))


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
