# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The demo dataset has what it claims."""

import io
import json
import pickle
from pathlib import Path

import av
import pytest
import webdataset as wds
import yaml
from conftest import DEMO_SAMPLES
from PIL import Image

from energon_pack.config import PackingConfig
from energon_pack.demo.conversations import FRAME_LIST_FPS
from energon_pack.demo.dataset import build_dataset, build_shards
from energon_pack.demo.media import CLIPS, PHOTOS
from energon_pack.errors import UserError


def read_shards(folder: Path, split: str) -> list[dict]:
    shards = sorted(str(path) for path in folder.glob(f"{split}-*.tar"))
    return list(wds.WebDataset(shards, shardshuffle=False))


@pytest.fixture(scope="module")
def samples(demo_folder: Path) -> list[dict]:
    return read_shards(demo_folder, "train") + read_shards(demo_folder, "val")


def turns(sample: dict) -> list[dict]:
    return [message for message in json.loads(sample["json"]) if message["role"] == "user"]


def placeholders(sample: dict, kind: str) -> int:
    parts = [part for message in json.loads(sample["json"]) for part in message["content"]]
    return sum(part["type"] == kind for part in parts)


def images(sample: dict) -> list[bytes]:
    single = [data for name, data in sorted(sample.items()) if name.endswith("jpg")]
    return single + (pickle.loads(sample["jpgs"]) if "jpgs" in sample else [])


def test_every_sample_is_in_exactly_one_split(samples):
    assert sorted(sample["__key__"] for sample in samples) == [
        f"{place:06d}" for place in range(DEMO_SAMPLES)
    ]


def test_both_splits_are_prepared(demo_folder):
    split = yaml.safe_load((demo_folder / ".nv-meta" / "split.yaml").read_text())["split_parts"]
    counts = json.loads((demo_folder / ".nv-meta" / ".info.json").read_text())["shard_counts"]
    assert sum(counts.values()) == DEMO_SAMPLES
    assert split["train"]
    assert split["val"]


def test_mixed_has_text_one_image_several_images_clips_and_frame_lists(samples):
    found = {
        (len(images(sample)), "mp4" in sample, "videos" in sample, "jpgs" in sample)
        for sample in samples
    }
    assert (0, False, False, False) in found
    assert (1, False, False, False) in found
    assert (0, True, False, False) in found
    assert (0, False, True, False) in found
    assert any(count > 1 and not listed for count, _, _, listed in found)
    assert any(count > 1 and listed for count, _, _, listed in found)


def test_conversations_have_one_to_three_turns_and_every_turn_an_answer(samples):
    assert {len(turns(sample)) for sample in samples} == {1, 2, 3}
    for sample in samples:
        roles = [message["role"] for message in json.loads(sample["json"])]
        assert roles == ["user", "assistant"] * (len(roles) // 2)


def test_placeholders_equal_the_media(samples):
    for sample in samples:
        assert placeholders(sample, "image") == len(images(sample))
        assert placeholders(sample, "video") == ("mp4" in sample) + ("videos" in sample)


def test_the_stated_picture_size_is_true(samples):
    stated = 0
    for sample in samples:
        text = sample["json"].decode()
        if len(images(sample)) == 1 and "It has " in text:
            width, height = Image.open(io.BytesIO(images(sample)[0])).size
            assert f"It has {width} by {height} pixels." in text
            stated += 1
    assert stated


def test_clips_decode_and_last_between_one_and_six_seconds(samples):
    for data in (sample["mp4"] for sample in samples if "mp4" in sample):
        with av.open(io.BytesIO(data)) as container:
            rate = float(container.streams.video[0].average_rate)
            assert 1 < sum(1 for _ in container.decode(video=0)) / rate < 6


def test_frame_lists_are_jpegs_that_say_their_rate(samples):
    lists = [sample for sample in samples if "videos" in sample]
    assert lists
    for sample in lists:
        (frame_list,) = pickle.loads(sample["videos"])
        assert {Image.open(io.BytesIO(frame)).format for frame in frame_list} == {"JPEG"}
        fps = json.loads(sample["json"])[0]["content"][0]["fps"]
        assert fps == pytest.approx(FRAME_LIST_FPS, rel=0.1)
        assert 1 <= len(frame_list) / fps <= 6


def test_data_yaml_names_the_dataset_and_the_processor_beside_it(demo_config, demo_folder):
    assert isinstance(demo_config, PackingConfig)
    assert Path(demo_config.path) == demo_folder.resolve()
    assert (Path(demo_config.model) / "tokenizer.json").exists()


def test_credits_name_every_source(demo_folder):
    text = (demo_folder / "CREDITS.md").read_text()
    assert all(source.file in text and source.credit in text for source in (*PHOTOS, *CLIPS))


@pytest.mark.parametrize(
    ("kind", "part"), [("image", "jpg"), ("video", "mp4"), ("frames", "videos")]
)
def test_a_kind_has_its_medium_in_every_sample(tmp_path, kind, part):
    build_shards(tmp_path, kind, samples=4, seed=3)
    found = read_shards(tmp_path, "train") + read_shards(tmp_path, "val")
    assert len(found) == 4
    assert all(any(name.startswith(part) for name in sample) for sample in found)


def test_the_seed_alone_decides_the_shards(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        build_shards(tmp_path / name, "mixed", samples=8, seed=seed)
    first, same, other = (
        (tmp_path / name / "train-000.tar").read_bytes() for name in ("a", "b", "c")
    )
    assert first == same
    assert first != other


@pytest.mark.parametrize(
    ("kind", "samples", "words"),
    [("audio", 8, "kind 'audio' is not known"), ("mixed", 1, "samples is 1")],
)
def test_what_cannot_be_built_is_said_in_one_sentence(tmp_path, kind, samples, words):
    with pytest.raises(UserError, match=words):
        build_dataset(tmp_path / "new", kind, samples=samples)


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(UserError, match="is not empty"):
        build_dataset(tmp_path, samples=4)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
