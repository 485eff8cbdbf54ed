# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Where a worker's processor time goes: ``python bench/profile_worker.py [DATA] [--functions]``.

The worker's code runs in this process and in one thread, so its processor time is what is shared
out; memory files are written as in a worker.
"""

import argparse
import cProfile
import os
import pstats
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import data

from energon_pack import pixels
from energon_pack.assembling import visual
from energon_pack.config import PackingConfig
from energon_pack.decoding import clips, images, shared_memory
from energon_pack.loader import build_loader

WARM_UP = 5


def main() -> None:
    """Print each stage's share, or the functions that take most."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", default="photos")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--packs", type=int, default=60)
    parser.add_argument("--functions", action="store_true")
    arguments = parser.parse_args()
    config = PackingConfig(
        path=str(data.build(arguments.data)), model=str(data.processor()), num_workers=0,
        packing_buffer_size=16, pixel_dtype=arguments.dtype, seq_length=8192,
        min_pixels=200_704, max_pixels=1_003_520,
    )  # fmt: skip
    with mock.patch.object(shared_memory, "get_worker_info", object):
        packs = iter(build_loader(config))
        if arguments.functions:
            _print_functions(packs, arguments.packs)
        else:
            _print_stages(packs, arguments.packs)


def _print_functions(packs: Any, count: int) -> None:
    for _ in range(WARM_UP):
        next(packs)
    profile = cProfile.Profile(time.process_time)
    profile.enable()
    for _ in range(count):
        next(packs)
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def _print_stages(packs: Any, count: int) -> None:
    seconds = dict.fromkeys(("decode", "resize", "patchify", "write"), 0.0)
    _time(images.ImageDecoder, "decode", seconds, "decode")
    _time(clips, "_wanted_groups", seconds, "decode", steps=True)
    _time(clips, "_rgb", seconds, "decode")
    _time(pixels.PixelReader, "_resized", seconds, "resize")
    _time(visual.PatchWriter, "bands", seconds, "patchify", steps=True)
    _time(shared_memory._LentSheet, "append", seconds, "write")  # noqa: SLF001
    for _ in range(WARM_UP):
        next(packs)
    seconds.update(dict.fromkeys(seconds, 0.0))
    start, tokens = time.process_time(), 0
    for _ in range(count):
        tokens += next(packs)["pack_info"].tokens
    total = time.process_time() - start
    seconds["everything else"] = total - sum(seconds.values())
    for stage, spent in seconds.items():
        print(f"{stage:16}{spent / count * 1000:8.1f} ms a pack {spent / total:8.1%}")
    print(f"{tokens / total:,.0f} tokens a second of processor time")


def _time(
    owner: Any, name: str, seconds: dict[str, float], stage: str, *, steps: bool = False
) -> None:
    """Add the time spent in ``owner.name`` to a stage; for a generator, the time of its steps."""
    original: Callable[..., Any] = getattr(owner, name)

    def called(*arguments: Any, **named: Any) -> Any:
        start = time.process_time()
        try:
            return original(*arguments, **named)
        finally:
            seconds[stage] += time.process_time() - start

    def stepped(*arguments: Any, **named: Any) -> Any:
        iterator = iter(original(*arguments, **named))
        while True:
            start = time.process_time()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                seconds[stage] += time.process_time() - start
            yield item

    setattr(owner, name, stepped if steps else called)


if __name__ == "__main__":
    main()
