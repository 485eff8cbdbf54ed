# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import hashlib
import itertools
import json
import tarfile
from collections import Counter

import pytest
import torch
from megatron.energon import WorkerConfig, get_loader, get_train_dataset

from energon_pack import ConfigError, PackingTaskEncoder, build_loader
from energon_pack.encoder import Pack
from energon_pack.reading.prepared import DatasetError


def hashes(folder):
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def keys_in_shards(folder, split):
    return {
        name.split(".", 1)[0]
        for shard in folder.glob(f"{split}-*.tar")
        for name in tarfile.open(shard).getnames()
    }


def check_contract(pack: Pack, seq_length: int) -> None:
    width = pack["total_tokens"]
    offsets = pack["cu_seqlens_q"]
    assert width <= seq_length
    assert pack["input_ids"].shape == pack["labels"].shape == pack["loss_mask"].shape == (1, width)
    assert pack["position_ids"].shape == (3, 1, width)
    assert offsets[0] == 0
    assert offsets[-1] == width
    assert (offsets.diff() > 0).all()
    assert pack["max_seqlen_q"] == offsets.diff().max()
    assert torch.equal(pack["loss_mask"].bool(), pack["labels"] != -100)
    assert (pack["labels"][0, offsets[1:] - 1] == -100).all()
    assert (pack["position_ids"][:, 0, offsets[:-1].long()] == 0).all()
    visual = pack["visual_inputs"]
    patches = (
        0
        if visual is None
        else sum(
            len(rows)
            for rows in (visual.pixel_values, visual.pixel_values_videos)
            if rows is not None
        )
    )
    assert patches == pack["pack_info"].visual_patches


@pytest.fixture(scope="module")
def packs(demo_config):
    return list(itertools.islice(build_loader(demo_config), 60))


def test_training_packs_are_full_and_keep_the_contract(packs, demo_config):
    for pack in packs:
        check_contract(pack, demo_config.seq_length)
    fills = [pack["pack_info"].fill for pack in packs]
    assert sum(fills) / len(fills) > 0.985
    assert max(fills) <= 1
    assert {pack["pack_info"].stream.worker_id for pack in packs} == {0, 1}


def test_a_validation_pass_packs_every_sample_once(demo_config, demo_folder):
    loader = build_loader(demo_config, "val")
    for _ in range(2):
        keys = [key for pack in loader for key in pack["__keys__"]]
        assert Counter(keys) == Counter(dict.fromkeys(keys_in_shards(demo_folder, "val"), 1))


def test_reading_leaves_the_dataset_as_it_was(demo_config, demo_copy):
    before = hashes(demo_copy)
    config = dataclasses.replace(demo_config, path=str(demo_copy))
    list(itertools.islice(build_loader(config), 4))
    list(build_loader(config, "val"))
    assert hashes(demo_copy) == before


def test_the_encoder_works_in_a_plain_energon_dataset(demo_config):
    dataset = get_train_dataset(
        demo_config.path,
        task_encoder=PackingTaskEncoder(demo_config),
        packing_buffer_size=8,
        worker_config=WorkerConfig(rank=0, world_size=1, num_workers=0),
        batch_size=1,
        shuffle_buffer_size=None,
        max_samples_per_sequence=None,
    )
    for pack in itertools.islice(get_loader(dataset), 3):
        check_contract(pack, demo_config.seq_length)
        assert pack["pack_info"].stream.candidates < 8


def test_a_batch_of_several_packs_is_refused(demo_config):
    with pytest.raises(ConfigError, match="batch_size: is 2; a pack is the whole micro batch"):
        get_train_dataset(
            demo_config.path,
            task_encoder=PackingTaskEncoder(demo_config),
            worker_config=WorkerConfig(rank=0, world_size=1, num_workers=0),
            batch_size=2,
            shuffle_buffer_size=None,
            max_samples_per_sequence=None,
        )


def test_a_pack_can_be_restored_from_its_key(demo_config):
    loader = build_loader(dataclasses.replace(demo_config, num_workers=0))
    pack = next(iter(loader))
    again = loader.restore_sample(pack["__restore_key__"])
    assert again["__keys__"] == pack["__keys__"]
    assert torch.equal(again["input_ids"], pack["input_ids"])
    assert torch.equal(again["position_ids"], pack["position_ids"])


def test_a_tap_sees_each_pack_before_the_trainer_does(demo_config):
    loader = build_loader(demo_config, "val")
    seen = []
    loader.tap(seen.append)
    for count, pack in enumerate(loader, start=1):
        assert len(seen) == count
        assert seen[-1] is pack["pack_info"]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: folder.rename(folder.with_name("gone")), "does not exist"),
        (lambda folder: (folder / ".nv-meta").rename(folder / "meta"), "is not prepared; run"),
        (lambda folder: empty_split(folder, "val"), "no shards in its val split; it has train"),
    ],
)
def test_a_dataset_that_cannot_be_opened_is_one_sentence(demo_config, demo_copy, damage, says):
    damage(demo_copy)
    with pytest.raises(DatasetError, match=says) as caught:
        build_loader(dataclasses.replace(demo_config, path=str(demo_copy)), "val")
    assert "\n" not in str(caught.value)


@pytest.fixture
def profiles(tmp_path, monkeypatch):
    """Storage profiles as an object store's are named, here over folders."""
    file = tmp_path / "msc.yaml"

    def name(**folders):
        storage = {
            profile: {"storage_provider": {"type": "file", "options": {"base_path": str(folder)}}}
            for profile, folder in folders.items()
        }
        file.write_text(json.dumps({"profiles": storage}))
        monkeypatch.setenv("MSC_CONFIG", str(file))

    return name


def test_a_dataset_of_a_storage_profile_gives_the_same_packs(demo_config, demo_folder, profiles):
    profiles(cluster=demo_folder.parent)
    remote = dataclasses.replace(demo_config, path=f"msc://cluster/{demo_folder.name}")
    for pack, other in zip(
        build_loader(demo_config, "val"), build_loader(remote, "val"), strict=True
    ):
        assert pack["__keys__"] == other["__keys__"]
        assert torch.equal(pack["input_ids"], other["input_ids"])
    state = build_loader(demo_config, "val").save_state()
    build_loader(remote, "val").restore_state(state)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("msc://cluster/nothing", "path msc://cluster/nothing does not exist"),
        ("msc://elsewhere/data", 'cannot be reached: Profile "elsewhere" not found'),
        ("s3://bucket/data", r"does not exist; .* \(object stores are msc://PROFILE/PATH\)"),
    ],
)
def test_a_remote_path_that_cannot_be_opened_is_one_sentence(
    demo_config, tmp_path, profiles, path, says
):
    profiles(cluster=tmp_path)
    with pytest.raises(DatasetError, match=says) as caught:
        build_loader(dataclasses.replace(demo_config, path=path), "val")
    assert "\n" not in str(caught.value)


def empty_split(folder, split):
    import yaml

    file = folder / ".nv-meta" / "split.yaml"
    parts = yaml.safe_load(file.read_text())
    parts["split_parts"][split] = []
    file.write_text(json.dumps(parts))
