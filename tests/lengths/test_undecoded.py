# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Datasets of every class are read as they are stored: unchanged files, nothing decoded."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from lengths.dataset_parts import raw_samples, write_dataset
from lengths.media_parts import clip, encode, frames, picture
from lengths.oracle import measured, refused
from PIL import Image

from energon_pack.reading.sources import RawSample, UnreadableSample

JPEG = encode(picture(60, 80))
FRAMES = [encode(Image.fromarray(pixels)) for pixels in frames(3, 48, 64)]
CLIP = clip(frames(5, 64, 96))

CHATML = """
__module__: megatron.bridge.data.energon.task_encoder_utils
__class__: ChatMLWebdataset
field_map: {fields}
"""
TYPED = """
sample_type:
  __module__: megatron.energon
  __class__: {name}
field_map: {fields}
"""
CRUDE = """
__module__: megatron.energon
__class__: CrudeWebdataset
"""


def chat(text: str, **extra) -> bytes:
    turns = [{"from": "human", "value": text}, {"from": "gpt", "value": "Yes."}]
    return json.dumps({"conversations": turns, **extra}).encode()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def kinds(candidate) -> list[str]:
    return ["frames" if medium.is_frame_list else medium.kind for medium in candidate.media]


@pytest.mark.parametrize(
    ("fields", "parts", "expected"),
    [
        ("imgs: jpg", {"jpg": JPEG}, ["image"]),
        ("imgs: jpgs", {"jpgs": pickle.dumps([JPEG, JPEG])}, ["image", "image"]),
        ("videos: videos", {"videos": pickle.dumps([FRAMES, FRAMES])}, ["frames", "frames"]),
        ("videos: mp4s", {"mp4s": pickle.dumps([FRAMES])}, ["frames"]),
        ("videos: mp4s", {"mp4s": pickle.dumps([CLIP, FRAMES])}, ["video", "frames"]),
        ("videos: mp4", {"mp4": CLIP}, ["video"]),
        ("imgs: png, videos: mp4s", {"png": JPEG, "mp4s": pickle.dumps([FRAMES])},
         ["image", "frames"]),
    ],
)  # fmt: skip
def test_megatron_bridges_datasets_are_read_undecoded(fields, parts, expected, qwen3, tmp_path):
    folder = write_dataset(
        tmp_path / "data",
        [{"json": chat("What?"), **parts}] * 3,
        CHATML.format(fields=f"{{conversation: json, {fields}}}"),
    )
    before = contents(folder)
    samples = raw_samples(folder)
    assert [sample.__key__ for sample in samples] == ["000", "001", "002"]
    for sample in samples:
        for value in (sample.imgs, sample.videos):
            assert value is None or isinstance(value, bytes)
        assert kinds(measured(qwen3, sample)) == expected
    assert contents(folder) == before


def test_the_dataset_class_is_read_without_importing_megatron_bridge(tmp_path):
    folder = write_dataset(
        tmp_path / "data",
        [{"json": chat("<image>?"), "jpg": JPEG}],
        CHATML.format(fields="{conversation: json, imgs: jpg}") + "auto_decode: true\n",
    )
    script = (
        "import sys; sys.modules['megatron.bridge'] = None\n"
        "from lengths.dataset_parts import raw_samples\n"
        "from pathlib import Path\n"
        f"print(type(raw_samples(Path({str(folder)!r}))[0].imgs).__name__)\n"
    )
    here = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=here, check=False
    )
    assert done.stdout == "bytes\n", done.stderr


def test_tools_of_their_own_field_reach_the_template(qwen3, tmp_path):
    tools = [{"type": "function", "function": {"name": "look"}}]
    folder = write_dataset(
        tmp_path / "data",
        [{"json": json.dumps({"chat": json.loads(chat("Hi")), "tools": tools}).encode()}],
        CHATML.format(fields="{conversation: 'json[chat]', tools: 'json[tools]'}"),
    )
    candidate = measured(qwen3, raw_samples(folder)[0])
    assert '{"type": "function", "function": {"name": "look"}}' in qwen3.tokenizer.decode(
        candidate.ids
    )


