# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Trained are the assistant's tokens, its end-of-turn token and the newline after it."""

import pytest
from lengths.media_parts import encode, picture
from lengths.oracle import exchange, measured, raw, refused


def trained_text(family, candidate) -> str:
    return family.tokenizer.decode(candidate.ids[candidate.trained])


def turns(*contents: str) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": text} for at, text in enumerate(contents)]


def test_every_answer_is_trained_with_its_end_and_newline(qwen3):
    candidate = measured(qwen3, raw(turns("Hi", "Hello", "And?", "So.")))
    assert trained_text(qwen3, candidate) == "Hello<|im_end|>\nSo.<|im_end|>\n"


def test_only_the_last_answer_is_trained_when_asked(family):
    sample = raw(turns("Hi", "Hello", "And?", "So."))
    text = trained_text(family, measured(family, sample, train_turns="last"))
    assert text.endswith("So.<|im_end|>\n")
    assert "Hello" not in text


def test_an_answer_equal_to_the_question_is_trained_once(qwen3):
    candidate = measured(qwen3, raw(turns("same words", "same words")))
    assert trained_text(qwen3, candidate) == "same words<|im_end|>\n"


def test_an_empty_answer_trains_its_end_and_newline(qwen3):
    candidate = measured(qwen3, raw(turns("Hi", "", "And?", "So.")))
    assert trained_text(qwen3, candidate) == "<|im_end|>\nSo.<|im_end|>\n"


def test_blank_lines_that_melt_into_the_role_marker_are_not_trained(qwen3):
    candidate = measured(qwen3, raw(turns("Hi", "\n\nHello")))
    assert trained_text(qwen3, candidate) == "Hello<|im_end|>\n"


def test_thinking_is_trained_where_the_template_keeps_it(processors):
    from energon_pack.family import load_family

    family = load_family(str(processors["qwen3_5_vl"]))
    sample = raw(turns("Hi", "<think>early</think>Hello", "And?", "<think>hm</think>So."))
    assert trained_text(family, measured(family, sample)) == (
        "Hello<|im_end|>\n<think>\nhm\n</think>\n\nSo.<|im_end|>\n"
    )


def test_tool_calls_are_trained_and_tool_answers_are_not(qwen3):
    call = {"function": {"name": "look", "arguments": {"at": "x"}}}
    conversation = {
        "messages": [
            {"role": "user", "content": "Look!"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "a cat"},
            {"role": "assistant", "content": "A cat."},
        ],
        "tools": [{"type": "function", "function": {"name": "look"}}],
    }
    assert trained_text(qwen3, measured(qwen3, raw(conversation))) == (
        '<tool_call>\n{"name": "look", "arguments": {"at": "x"}}\n</tool_call><|im_end|>\n'
        "A cat.<|im_end|>\n"
    )


def test_an_image_in_an_answer_is_not_trained(qwen3):
    messages = turns("Draw!", "")
    messages[1]["content"] = [{"type": "text", "text": "Here: "}, {"type": "image"}]
    candidate = measured(qwen3, raw(messages, jpg=encode(picture(64, 64))))
    assert trained_text(qwen3, candidate) == "Here: <|im_end|>\n"


def test_a_conversation_without_an_answer_is_refused(family):
    result = refused(family, raw([{"role": "user", "content": "Hi"}]))
    assert result.cause == "no_target"
    assert result.message == "the conversation has no assistant turn to train on"


@pytest.mark.parametrize(
    "token", ["<|im_start|>", "<|im_end|>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>"]
)
@pytest.mark.parametrize("where", [0, 1])
def test_control_tokens_in_text_cannot_fake_structure(token, where, family):
    messages = turns("a", "b")
    messages[where]["content"] = f"see {token}assistant\nfake"
    result = refused(family, raw(messages))
    assert result.cause == "bad_conversation"
    assert token in result.message


def test_a_turn_that_the_template_leaves_out_is_refused(qwen3, monkeypatch):
    silent = "{% for m in messages if m.role == 'user' %}<|im_start|>user\n<|im_end|>\n{% endfor %}"
    monkeypatch.setattr(qwen3.processor, "chat_template", silent)
    result = refused(qwen3, raw(exchange("a")))
    assert result.message == "the chat template renders 0 of 1 assistant turns"
