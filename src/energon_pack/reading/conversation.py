# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A stored conversation as turns, tools and what it says about its videos' time.

The JSON is a list of turns, or an object with the list under ``conversations``, ``messages`` or
``conversation`` and perhaps ``tools``, ``fps`` and ``timestamps``. Turns are role/content or
from/value. Anything else is refused with a sentence; no medium is opened.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from energon_pack.refusal import SampleError

Message = dict[str, Any]
Kind = Literal["image", "video"]

_ROLES = {"human": "user", "gpt": "assistant"}
_KNOWN_ROLES = ("system", "developer", "user", "assistant", "tool")
_LISTS = ("conversations", "messages", "conversation")
_CONTROL = re.compile(
    r"<\|(?:im_start|im_end|image_pad|video_pad|vision_start|vision_end|vision_pad)\|>"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RawMedium:
    """A stored image or video, unread."""

    kind: Kind
    data: bytes | tuple[bytes, ...]
    """Encoded image or clip, or the encoded frames of a frame list."""
    name: str | None = None
    """Name of the stored part, where it has one of its own."""
    fps: float | None = None
    """Frame list only: frames a second, where the sample says so."""
    times: tuple[float, ...] | None = None
    """Frame list only: seconds of each frame, where the sample says so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialogue:
    """Turns and tools as stored, and what the sample says about the time of its videos."""

    turns: list[Message]
    tools: list[dict[str, Any]] | None = None
    timing: tuple[Mapping[str, Any], ...] = ()
    """One for each video, or one for all of them; keys as in a typed video part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """What the chat template takes, and the media of its places in order."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None = None
    media: tuple[RawMedium, ...] = ()


def parse_dialogue(payload: Any, tools: Any = None) -> Dialogue:
    """Read a conversation from JSON text or from what it holds; raises ``SampleError``.

    ``tools`` stands for the sample's own field, which goes before the conversation's.
    """
    payload = _from_json(payload, "conversation")
    timing: tuple[Mapping[str, Any], ...] = ()
    if isinstance(payload, Mapping):
        tools = payload.get("tools") if tools is None else tools
        timing = _timing(payload)
        payload = next((payload[key] for key in _LISTS if payload.get(key) is not None), None)
    if not isinstance(payload, list) or not payload:
        raise bad_conversation("the conversation is no list of turns")
    dialogue = Dialogue(
        turns=[_message(turn, number) for number, turn in enumerate(payload, 1)],
        tools=_tools(tools),
        timing=timing,
    )
    _refuse_tokens_of(dialogue)
    return dialogue


def bad_conversation(message: str) -> SampleError:
    """Make the error for a conversation that cannot be read."""
    return SampleError("bad_conversation", message)


def _from_json(value: Any, what: str) -> Any:
    if not isinstance(value, str | bytes):
        return value
    try:
        return strict_json(value)
    except SampleError:
        raise
    except RecursionError:
        raise bad_conversation(f"the {what} is nested too deeply to be read") from None
    except UnicodeDecodeError:
        raise bad_conversation(f"the {what} is no UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise bad_conversation(f"the {what} is no JSON: {error}") from None
    except ValueError:
        raise bad_conversation(f"the {what} holds a number too long to be read") from None


def strict_json(text: str | bytes) -> Any:
    """Parse JSON in which no object has a key twice; raises ``ValueError`` or ``SampleError``."""
    return json.loads(text, object_pairs_hook=_without_repeated_keys)


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for at, key in enumerate(keys) if key in keys[:at])
        raise bad_conversation(f"an object in the JSON has the key {twice!r} twice")
    return found


def _message(turn: Any, number: int) -> Message:
    if not isinstance(turn, Mapping):
        raise bad_conversation(f"turn {number} is no object")
    message = dict(turn)
    if "from" in message:
        role = message.pop("from")
        message |= {
            "role": _ROLES.get(role, role) if isinstance(role, str) else role,
            "content": message.pop("value", ""),
        }
    if message.get("role") not in _KNOWN_ROLES:
        raise bad_conversation(
            f"turn {number} has role {message.get('role')!r}; known are {', '.join(_KNOWN_ROLES)}"
        )
    content = message.get("content")
    if content is None:
        message["content"] = ""
    elif not isinstance(content, str | list):
        raise bad_conversation(f"the content of turn {number} is neither text nor a list of parts")
    return message


def _tools(tools: Any) -> list[dict[str, Any]] | None:
    tools = _from_json(tools, "list of tools")
    if tools is None:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise bad_conversation("tools are no list of objects")
    return tools


def _timing(payload: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Spread top-level ``fps`` and ``timestamps`` over the videos."""
    fps, times = payload.get("fps"), payload.get("timestamps")
    if isinstance(fps, list):
        return tuple({"fps": value} for value in fps)
    if isinstance(times, list) and times and isinstance(times[0], list):
        return tuple({"timestamps": value} for value in times)
    return ({"fps": fps, "timestamps": times},) if fps is not None or times is not None else ()


def _refuse_tokens_of(dialogue: Dialogue) -> None:
    try:
        text = json.dumps([dialogue.turns, dialogue.tools], ensure_ascii=False)
    except RecursionError:
        raise bad_conversation("the conversation is nested too deeply to be read") from None
    refuse_control_tokens(text)


def refuse_control_tokens(text: str) -> None:
    """Raise ``SampleError`` for text that would be read as structure."""
    found = _CONTROL.search(text)
    if found:
        raise bad_conversation(
            f"the text holds the control token {found.group()}, which would be read as structure; "
            "mark places of media with typed parts or <image> and <video>"
        )
