# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Long runs on damaged input: mutated media, conversations and settings; a soak with losses."""

import itertools
import json
import logging
import pickle
import random
import resource
import time
from collections import Counter

import psutil
import pytest
import yaml
from hard_parts import chat, conversations, media, write
from lengths.media_parts import encode, picture
from lengths.oracle import config, raw

from energon_pack import ConfigError, PackingConfig, build_loader
from energon_pack.candidate import Candidate
from energon_pack.config import load_config
from energon_pack.measure import Measurer
from energon_pack.memory import read_process
from energon_pack.monitor.growth import GrowthTrack
from energon_pack.pixels import PixelReader
from energon_pack.refusal import CAUSES, SampleError

pytestmark = pytest.mark.full
_LOGGER = logging.getLogger(__name__)

MUTATIONS = {"media": 30_000, "conversations": 8_000, "settings": 4_000}
MOST_SECONDS = 10
MOST_BYTES = 256 << 20
"""By which the process may grow over all mutations."""
SOAK_PACKS = 20_000
SOAK_SAMPLES = 42_600
SMALL = encode(picture(32, 32))


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Change, cut, repeat or blow up a few places, most of them near the beginning."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not changed:
            break
        at = int(len(changed) * rng.random() ** rng.choice((1, 3)))
        kind = rng.randrange(6)
        if kind == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[at : at + 4] = rng.choice((b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff"))
        elif kind == 2:
            del changed[at : at + rng.choice((1, 2, 8, 100))]
        elif kind == 3:
            changed[at:at] = changed[at : at + rng.choice((1, 4, 64))]
        elif kind == 4:
            changed[at:at] = rng.randbytes(rng.choice((1, 4, 32)))
        elif len(changed) > 200:
            del changed[at:]
    return bytes(changed)


class Watch:
    """The slowest case, and how much the process has grown."""

    def __init__(self):
        self.slowest, self.ends = 0.0, Counter()
        self._before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def run(self, case, *arguments):
        start = time.perf_counter()
        self.ends[case(*arguments)] += 1
        self.slowest = max(self.slowest, time.perf_counter() - start)

    def check(self, count):
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self._before)
        _LOGGER.info("slowest %.2f s, grown %d MiB, %s", self.slowest, grown >> 20, self.ends)
        assert self.ends.total() == count
        assert self.slowest < MOST_SECONDS
        assert grown < MOST_BYTES


def test_mutated_media_are_packed_or_refused(family):
    settings = config(seq_length=8192, max_source_pixels=4_000_000)
    measurer, reader = Measurer(family, settings), PixelReader(family, settings)
    rng, watch = random.Random(1), Watch()
    samples = media()

    def case(name, part, place):
        found = measurer.measure(raw([chat_turn(place), answer()], **{name: part}))
        if not isinstance(found, Candidate):
            assert found.cause in CAUSES
            assert found.cause != "unexpected", found
            return found.cause
        try:
            for medium in found.media:
                shapes = [tuple(frames.shape[2:]) for frames in reader.frames([medium])]
                assert shapes == [medium.resized] * medium.grid[0]
        except SampleError as error:
            return error.cause
        return "packed"

    count = MUTATIONS["media"] // 3
    for _ in range(count):
        name, part, place = rng.choice(samples)
        watch.run(case, name, mutated(part, rng), place)
    watch.check(count)


def chat_turn(place):
    return {"role": "user", "content": [{"type": place}, {"type": "text", "text": "?"}]}


def answer():
    return {"role": "assistant", "content": "Yes."}


def test_mutated_conversations_are_measured_or_refused(qwen3):
    measurer = Measurer(qwen3, config(seq_length=8192))
    rng, watch = random.Random(2), Watch()
    samples = conversations()

    def case(payload):
        found = measurer.measure(raw(payload))
        if isinstance(found, Candidate):
            assert found.trained.any()
            return "packed"
        assert found.cause != "unexpected", found
        return found.cause

    for _ in range(MUTATIONS["conversations"]):
        watch.run(case, mutated(rng.choice(samples), rng))
    watch.check(MUTATIONS["conversations"])


def test_mutated_settings_are_read_or_refused_with_their_place(tmp_path):
    rng, watch = random.Random(3), Watch()
    values = {"path": "data", "model": "m", "seq_length": 4096, "cost": {"token": 1.0},
              "monitor": {"interval_s": 2, "warn_worker": "8GiB"}, "alpha": "white"}  # fmt: skip
    samples = [
        yaml.safe_dump(values).encode(),
        json.dumps(values).encode(),
        b"path: &a x\nmodel: *a\n",
        b"path: !!python/name:os.system\nmodel: x\n",
    ]
    file = tmp_path / "data.yaml"

    def case(text):
        file.write_bytes(text)
        try:
            load_config(file)
        except ConfigError:
            return "refused"
        return "read"

    for _ in range(MUTATIONS["settings"]):
        watch.run(case, mutated(rng.choice(samples), rng))
    watch.check(MUTATIONS["settings"])


def _small(number, **changes):
    """A sample of about 20 tokens with one tiny picture."""
    return {"json": chat(answer=f"It is {number}."), "jpg": SMALL, **changes}


def _broken(number):
    """One sample of each cause in turn."""
    kinds = {
        "bad_image": {"jpg": SMALL[:100]},
        "decode_failed": {"jpg": SMALL[:-40]},
        "bad_conversation": {"json": b"{"},
        "media_mismatch": {"json": chat("<image><image>")},
        "bad_pickle": {"jpgs": pickle.dumps([print])},
    }
    cause = list(kinds)[number // 20 % len(kinds)]
    return cause, _small(number, **kinds[cause])


def test_a_soak_with_losses_keeps_memory_flat_and_counts_add_up(qwen3_folder, tmp_path):
    expected, samples = Counter(), []
    for number in range(SOAK_SAMPLES):
        sample = _small(number)
        if number % 20 == 7:
            cause, sample = _broken(number)
            expected[cause] += 1
        samples.append(sample)
    folder = write(tmp_path / "data", *itertools.batched(samples, 2000), split="val")
    settings = PackingConfig(
        path=str(folder), model=str(qwen3_folder), num_workers=2, packing_buffer_size=16,
        seq_length=64, max_samples_per_pack=2, min_pixels=1024, max_pixels=4096,
    )  # fmt: skip
    loader = build_loader(settings, "val")
    tracks = {pid: GrowthTrack(1000) for pid in ("trainer", 0, 1)}
    keys, lost, packs = Counter(), Counter(), Counter()
    start = time.monotonic()
    for pack in loader:
        stream = pack["pack_info"].stream
        keys.update(pack["__keys__"])
        lost.update(stream.skipped)
        packs.update(("trainer", stream.worker_id))
        for name, pid in (("trainer", None), (stream.worker_id, stream.pid)):
            if packs[name] % 50 == 0:
                memory = read_process(psutil.Process(pid))
                tracks[name].add(packs[name], memory.held_bytes)
    for record in loader.worker_records():
        lost.update(record.pending)
    rates = {name: track.growth for name, track in tracks.items()}
    _LOGGER.info("%.0f s, %s, %s, %s", time.monotonic() - start, packs, lost, rates)
    assert packs["trainer"] >= SOAK_PACKS
    assert lost == expected
    assert lost.total() == SOAK_SAMPLES // 20
    assert set(keys.values()) == {1}
    assert keys.total() + lost.total() == SOAK_SAMPLES
    for track in tracks.values():
        assert track.growth
        assert not track.growth.keeps
