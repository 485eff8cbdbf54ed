# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Small prepared datasets of hard inputs, and an account of what became of each sample."""

import contextlib
import io
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import webdataset as wds
from lengths.media_parts import encode, picture
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
