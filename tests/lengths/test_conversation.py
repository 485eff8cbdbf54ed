# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Stored conversations become messages with media in place, or are refused with a sentence."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from energon_pack.reading.conversation import RawMedium, parse_dialogue
from energon_pack.reading.placement import place_media
from energon_pack.refusal import SampleError

IMAGE = RawMedium(kind="image", data=b"a")
VIDEO = RawMedium(kind="video", data=(b"f",))


def user(content, *, answer="yes"):
    return [{"role": "user", "content": content}, {"role": "assistant", "content": answer}]


def placed(turns, stored=(), **options):
    return place_media(parse_dialogue(turns), stored, **options)


def kinds(conversation):
    """Parts of the first turn: text as it is, a medium as its kind in capitals."""
    content = conversation.messages[0]["content"]
    return (
        content
        if isinstance(content, str)
        else [part.get("text", part["type"].upper()) for part in content]
    )


@pytest.mark.parametrize("key", ["conversations", "messages", "conversation", None])
@pytest.mark.parametrize(
    "encode", [json.dumps, lambda value: json.dumps(value).encode(), lambda v: v]
)
def test_both_schemas_under_every_key_are_read(key, encode):
    legacy = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}]
    for turns in (legacy, user("Hi", answer="Yo")):
        payload = turns if key is None else {key: turns}
        assert parse_dialogue(encode(payload)).turns == user("Hi", answer="Yo")


def test_media_stand_where_placeholders_put_them():
    conversation = placed(user("<image>Older, this or <image>? <video>"), [IMAGE, VIDEO, IMAGE])
    assert kinds(conversation) == ["IMAGE", "Older, this or ", "IMAGE", "? ", "VIDEO"]
    assert [medium.kind for medium in conversation.media] == ["image", "image", "video"]


def test_media_stand_where_typed_parts_put_them():
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b<video>"}]
    assert kinds(placed(user(parts), [IMAGE, VIDEO])) == ["a", "IMAGE", "b", "VIDEO"]


def test_media_without_a_place_come_first():
    conversation = placed(user("What?"), [VIDEO, IMAGE, IMAGE])
    assert kinds(conversation) == ["IMAGE", "IMAGE", "VIDEO", "What?"]
    assert [medium.kind for medium in conversation.media] == ["image", "image", "video"]
    system = [{"role": "system", "content": "s"}, *user("What?")]
    assert placed(system, [IMAGE]).messages[1]["content"][0] == {"type": "image"}


def test_as_megatron_bridge_media_come_first_in_each_turn():
    turns = user(" a <image> b <video>") + user("c<image>")
    conversation = placed(turns, [IMAGE, VIDEO, IMAGE], as_bridge=True)
    assert kinds(conversation) == ["IMAGE", "VIDEO", "a", "b"]
    assert [m.kind for m in conversation.media] == ["image", "video", "image"]


def test_media_are_found_by_name_where_a_place_has_one_of_theirs():
    first, second = (RawMedium(kind="image", data=name.encode(), name=name) for name in ("0", "1"))
    parts = [{"type": "image", "image": "1"}, {"type": "image", "image": "0"}]
    assert placed(user(parts), [first, second]).media == (second, first)
    for absent in ("elsewhere.jpg", "1", None):
        parts[1]["image"] = absent
        with pytest.raises(SampleError, match="the sample holds 0, 1"):
            placed(user(parts), [first, second])
    parts[0]["image"] = "/data/elsewhere.jpg"
    assert placed(user(parts), [first, second]).media == (first, second)


@pytest.mark.parametrize(
    ("text", "stored", "says"),
    [
        ("<image>", [], "places 1 image\\(s\\), the sample holds 0"),
        ("<image><image>", [IMAGE], "places 2 image\\(s\\), the sample holds 1"),
        ("<image>", [IMAGE, IMAGE], "places 1 image\\(s\\), the sample holds 2"),
        ("<video>", [IMAGE], "places 1 video\\(s\\), the sample holds 0"),
    ],
)
def test_places_and_media_must_agree_in_number(text, stored, says):
    with pytest.raises(SampleError, match=says) as caught:
        placed(user(text), stored)
    assert caught.value.cause == "media_mismatch"


