# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""MetadatasetV2 files: blends, joins, and media beside the samples, packed and resumed exactly."""

import contextlib
import io
import itertools
import json
import os
import tarfile

import pytest
import yaml
from hard_parts import JPEG, chat, good, loader_of, one_pass, write
from megatron.energon.tools.prepare import command as prepare

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

JOINERS = """
from megatron.energon import CrudeSample, basic_sample_keys
from energon_pack.reading.sources import ChatMLSample

def typed(text, photo) -> ChatMLSample:
    photos = [photo["jpg"]] if photo else []
    return ChatMLSample(**basic_sample_keys(text), conversation=text["json"], imgs=photos)

def crude(text, photo) -> CrudeSample:
    return CrudeSample({**text, "jpg": photo["jpg"]})

def failing(text, photo):
    raise KeyError("caption")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "joiners_of_the_test.py").write_text(JOINERS)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def metadataset(folder, split="val", **body):
    file = folder / "metadataset.yaml"
    head = {"__module__": "megatron.energon", "__class__": "MetadatasetV2"}
    file.write_text(yaml.safe_dump({**head, "splits": {split: body}}))
    return file


def joined(folder, joiner, split="val", *, photos=12, **second):
    """Twelve conversations joined with that many photos."""
    write(
        folder / "texts", [{"json": chat(answer=f"Number {at}.")} for at in range(12)], split=split
    )
    numbered = [{"jpg": JPEG} for _ in range(photos)]
    write(folder / "photos", numbered[:6], numbered[6:], split=split)
    parts = [{"path": "texts"}, {"path": "photos", **second}]
    named = {"__module__": "joiners_of_the_test", "__function__": joiner}
    file = metadataset(folder, split, join=parts, joiner=named)
    with contextlib.redirect_stdout(io.StringIO()):
        prepare.main([str(file), "--non-interactive"], standalone_mode=False)
    return file


ALL = [f"{at:03d}" for at in range(12)]


def resumes_exactly(file, family, **settings):
    """Compare the packs after a state with those of a new loader that restored it."""
    loader = loader_of(file, family, shuffle_buffer_size=5, **settings)
    seen = [pack["__keys__"] for pack in itertools.islice(loader, 3)]
    state = loader.save_state()
    expected = [pack["__keys__"] for pack in itertools.islice(loader, 6)]
    resumed = loader_of(file, family, shuffle_buffer_size=5, **settings)
    resumed.restore_state(state)
    packs = list(itertools.islice(resumed, 6))
    assert not any(pack["pack_info"].stream.skipped for pack in packs)
    assert [pack["__keys__"] for pack in packs] == expected
    return sum(map(len, seen)) + sum(map(len, expected))


@pytest.mark.parametrize("joiner", ["typed", "crude"])
def test_joined_datasets_are_packed_and_resume_exactly(joiner, folder, qwen3):
    done = one_pass(joined(folder, joiner), qwen3)
    assert done.keys == ALL
    assert not done.lost
    same = [{"json": chat(answer=f"Number {at}."), "jpg": JPEG} for at in range(12)]
    ours = one_pass(write(folder / "ours", same), qwen3)
    assert [pack["input_ids"].tolist() for pack in done.packs] == [
        pack["input_ids"].tolist() for pack in ours.packs
    ]
    assert resumes_exactly(joined(folder / "train", joiner, "train"), qwen3) > len(ALL)


def test_a_joined_sample_without_its_second_part_is_the_joiners_affair(folder, qwen3):
    file = joined(folder, "typed", photos=9, nonmatch="none")
    done = one_pass(file, qwen3)
    assert done.keys == ALL[:9]  # whose text places a photo
    assert done.lost == {"media_mismatch": 3}


def test_a_joiner_that_raises_costs_its_samples(folder, qwen3):
    done = one_pass(joined(folder, "failing"), qwen3)
    assert done.lost == {"bad_conversation": 12}
    assert done.examples["bad_conversation"][2] == (
        "the sample does not fit the dataset's joiner: 'caption'"
    )


def cut(shard):
    os.truncate(shard, 4000)


def gone(shard):
    shard.unlink()


def longer(shard):
    with tarfile.open(shard, "a") as file:
        file.addfile(tarfile.TarInfo("new.jpg"))


def another(shard):
    shard.write_bytes(shard.with_name("val-001.tar").read_bytes())


@pytest.mark.parametrize(("damage", "message"), [
    (cut, "val-000.tar is damaged or cut short here"),
    (gone, "val-000.tar or its index is not there any more"),
    (longer, "val-000.tar is not the file that was indexed; run energon prepare again"),
    (another, "val-000.tar holds 011 where 005 was joined; run energon prepare again"),
])  # fmt: skip
def test_damage_in_a_joined_shard_costs_its_samples(damage, message, folder, qwen3):
    file = joined(folder, "typed")
    damage(folder / "photos" / "val-000.tar")
    done = one_pass(file, qwen3)
    assert set(done.keys) >= set(ALL[6:])
    assert done.lost == {"unreadable": 12 - len(done.keys)} != {"unreadable": 0}
    assert done.examples["unreadable"][2].startswith(message)


def test_a_damaged_join_index_costs_the_samples_that_it_held(folder, qwen3):
    file = joined(folder, "typed")
    (index,) = folder.glob("metadataset.yaml.cache/*.bin")
    content = bytearray(index.read_bytes())
    row = 2 * 3 * 8
    content[16 + 3 * row : 16 + 4 * row] = b"\xff\x7f" * (row // 2)
    index.write_bytes(content)
    done = one_pass(file, qwen3)
    assert done.keys == [key for key in ALL if key != "003"]
    assert done.lost == {"unreadable": 1}


def test_a_blend_takes_its_parts_by_weight_and_resumes_exactly(folder, qwen3):
    write(folder / "a", [good(at) for at in range(20)], split="train")
    write(folder / "b", [{"json": chat("What?", f"B {at}.")} for at in range(20)], split="train")
    parts = [{"path": "a", "weight": 1}, {"path": "b", "weight": 3}]
    file = metadataset(folder, "train", blend=parts)
    packs = list(itertools.islice(loader_of(file, qwen3), 30))
    images = sum(
        len(pack["visual_inputs"].image_grid_thw) for pack in packs if pack["visual_inputs"]
    )
    samples = sum(len(pack["__keys__"]) for pack in packs)
    assert samples / 8 < images < samples / 2.5
    resumes_exactly(file, qwen3)


LINES = """
import json

