# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Conversations, pickles and settings of every odd kind: right, or refused with a sentence."""

import json
import os
import pickle
import time

import pytest
from hard_parts import JPEG
from lengths.oracle import config, exchange, measured, raw, refused

from energon_pack.config import ConfigError, load_config
from energon_pack.measure import Measurer
from energon_pack.reading.unpickle import load_pickle
from energon_pack.refusal import SampleError
from energon_pack.strict import load_yaml


def turn(content, role="user"):
    return {"role": role, "content": content}


ANSWER = turn("Yes.", "assistant")


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"", "no JSON"), (b"hello", "no JSON"), (b'[{"role":', "no JSON"),
        (b"null", "no list of turns"), (b"3", "no list of turns"),
        ([], "no list of turns"), (b"[" * 10**5, "nested too deeply"),
        (b'[{"role":"user","content":' + b"[" * 5000 + b"]" * 5000 + b"}]", "nested too deeply"),
        (b'[{"role":"user","content":' + b"9" * 5000 + b"}]", "a number too long"),
        (b'[{"role":"user","role":"user","content":""}]', "has the key 'role' twice"),
        (b'{"messages":[],"messages":[]}', "has the key 'messages' twice"),
        ('[{"role":"user","content":"\xe9"}]'.encode("latin1"), "no UTF-8"),
        ([turn("\ud800"), ANSWER], "no valid Unicode"),
        ([turn("x", "robot"), ANSWER], "role 'robot'"),
        ([turn("x", ["user"]), ANSWER], "has role"), ([{"content": "x"}, ANSWER], "role None"),
        ([turn(3), ANSWER], "neither text nor a list"),
        ([turn(["x"]), ANSWER], "no object with a type"),
        ([turn([{"type": "audio"}]), ANSWER], "known types are text, image and video"),
        ([turn("x", "system")], "no assistant turn"), ([turn("x")], "no assistant turn"),
        ([turn("<image>"), ANSWER], "places 1 image"),
        ([turn([{"type": "text", "text": "<|im_"}, {"type": "text", "text": "end|>"}]), ANSWER],
         "control token <|im_end|>"),
    ],
)  # fmt: skip
def test_what_is_no_conversation_to_train_on_is_refused(payload, says, qwen3):
    found = refused(qwen3, raw(payload))
    assert found.cause in ("bad_conversation", "no_target", "media_mismatch")
    assert says in found.message


@pytest.mark.parametrize(
    "turns",
    [[turn(""), turn("", "assistant")], [turn(None), ANSWER], [turn([]), ANSWER], [ANSWER],
     [turn("a"), turn("b"), ANSWER], [turn("a\0b"), ANSWER], [turn("x", "tool"), ANSWER]],
)  # fmt: skip
def test_unusual_turns_are_packed(turns, qwen3):
    assert measured(qwen3, raw(turns)).trained.any()


@pytest.mark.parametrize("text", ["word " * 400_000, "a" * 10_000_000, "\U0001f600" * 900_000])
def test_a_text_far_too_long_is_refused_without_tokenizing_it(text, qwen3):
    measurer = Measurer(qwen3, config(seq_length=4096))
    start = time.perf_counter()
    found = measurer.measure(raw([turn(text), ANSWER]))
    assert time.perf_counter() - start < 10
    assert found.cause == "overlong"
    assert 4096 < found.length < len(text)


@pytest.mark.parametrize(
    "name", ["<|endoftext|>", "<tool_call>", "<think>", "<|object_ref_start|>"]
)
def test_other_special_tokens_in_text_are_the_processors(name, qwen3):
    messages = [turn(f"what is {name}?"), ANSWER]
    text = qwen3.processor.apply_chat_template(messages, tokenize=False)
    assert measured(qwen3, raw(messages)).ids.tolist() == qwen3.tokenizer(text)["input_ids"]


def test_media_are_found_by_name_or_refused(qwen3):
    def sample(*names):
        parts = [{"type": "image", "image": name} for name in names]
        return raw([turn(parts), ANSWER], a_jpg=JPEG, b_jpg=JPEG)

    measured(qwen3, sample("b.jpg", "a.jpg"))
    measured(qwen3, sample("/elsewhere/1.jpg", "/elsewhere/2.jpg"))
    for names in (("a.jpg", "c.jpg"), ("a.jpg", "a.jpg"), ("a.jpg", None)):
        assert refused(qwen3, sample(*names)).cause == "media_mismatch"


def test_media_without_a_place_come_first_and_other_parts_are_left(qwen3):
    sample = raw([turn("What?"), ANSWER], jpg=JPEG, wav=b"sound", npy=b"numbers")
    candidate = measured(qwen3, sample)
    text = qwen3.tokenizer.decode(candidate.ids)
    assert text.index("<|image_pad|>") < text.index("What?")
    assert len(candidate.media) == 1


class Evil:
    def __init__(self, there):
        self.there = str(there)

    def __reduce__(self):
        return os.mkdir, (self.there,)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_runs_nothing(protocol, qwen3, tmp_path):
    there = tmp_path / "there"
    for value in (Evil(there), [Evil(there)], [JPEG, Evil(there)]):
        data = pickle.dumps(value, protocol)
        found = refused(qwen3, raw(exchange("image"), jpgs=data))
        assert found.cause in ("bad_pickle", "bad_image")
        with pytest.raises(SampleError, match="only lists of bytes"):
            load_pickle(data)
    assert not there.exists()


def test_a_rate_beyond_reason_is_taken_as_it_is(qwen3):
    stored = json.dumps({"messages": exchange("video"), "fps": 1e300}).encode()
    sample = raw(stored, videos=pickle.dumps([[JPEG, JPEG]]))
    assert measured(qwen3, sample).media[0].frame_times == (0.0, 1e-300)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("path: &a x\nmodel: *a", "anchors and aliases are not read"),
        ("path: x\npath: y\nmodel: z", "key 'path' stands twice"),
        ("path: !!python/name:os.system\nmodel: x", "is no readable YAML"),
        ("path: !mine x\nmodel: x", "is no readable YAML"),
        ("path: x\nmodel: y\n<<: {seed: 1}", "is no readable YAML"),
        ("[" * 5000, "is no readable YAML"),
        ("path: x\nmodel: y\nseq_length: 1e999", "must be a whole number"),
        ("path: 2024-13-45\nmodel: y", "is no readable YAML"),
        ("\0", "is no readable YAML"),
    ],
)
def test_settings_are_plain_yaml_or_refused(text, says, tmp_path):
    file = tmp_path / "data.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_config(file)


def test_a_huge_settings_file_is_refused_unread(tmp_path):
    file = tmp_path / "data.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    with pytest.raises(ConfigError, match="too many for a dataset YAML"):
        load_yaml(file)
