# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A user's own function reads shards of another layout; what it refuses or breaks on is counted."""

import json
import os

import pytest
import yaml
from hard_parts import JPEG, chat, good, loader_of, one_pass, write
from megatron.energon import WorkerConfig

from energon_pack import PackingConfig, PackingTaskEncoder, build_loader
from energon_pack.config import load_config
from energon_pack.encoder import Pack
from energon_pack.reading.cookers import load_cookers
from energon_pack.resume import ResumeError
from energon_pack.strict import ConfigError

COOK = """
import json

def cook(sample):
    entry = json.loads(sample["qa.json"])
    return {
        "conversation": [
            {"role": "user", "content": "<image>" + entry["q"]},
            {"role": "assistant", "content": entry["a"]},
        ],
        "imgs": [sample["photo"]],
    }
"""


def entry(number):
    """The sample that ``good`` has, in another layout."""
    qa = {"q": "What is it?", "a": f"It is number {number}."}
    return {"qa.json": json.dumps(qa).encode(), "photo": JPEG}


@pytest.fixture
def cook_file(tmp_path):
    file = tmp_path / "my_cook.py"
    file.write_text(COOK)
    return file


def same(packs: list[Pack], others: list[Pack]) -> bool:
    return all(
        (pack["input_ids"] == other["input_ids"]).all()
        and (pack["visual_inputs"].pixel_values == other["visual_inputs"].pixel_values).all()
        for pack, other in zip(packs, others, strict=True)
    )


def test_shards_of_another_layout_make_the_packs_of_ours(qwen3, cook_file, tmp_path):
    ours = write(tmp_path / "ours", [good(at) for at in range(20)])
    theirs = write(tmp_path / "theirs", [entry(at) for at in range(20)])
    expected = one_pass(ours, qwen3)
    cooked = one_pass(theirs, qwen3, cooker=f"{cook_file}:cook")
    assert expected.keys == [f"{at:03d}" for at in range(20)]
    assert cooked.keys == expected.keys
    assert not cooked.lost
    assert same(cooked.packs, expected.packs)


def test_a_cooker_may_lie_beside_the_dataset_yaml_or_in_a_package(cook_file, tmp_path, monkeypatch):
    file = tmp_path / "data.yaml"
    file.write_text(yaml.safe_dump({"path": "x", "model": "o/n", "cooker": "my_cook.py:cook"}))
    assert load_config(file).cooker == f"{cook_file}:cook"
    file.write_text(yaml.safe_dump({"path": "x", "model": "o/n", "cooker": "my_cook:cook"}))
    assert load_config(file).cooker == "my_cook:cook"
    monkeypatch.syspath_prepend(tmp_path)
    first, rest = load_cookers("my_cook:cook")
    assert first.cook({"qa.json": b'{"q": "Q", "a": "A"}', "photo": JPEG})["imgs"] == [JPEG]
    assert rest.cook.__name__ == "cook_raw"


FAULTY = """
from megatron.energon import SkipSample
from energon_pack.reading.sources import ChatMLSample

def cook(sample):
    match sample["__key__"]:
        case "000": raise KeyError("dialogue")
        case "001": raise SkipSample
        case "002": return None
        case "003": return ["a list"]
        case "004": return {"conversation": [], "image": b""}
        case "005": return {"imgs": []}
        case "006": return {"conversation": "no list"}
        case "007": return {"conversation": sample["json"], "imgs": ["no bytes"]}
        case "008": raise SystemError("of Energon's own")
    return {"conversation": sample["json"], "imgs": [sample["jpg"]]}
"""


def test_what_a_cooker_refuses_or_breaks_on_costs_its_sample_and_is_counted(qwen3, tmp_path):
    folder = write(tmp_path / "data", [good(at) for at in range(12)])
    (tmp_path / "faulty.py").write_text(FAULTY)
    done = one_pass(folder, qwen3, cooker=f"{tmp_path}/faulty.py:cook")
    assert done.keys == ["009", "010", "011"]
    assert done.lost == {
        "cooker_failed": 5, "cooker_skipped": 2, "bad_conversation": 1, "bad_pickle": 1
    }  # fmt: skip
    key, _, message = done.examples["cooker_failed"]
    assert (key, message) == ("008", "SystemError: of Energon's own")


def test_a_cooker_of_an_encoder_of_ones_own_is_counted_too(qwen3, tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY)

    class OwnEncoder(PackingTaskEncoder):
        cookers = load_cookers(f"{tmp_path}/faulty.py:cook")[:1]

    folder = write(tmp_path / "data", [good(at) for at in range(3)])
    config = PackingConfig(path=str(folder), model=".", num_workers=0)
    loader = build_loader(config, "val", encoder=OwnEncoder(config, family=qwen3))
    assert not list(loader)
    (record,) = loader.worker_records()
    assert record.pending == {"cooker_failed": 1, "cooker_skipped": 2}


