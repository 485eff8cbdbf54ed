# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Damaged shards, indices, file systems and dataset files: every sample is packed or counted."""

import gc
import io
import itertools
import os
import resource
import shutil
import tarfile
import time

import pytest
from hard_parts import chat, good, loader_of, one_pass, prepared, write
from lengths.media_parts import encode, picture
from megatron.energon.epathlib import EPath
from megatron.energon.errors import FatalSampleError
from megatron.energon.flavors.webdataset.itar import ITarFile
from megatron.energon.tools.prepare import command as prepare

from energon_pack.choosing.waiting import Waiting
from energon_pack.reading.prepared import DatasetError

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

SHARD = "val-000.tar"
ALL = [f"{at:03d}" for at in range(12)]


@pytest.fixture(scope="session")
def sound(tmp_path_factory):
    """Two shards of six samples, prepared; tests must not change it."""
    samples = [good(at) for at in range(12)]
    return write(tmp_path_factory.mktemp("sound") / "data", samples[:6], samples[6:])


@pytest.fixture
def folder(sound, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(sound, tmp_path / "data")


def cut(folder):
    os.truncate(folder / SHARD, 9000)


def overwritten(folder):
    with (folder / SHARD).open("r+b") as shard:
        shard.seek(6000)
        shard.write(b"\xa5" * 3000)


def emptied(folder):
    (folder / SHARD).write_bytes(b"")


def gone(folder):
    (folder / SHARD).unlink()


def replaced_by_a_folder(folder):
    gone(folder)
    (folder / SHARD).mkdir()


def without_index(folder):
    (folder / f"{SHARD}.idx").unlink()


def grown(folder):
    with tarfile.open(folder / SHARD, "a") as shard:
        info = tarfile.TarInfo("new.json")
        info.size = len(text := chat("new"))
        shard.addfile(info, io.BytesIO(text))


def index_cut(folder):
    os.truncate(folder / f"{SHARD}.idx", 35)


def another_shard(folder):
    """Text only and smaller, so that an entry of the old index could fit to a new sample."""
    with tarfile.open(folder / SHARD, "w", format=tarfile.USTAR_FORMAT) as shard:
        for number in range(9):
            info = tarfile.TarInfo(f"{number:03d}.json")
            info.size = len(text := chat("other"))
            shard.addfile(info, io.BytesIO(text))


def counted_less(folder):
    info = folder / ".nv-meta" / ".info.json"
    info.write_text(info.read_text().replace(f'"{SHARD}": 6', f'"{SHARD}": 4'))


@pytest.mark.parametrize(
    ("damage", "lost", "says"),
    [
        (cut, 5, "val-000.tar is damaged or cut short here; write it again"),
        (overwritten, 1, "val-000.tar is damaged or cut short here; write it again"),
        (emptied, 6, "val-000.tar is damaged or cut short here; write it again"),
        (gone, 6, "val-000.tar or its index is not there any more"),
        (replaced_by_a_folder, 6, "val-000.tar cannot be read: Is a directory"),
        (without_index, 6, "val-000.tar or its index is not there any more"),
        (grown, 6, "val-000.tar is not the file that was indexed; run energon prepare again"),
        (index_cut, 6, "has 3 samples in its index and 6 in .info.json"),
        (another_shard, 6, "val-000.tar is not the file that was indexed"),
        (counted_less, 4, "has 6 samples in its index and 4 in .info.json"),
    ],
)
def test_what_cannot_be_read_from_a_shard_is_counted(damage, lost, says, folder, qwen3):
    damage(folder)
    done = one_pass(folder, qwen3)
    assert done.lost == {"unreadable": lost}
    assert done.keys == ALL[-len(done.keys) :] or damage in (cut, overwritten)
    assert len(done.keys) == 12 - lost - 2 * (damage is counted_less)
    key, _, message = done.examples["unreadable"]
    assert key.startswith(f"{SHARD}#")
    assert says in message


def test_losses_of_reading_count_in_workers_too_and_stop_a_run_without_any_other(folder, qwen3):
    cut(folder)
    done = one_pass(folder, qwen3, num_workers=2)
    assert done.lost == {"unreadable": 5}
    assert len(done.keys) == 7
    for shard in folder.glob("*.tar"):
        shard.unlink()
    with pytest.raises(FatalSampleError, match=r"unreadable .*not there any more"):
        one_pass(folder, qwen3, max_consecutive_skips=5)


def test_a_state_with_a_sample_that_is_gone_can_be_continued(tmp_path, qwen3):
    folder = write(tmp_path / "data", [good(at) for at in range(12)], split="train")
    loader = loader_of(folder, qwen3, seq_length=200)
    packs = iter(loader)
    packed = [key for _ in range(2) for key in next(packs)["__keys__"]]
    state = loader.save_state()
    os.truncate(folder / "train-000.tar", 40_000)
    again = loader_of(folder, qwen3, seq_length=200)
    again.restore_state(state)
    pack = next(iter(again))
    skipped = pack["pack_info"].stream.skipped
    assert packed
    assert skipped["unreadable_on_resume"] > 0
    assert skipped.keys() <= {"unreadable", "unreadable_on_resume"}


class FailingFile:
    """A shard whose reads fail, or take their time, at certain counts."""

    reads = 0

    def __init__(self, file, fails, pause_s=0.0):
        self._file, self._fails, self._pause_s = file, fails, pause_s

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def read(self, *size):
        FailingFile.reads += 1
        time.sleep(self._pause_s)
        if self._fails(FailingFile.reads):
            raise OSError(5, "Input/output error")
        return self._file.read(*size)


def wrap_shards(monkeypatch, **behaviour):
    opened = EPath.open
    FailingFile.reads = 0

    def open_(self, *arguments, **options):
        file = opened(self, *arguments, **options)
        return FailingFile(file, **behaviour) if str(self).endswith(".tar") else file

    monkeypatch.setattr(EPath, "open", open_)


def test_a_read_error_that_passes_costs_nothing(sound, qwen3, monkeypatch):
    wrap_shards(monkeypatch, fails=lambda number: number % 50 == 0)
    done = one_pass(sound, qwen3)
    assert done.keys == ALL
    assert FailingFile.reads > 50


def test_a_read_error_that_stays_costs_the_samples_behind_it(sound, qwen3, monkeypatch):
    wrap_shards(monkeypatch, fails=lambda number: 20 < number < 40)
    done = one_pass(sound, qwen3)
    assert 0 < done.lost["unreadable"] < 12
    assert done.lost.total() + len(done.keys) == 12
    assert done.examples["unreadable"][2].endswith(".tar cannot be read: Input/output error")


def test_slow_reads_are_waited_for(sound, qwen3, monkeypatch):
    wrap_shards(monkeypatch, fails=lambda _: False, pause_s=0.02)
    assert one_pass(sound, qwen3).keys == ALL


def test_a_full_disk_under_spill_dir_costs_memory_and_not_the_run(qwen3, tmp_path, caplog):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    big = {"json": chat(), "bmp": encode(picture(200, 200), "BMP")}
    folder = write(tmp_path / "data", [good(at) for at in range(6)] + [big] * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))  # as the kernel tells a full disk
    try:
        loader = loader_of(folder, qwen3, "val", spill_dir=str(tmp_path))
        packs = list(loader)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(key for pack in packs for key in pack["__keys__"]) == ALL[:8]
    assert caplog.text.count("wait in memory") == 1
    assert not list(tmp_path.glob("energon-pack-spill-*/cache_*/*"))