def cook(sample, photos):
    line = json.loads(sample["json"])
    photo, _ = photos[line["image"]]
    return {"conversation": line["conversations"], "imgs": [photo]}
"""


@pytest.mark.parametrize("place", ["filesystem://pictures", "pictures"])
def test_json_lines_with_a_folder_or_a_dataset_of_pictures(place, folder, qwen3):
    pictures = folder / "pictures"
    if place.startswith("filesystem"):
        pictures.mkdir()
        for at in range(6):
            (pictures / f"{at:03d}.jpg").write_bytes(JPEG)
    else:
        write(pictures, [{"jpg": JPEG} for _ in range(6)])
    lines = [
        {"image": f"{at:03d}.jpg", "conversations": json.loads(chat(answer=f"{at}"))["messages"]}
        for at in range(7)  # the last has no picture
    ]
    file = folder / "lines.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with contextlib.redirect_stdout(io.StringIO()):
        prepare.main([str(file), "--non-interactive"], standalone_mode=False)
    (folder / "cook.py").write_text(LINES)
    meta = metadataset(folder, path="lines.jsonl", aux={"photos": place})
    done = one_pass(meta, qwen3, cooker=f"{folder}/cook.py:cook")
    assert done.keys == list("012345")
    assert done.lost == {"cooker_failed": 1}