def test_a_cooker_never_sees_what_could_not_be_read(qwen3, cook_file, tmp_path):
    folder = write(tmp_path / "data", [entry(at) for at in range(12)])
    os.truncate(folder / "val-000.tar", 9000)
    done = one_pass(folder, qwen3, cooker=f"{cook_file}:cook")
    assert done.lost == {"unreadable": 12 - len(done.keys)}
    assert 0 < len(done.keys) < 12


PRIMARY = """
import json
from megatron.energon import cooker

@cooker(need_primary=True)
def cook(sample, primary):
    photo, _ = primary[sample["__key__"] + ".photo"]
    return {"conversation": json.loads(sample["json"]), "imgs": [photo]}
"""


def test_a_cooker_may_read_other_parts_by_name(qwen3, tmp_path):
    samples = [{"json": chat(answer=f"It is number {at}."), "photo": JPEG} for at in range(4)]
    (tmp_path / "primary.py").write_text(PRIMARY)
    folder = write(tmp_path / "data", samples)
    done = one_pass(folder, qwen3, cooker=f"{tmp_path}/primary.py:cook")
    assert done.keys == ["000", "001", "002", "003"]
    expected = one_pass(write(tmp_path / "ours", [good(at) for at in range(4)]), qwen3)
    assert same(done.packs, expected.packs)


BY_SUBFLAVOR = """
from megatron.energon import Cooker

def cook_text(sample):
    turns = zip(("user", "assistant"), sample["txt"].decode().split("/"))
    return {"conversation": [{"role": role, "content": text} for role, text in turns]}

cookers = [Cooker(cook_text, has_subflavors={"kind": "text"})]
"""


def test_cookers_of_a_blend_are_chosen_by_subflavor_and_ours_cook_the_rest(qwen3, tmp_path):
    write(tmp_path / "text", [{"txt": f"What?/Number {at}.".encode()} for at in range(3)])
    write(tmp_path / "photos", [good(at) for at in range(3)])
    (tmp_path / "by_subflavor.py").write_text(BY_SUBFLAVOR)
    parts = [{"path": "text", "subflavors": {"kind": "text"}}, {"path": "photos"}]
    blend = {
        "__module__": "megatron.energon",
        "__class__": "MetadatasetV2",
        "splits": {"val": {"blend": parts}},
    }
    (tmp_path / "blend.yaml").write_text(yaml.safe_dump(blend))
    name = f"{tmp_path}/by_subflavor.py:cookers"
    done = one_pass(tmp_path / "blend.yaml", qwen3, cooker=name)
    assert len(done.keys) == 6
    assert not done.lost


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cook", "is 'cook'; give package.module:function or file.py:function"),
        ("my_cook:", "give package.module:function"),
        ("", "give package.module:function"),
        ("no_such_module:cook", "cannot be imported: ModuleNotFoundError: No module named"),
        ("{folder}/no_file.py:cook", "cannot be imported: FileNotFoundError"),
        ("{folder}/my_cook.py:cock", "cannot be imported: AttributeError: .* no attribute 'cock'"),
        ("{folder}/my_cook.py:json", "is a module; give a function that makes one sample of one"),
        ("{folder}/several.py:cook", "is a generator; give a function that makes one sample"),
        ("{folder}/raises.py:cook", "cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_a_cooker_that_cannot_be_used_is_one_sentence(name, message, cook_file, tmp_path, qwen3):
    (tmp_path / "several.py").write_text("def cook(sample):\n    yield sample\n")
    (tmp_path / "raises.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError, match=message):
        loader_of(tmp_path, qwen3, cooker=name.format(folder=cook_file.parent))


def test_another_cooker_is_another_run_and_the_same_elsewhere_is_not(qwen3, cook_file, tmp_path):
    folder = write(tmp_path / "data", [entry(at) for at in range(20)], split="train")
    one = WorkerConfig(rank=0, world_size=1, num_workers=0)

    def loader(name):
        return loader_of(folder, qwen3, worker_config=one, cooker=name)

    first = loader(f"{cook_file}:cook")
    packs = iter(first)
    next(packs)
    state, following = first.save_state(), next(packs)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "my_cook.py").write_text(COOK)
    resumed = loader(f"{tmp_path}/elsewhere/my_cook.py:cook")
    resumed.restore_state(state)
    assert same([next(iter(resumed))], [following])
    cook_file.with_name("other.py").write_text(COOK)
    with pytest.raises(ResumeError, match=r"cooker +my_cook.py:cook +other.py:cook"):
        loader(f"{tmp_path}/other.py:cook").restore_state(state)