def test_spilled_media_that_vanish_cost_their_samples(sound, qwen3, tmp_path, monkeypatch):
    take = Waiting.take

    def take_after_a_clean_up(self, indices):
        for spilled in tmp_path.glob("energon-pack-spill-*/cache_*/*"):
            spilled.unlink()
        return take(self, indices)

    monkeypatch.setattr(Waiting, "take", take_after_a_clean_up)
    done = one_pass(sound, qwen3, spill_dir=str(tmp_path))
    assert not done.packs
    assert done.lost == {"decode_failed": 12}
    assert "could not be read back from spill_dir" in done.examples["decode_failed"][2]


def test_keys_that_occur_twice_are_refused_when_a_dataset_is_prepared(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    with tarfile.open(folder / SHARD, "w", format=tarfile.USTAR_FORMAT) as shard:
        for key in ("a", "b", "a"):
            for name, part in good().items():
                info = tarfile.TarInfo(f"{key}.{name}")
                info.size = len(part)
                shard.addfile(info, io.BytesIO(part))
    with pytest.raises(SystemExit):
        prepared(folder, "val")


EVIL = "!!python/object/apply:os.mkdir ['{there}']"
FILES = {
    ".info.json": ["{", "[]", '{"shard_counts": {}}', '{"shard_counts": {"val-000.tar": "x"}}'],
    "split.yaml": ["split_parts: [", "[1]", "split_parts: {val: [nope.tar]}", "\udcff", EVIL],
    "dataset.yaml": ["{", "", "__class__: Nope\n__module__: nope", "a: &a [*a]", "\udcff", EVIL],
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in FILES.items() for text in texts]
)
def test_a_damaged_file_of_the_dataset_is_told_in_one_sentence(name, text, folder, tmp_path, qwen3):
    there = tmp_path / "there"
    text = text.replace("{there}", str(there))
    (folder / ".nv-meta" / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DatasetError) as caught:
        loader_of(folder, qwen3, "val")
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    assert not there.exists()


def test_a_line_of_json_that_cannot_be_parsed_is_counted(tmp_path, qwen3):
    lines = [chat("x", f"It is {at}.") + b"\n" for at in range(6)]
    file = tmp_path / "data.jsonl"
    file.write_bytes(b"".join(lines))
    options = ["--non-interactive", "--no-progress", "--num-workers", "1"]
    prepare.main([str(file), *options], standalone_mode=False)
    assert one_pass(file, qwen3).keys == list("012345")
    lines[2] = lines[2].replace(b"[", b"#")
    file.write_bytes(b"".join(lines))
    done = one_pass(file, qwen3)
    assert done.keys == list("01345")
    assert done.lost == {"bad_conversation": 1}
    file.write_bytes(b"".join(lines[:4]))
    with pytest.raises(DatasetError, match="index of the jsonl file does not match"):
        loader_of(file, qwen3, "val")


def test_a_remote_shard_is_told_from_its_index_by_its_size_alone(qwen3, folder, monkeypatch):
    monkeypatch.setattr(EPath, "is_local", lambda _: False)
    assert one_pass(folder, qwen3).keys == ALL
    with (folder / SHARD).open("ab") as shard:
        shard.write(bytes(20_000))
    done = one_pass(folder, qwen3)
    assert done.keys == ALL[6:]
    assert done.lost == {"unreadable": 6}


def test_reading_keeps_no_header_of_what_it_has_read(qwen3, tmp_path):
    def open_files():
        return [file for file in gc.get_objects() if isinstance(file, ITarFile)]

    earlier = {id(file): file for file in open_files()}
    folder = write(tmp_path / "data", [good(at) for at in range(6)], split="train")
    loader = loader_of(folder, qwen3, seq_length=200)
    for _ in itertools.islice(loader, 20):  # tarfile keeps a header a part, without end
        pass
    files = [file for file in open_files() if id(file) not in earlier]
    assert files
    assert max(len(file.members) for file in files) <= 2