@pytest.mark.parametrize(
    ("name", "fields", "parts", "question"),
    [
        ("VQASample", "{image: jpg, context: txt, answers: json}",
         {"jpg": JPEG, "txt": b"What?", "json": b'["A cat.", "A dog."]'}, "What?"),
        ("VQASample", "{image: jpg, context: 'json[q]', answers: 'json[a]'}",
         {"jpg": JPEG, "json": b'{"q": "What?", "a": ["A cat."]}'}, "What?"),
        ("VQASample",
         "{image: jpg, context: txt, answers: 'json[a]', answer_weights: 'json[w]'}",
         {"jpg": JPEG, "txt": b"What?", "json": b'{"a": ["x", "A cat."], "w": [0.3, 0.7]}'},
         "What?"),
        ("VidQASample", "{video: mp4, context: txt, answers: json}",
         {"mp4": CLIP, "txt": b"What?", "json": b'["A cat."]'}, "What?"),
        ("MultiChoiceVQASample",
         "{image: jpg, context: txt, choices: 'json[c]', correct_choice_idx: 'json[i]'}",
         {"jpg": JPEG, "txt": b"What?", "json": b'{"c": ["x", "A cat."], "i": 1}'},
         "What?"),
        ("CaptioningSample", "{image: jpg, caption: txt}",
         {"jpg": JPEG, "txt": b"A cat."}, ""),
    ],
)  # fmt: skip
def test_energons_own_samples_map_onto_a_conversation(
    name, fields, parts, question, qwen3, tmp_path
):
    folder = write_dataset(tmp_path / "data", [parts], TYPED.format(name=name, fields=fields))
    candidate = measured(qwen3, raw_samples(folder)[0])
    text = qwen3.tokenizer.decode(candidate.ids[candidate.trained])
    assert text == "A cat.<|im_end|>\n"
    assert f"{question}<|im_end|>\n<|im_start|>assistant" in qwen3.tokenizer.decode(candidate.ids)
    assert len(candidate.media) == 1


def test_crude_samples_keep_their_parts_and_order(qwen3, tmp_path):
    images = [encode(picture(64, 32 * (at + 2)), "PNG") for at in range(11)]
    parts = {f"{at}.png": image for at, image in enumerate(images)}
    folder = write_dataset(
        tmp_path / "data",
        [
            {"json": chat("".join(["<image>"] * 11)), **parts},
            {"json": chat("<video>", fps=2), "videos": pickle.dumps([FRAMES])},
            {"json": chat("<video>"), "mp4": CLIP},
            {"json": chat("Hi"), "txt": b"unused"},
        ],
        CRUDE,
    )
    samples = raw_samples(folder)
    assert all(isinstance(sample, RawSample) for sample in samples)
    candidates = [measured(qwen3, sample) for sample in samples]
    assert [medium.width for medium in candidates[0].media] == [32 * (at + 2) for at in range(11)]
    assert [kinds(candidate) for candidate in candidates[1:]] == [["frames"], ["video"], []]
    assert len({candidate.__restore_key__ for candidate in candidates}) == 4


def test_a_sample_that_does_not_fit_its_field_map_is_refused_alone(qwen3, tmp_path):
    good = {"jpg": JPEG, "json": b'{"q": "What?", "a": ["A cat."]}'}
    folder = write_dataset(
        tmp_path / "data",
        [good, {**good, "json": b'{"q": "What?"}'}, {**good, "json": b"[" * 100_000}, good],
        TYPED.format(
            name="VQASample", fields="{image: jpg, context: 'json[q]', answers: 'json[a]'}"
        ),
    )
    samples = raw_samples(folder)
    assert [isinstance(sample, UnreadableSample) for sample in samples] == [
        False,
        True,
        True,
        False,
    ]
    for sample in samples[1:3]:
        result = refused(qwen3, sample)
        assert result.cause == "bad_conversation"
        assert result.message.startswith("the sample does not fit the dataset's field map")
        assert result.__restore_key__ == sample.__restore_key__ != ()
    assert measured(qwen3, samples[3]).media[0].data == JPEG