def test_time_is_the_typed_parts_own_or_the_samples():
    parts = [{"type": "video", "fps": 3}, {"type": "video"}]
    payload = {"messages": user(parts), "fps": 1.5}
    assert [m.fps for m in placed(payload, [VIDEO, VIDEO]).media] == [3.0, 1.5]
    payload = {"messages": user("<video><video>"), "fps": [1, 2]}
    assert [m.fps for m in placed(payload, [VIDEO, VIDEO]).media] == [1.0, 2.0]
    payload = {"messages": user("<video>"), "timestamps": [0, 0.5, 4]}
    assert placed(payload, [VIDEO]).media[0].times == (0.0, 0.5, 4.0)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"fps": 0}, "fps is 0, no number above 0"),
        ({"fps": "24"}, "fps is '24'"),
        ({"fps": True}, "fps is True"),
        ({"fps": float("nan")}, "fps is nan"),
        ({"fps": [1, 2]}, "times for 2 videos and 1 videos"),
        ({"timestamps": [1, 0]}, "do not rise"),
        ({"timestamps": 3}, "no list of seconds"),
        ({"timestamps": ["x"]}, "no list of seconds"),
        ({"timestamps": [0, 10**400]}, "no list of seconds"),
    ],
)
def test_impossible_times_are_refused(extra, says):
    with pytest.raises(SampleError, match=says) as caught:
        placed({"messages": user("<video>"), **extra}, [VIDEO])
    assert caught.value.cause == "bad_video"


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"{", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        ("[" * 100_000, "nested too deeply"),
        ({"messages": []}, "no list of turns"),
        ({"text": "x"}, "no list of turns"),
        (7, "no list of turns"),
        (None, "no list of turns"),
        (["x"], "turn 1 is no object"),
        ([{"content": "x"}], "turn 1 has role None"),
        ([{"from": ["x"], "value": "x"}], "turn 1 has role"),
        ([{"from": "narrator", "value": "x"}], "role 'narrator'; known are system"),
        (user(7), "the content of turn 1 is neither text nor a list"),
        (user({"text": "x"}), "the content of turn 1 is neither text nor a list"),
        ({"messages": user("x"), "tools": {"a": 1}}, "tools are no list of objects"),
        ({"messages": user("x"), "tools": "{"}, "the list of tools is no JSON"),
        (user("<|image_pad|>"), "control token <|image_pad|>"),
    ],
)
def test_what_is_no_conversation_is_refused(payload, says):
    with pytest.raises(SampleError) as caught:
        parse_dialogue(payload)
    assert caught.value.cause == "bad_conversation"
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("x", "no object with a type"),
        ({"type": "audio"}, "a part of type 'audio' has no text"),
        ({"type": "text", "text": 7}, "a part of type 'text' has no text"),
        ({}, "a part of type None has no text"),
    ],
)
def test_an_unknown_part_is_refused(part, says):
    with pytest.raises(SampleError, match=says):
        placed(user([part]))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["role", "content", "from", "value", "type", "text", "image", "fps",
                         "messages", "tools", "timestamps"]) | st.text(), inner),
    max_leaves=20,
)  # fmt: skip


@given(ANYTHING)
def test_any_json_becomes_a_conversation_or_a_refusal(payload):
    with contextlib.suppress(SampleError):
        assert len(placed(payload, [IMAGE]).media) == 1


@given(st.lists(st.sampled_from(["<image>", "<video>", " ", "text", "<", "image>", "\n"])))
def test_no_text_is_lost_at_placeholders(pieces):
    text = "".join(pieces)
    stored = [IMAGE] * text.count("<image>") + [VIDEO] * text.count("<video>")
    parts = kinds(placed(user(text), stored))
    whole = "".join({"IMAGE": "<image>", "VIDEO": "<video>"}.get(part, part) for part in parts)
    assert whole == text
