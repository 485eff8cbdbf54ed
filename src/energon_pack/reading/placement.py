# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Media into their places in a conversation.

1. A place is a typed part (``{"type": "image"}``) or ``<image>`` / ``<video>`` in text.
   Example: ``"<image>Which is older, this or <image>?"`` becomes image, text, image, text.
2. Media without any place come first in the first user turn, images before videos.
3. Media go to the places of their kind in order, or by name where a place has the name of a part;
   then all of that kind must.

It costs microseconds.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from energon_pack.reading.conversation import (
    Conversation,
    Dialogue,
    Message,
    RawMedium,
    bad_conversation,
    refuse_control_tokens,
)
from energon_pack.refusal import SampleError

_PLACE = re.compile("<(image|video)>")


def place_media(
    dialogue: Dialogue, stored: Sequence[RawMedium], *, as_bridge: bool = False
) -> Conversation:
    """Put the stored media into their places; raises ``SampleError``.

    ``as_bridge`` follows Megatron-Bridge 0.6.2: media first in each turn, spaces beside a
    placeholder stripped, placeholders in typed text parts left as text.
    """
    messages = [
        message | {"content": _parts(message["content"], as_bridge=as_bridge)}
        for message in dialogue.turns
    ]
    _place_homeless(messages, stored)
    if as_bridge:
        for message in messages:
            if isinstance(message["content"], list):
                message["content"].sort(key=lambda part: part["type"] == "text")
    places = [
        part
        for message in messages
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] != "text"
    ]
    for message in messages:
        _refuse_joined_tokens(message["content"])
    media = _assign(places, stored, dialogue.timing)
    return Conversation(
        messages=[_without_references(message) for message in messages],
        tools=dialogue.tools,
        media=tuple(media),
    )


def _parts(content: str | list[Any], *, as_bridge: bool) -> str | list[Message]:
    if isinstance(content, str):
        return _split(content, strip=" " if as_bridge else None) if "<" in content else content
    parts: list[Message] = []
    for part in map(_typed, content):
        if part["type"] == "text" and not as_bridge:
            text = _split(part["text"], strip=None)
            parts += [part] if isinstance(text, str) else text
        else:
            parts.append(part)
    return parts


def _split(text: str, *, strip: str | None) -> str | list[Message]:
    """Cut ``text`` at its placeholders; text without any stays as it is."""
    pieces = _PLACE.split(text)
    if len(pieces) == 1:
        return text
    parts: list[Message] = []
    for at, piece in enumerate(pieces):
        if at % 2:
            parts.append({"type": piece})
        elif piece:
            parts.append({"type": "text", "text": piece.strip(strip) if strip else piece})
    return parts


def _typed(part: Any) -> Message:
    if not isinstance(part, Mapping):
        raise bad_conversation("a part of a turn is no object with a type")
    kind = part.get("type")
    if kind in ("image", "image_url") or "image" in part or "image_url" in part:
        return {**part, "type": "image"}
    if kind == "video" or "video" in part:
        return {**part, "type": "video"}
    if not isinstance(part.get("text"), str):
        raise bad_conversation(
            f"a part of type {kind!r} has no text; known types are text, image and video"
        )
    return {"type": "text", "text": part["text"]}


def _place_homeless(messages: list[Message], stored: Sequence[RawMedium]) -> None:
    """Put the media of a kind that has no place at all first in the first user turn."""
    placed = {
        part["type"]
        for message in messages
        if isinstance(message["content"], list)
        for part in message["content"]
    }
    homeless = [
        {"type": kind}
        for kind in ("image", "video")
        if kind not in placed
        for medium in stored
        if medium.kind == kind
    ]
    if not homeless:
        return
    turn = next((message for message in messages if message["role"] == "user"), messages[0])
    content = turn["content"]
    turn["content"] = homeless + (
        [{"type": "text", "text": content}] if isinstance(content, str) else content
    )


def _refuse_joined_tokens(content: str | list[Message]) -> None:
    """Refuse control tokens that parts of text make only together."""
    if isinstance(content, list):
        refuse_control_tokens("".join(part["text"] for part in content if part["type"] == "text"))


def _assign(
    places: list[Message], stored: Sequence[RawMedium], timing: Sequence[Mapping[str, Any]]
) -> list[RawMedium]:
    for kind in ("image", "video"):
        wanted = sum(place["type"] == kind for place in places)
        found = sum(medium.kind == kind for medium in stored)
        if wanted != found:
            raise SampleError(
                "media_mismatch",
                f"the conversation places {wanted} {kind}(s), the sample holds {found}",
            )
    queues = {kind: iter(_ordered(kind, places, stored)) for kind in ("image", "video")}
    return _timed(places, [next(queues[place["type"]]) for place in places], timing)


def _ordered(kind: str, places: list[Message], stored: Sequence[RawMedium]) -> list[RawMedium]:
    """Return the media of one kind as their places want them."""
    media = [medium for medium in stored if medium.kind == kind]
    named = {medium.name: medium for medium in media if medium.name is not None}
    names = [_reference(place) for place in places if place["type"] == kind]
    if not named.keys() & set(names):
        return media
    wanted = [name or "one without a name" for name in names]
    if len(named) < len(media) or sorted(wanted) != sorted(named):
        raise SampleError(
            "media_mismatch",
            f"the {kind}s that the conversation names are {', '.join(wanted)}; "
            f"the sample holds {', '.join(named)}",
        )
    return [named[name] for name in wanted]


def _timed(
    places: list[Message], media: list[RawMedium], timing: Sequence[Mapping[str, Any]]
) -> list[RawMedium]:
    """Tell each frame list its time: the typed part's own, else the sample's."""
    videos = [at for at, medium in enumerate(media) if medium.kind == "video"]
    if len(timing) > 1 and len(timing) != len(videos):
        raise SampleError(
            "bad_video", f"the sample has times for {len(timing)} videos and {len(videos)} videos"
        )
    for number, at in enumerate(videos):
        common = timing[number if len(timing) > 1 else 0] if timing else {}
        part = places[at]
        fps = part.get("fps", part.get("sample_fps", common.get("fps")))
        times = part.get("timestamps", common.get("timestamps"))
        media[at] = replace(media[at], fps=_fps(fps), times=_times(times))
    return media


def _fps(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise SampleError("bad_video", f"the sample's fps is {value!r}, no number above 0")
    return float(value)


def _times(value: Any) -> tuple[float, ...] | None:
    if value is None:
        return None
    try:
        times = tuple(map(float, value))
    except (TypeError, ValueError, OverflowError):
        raise SampleError("bad_video", "the sample's timestamps are no list of seconds") from None
    if not all(0 <= early <= late < math.inf for early, late in pairwise((0.0, *times))):
        raise SampleError("bad_video", "the sample's timestamps do not rise from 0 seconds on")
    return times


def _reference(place: Message) -> str | None:
    value = place.get(place["type"])
    return value if isinstance(value, str) else None


def _without_references(message: Message) -> Message:
    """Keep of each part what the chat template reads."""
    if isinstance(message["content"], str):
        return message
    parts = [
        part if part["type"] == "text" else {"type": part["type"]} for part in message["content"]
    ]
    return message | {"content": parts}
