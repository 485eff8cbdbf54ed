# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A small WebDataset of real photos and clips, prepared with Energon's own tool.

1. Deal out ``samples`` conversations, seeded one by one, so that more samples keep the first ones.
2. Write them to shards of ``SHARD_SAMPLES``; about a tenth go to the validation split.
3. Run ``energon prepare`` on the folder.
4. Add the processor folder, the credits and a ``data.yaml`` for ``energon-pack preview``.
"""

import contextlib
import io
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Literal

import webdataset as wds
import yaml

from energon_pack.demo.conversations import KINDS, Parts
from energon_pack.demo.media import credits_text, forget_media
from energon_pack.demo.processor import build_processor
from energon_pack.errors import UserError

Kind = Literal["image", "video", "frames", "mixed"]

SHARD_SAMPLES: Final = 50
VAL_SHARE: Final = 0.1
PROCESSOR: Final = "processor"
"""Name of the processor's folder beside the shards."""


def build_dataset(
    folder: Path,
    kind: Kind = "mixed",
    *,
    samples: int = 480,
    seed: int = 0,
    advance: Callable[[], object] = lambda: None,
) -> Path:
    """Write a prepared dataset into ``folder`` (new or empty) and return its ``data.yaml``.

    ``advance`` is called after each sample. Raises ``UserError`` for a folder in use, an unknown
    kind, or fewer than two samples.
    """
    build_shards(folder, kind, samples=samples, seed=seed, advance=advance)
    (folder / "CREDITS.md").write_text(credits_text(), encoding="utf-8")
    build_processor("qwen3_vl", folder / PROCESSOR)
    return _write_config(folder, seed)


def build_shards(
    folder: Path,
    kind: Kind,
    *,
    samples: int,
    seed: int,
    advance: Callable[[], object] = lambda: None,
) -> None:
    """Do what ``build_dataset`` does, without the processor, the credits and the YAML."""
    if kind not in KINDS:
        raise UserError(f"kind {kind!r} is not known; give one of {', '.join(KINDS)}")
    if samples < 2:
        raise UserError(f"samples is {samples}; each of the two splits needs at least one")
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    num_val = max(1, round(samples * VAL_SHARE))
    deal = partial(_write_split, folder, kind, seed, advance)
    deal("train", range(num_val, samples))
    deal("val", range(num_val))
    forget_media()
    _prepare(folder, kind)


def _write_split(
    folder: Path, kind: Kind, seed: int, advance: Callable[[], object], split: str, places: range
) -> None:
    for number, start in enumerate(range(0, len(places), SHARD_SAMPLES)):
        path = folder / f"{split}-{number:03d}.tar"
        with wds.TarWriter(str(path), encoder=False, mtime=0, user="demo", group="demo") as shard:
            for place in places[start : start + SHARD_SAMPLES]:
                shard.write({"__key__": f"{place:06d}", **_sample(kind, seed, place)})
                advance()


def _sample(kind: Kind, seed: int, place: int) -> Parts:
    makers = KINDS[kind]
    return makers[place % len(makers)](random.Random(f"{seed}-{place}"))  # noqa: S311 - no secret


def _prepare(folder: Path, kind: Kind) -> None:
    from megatron.energon.tools.prepare import command

    arguments = ["--non-interactive", "--no-progress", "--num-workers", "1"]
    for split in ("train", "val"):
        last = len(list(folder.glob(f"{split}-*.tar"))) - 1
        arguments.append(f"--split-parts={split}:{split}-{{000..{last:03d}}}.tar")
    arguments += ["--sample-type", "CrudeWebdataset", str(folder)]
    with contextlib.redirect_stdout(io.StringIO()):  # it prints the first samples
        command.main(arguments, standalone_mode=False)
    path = folder / ".nv-meta" / "dataset.yaml"
    described = yaml.safe_load(path.read_text())
    described["subflavors"] = {"format": "chatml", "source": f"demo-{kind}"}
    path.write_text(yaml.safe_dump(described, sort_keys=False))


def _write_config(folder: Path, seed: int) -> Path:
    settings = {
        "path": ".",
        "model": PROCESSOR,
        "seq_length": 4096,
        "packing_buffer_size": 32,
        "num_workers": 2,
        "shuffle_buffer_size": 100,
        "seed": seed,
    }
    path = folder / "data.yaml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path
