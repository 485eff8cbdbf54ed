# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""From whatever Energon read to a conversation: raw samples, their types, and their media parts."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from megatron.energon import Sample, edataclass

from energon_pack.media import is_image
from energon_pack.reading.conversation import (
    Conversation,
    Dialogue,
    Kind,
    RawMedium,
    parse_dialogue,
)
from energon_pack.reading.demux import is_clip
from energon_pack.reading.placement import place_media
from energon_pack.reading.unpickle import load_pickle
from energon_pack.refusal import SampleError

_IMAGES = ("jpg", "jpeg", "png", "webp", "tif", "tiff", "bmp", "gif")
_CLIPS = ("mp4", "mkv", "webm", "mov", "m4v")
_PICKLED = {"jpgs": "image", "videos": "video", "mp4s": "video"}


@edataclass
class RawSample(Sample):
    """The undecoded parts of a crude sample."""

    parts: dict[str, Any]


@edataclass
class ChatMLSample(Sample):
    """A conversation with media, field by field as Megatron-Bridge's ``ChatMLSample``."""

    conversation: Any
    imgs: Any = None
    videos: Any = None
    audio: Any = None
    tools: Any = None


@edataclass
class UnreadableSample(Sample):
    """A sample that could not be read, or that does not fit its dataset's field map."""

    problem: str
    cause: str = "bad_conversation"


def read_conversation(sample: Any, *, as_bridge: bool = False) -> Conversation:
    """Return the conversation of a raw sample of any known type; raises ``SampleError``."""
    for field, read in _READERS:
        if hasattr(sample, field):
            dialogue, media = read(sample)
            return place_media(dialogue, media, as_bridge=as_bridge)
    raise SampleError(
        "bad_conversation", f"a {type(sample).__name__} does not map onto a conversation"
    )


def _read_parts(sample: RawSample) -> tuple[Dialogue, list[RawMedium]]:
    names = sorted(sample.parts, key=_natural)
    texts = [name for name in names if _extension(name) == "json"]
    if "json" not in texts and len(texts) != 1:
        has = ", ".join(names) or "no parts"
        raise SampleError("bad_conversation", f"the sample has no single json part: {has}")
    dialogue = parse_dialogue(sample.parts["json" if "json" in texts else texts[0]])
    return dialogue, [medium for name in names for medium in _media_of(name, sample.parts[name])]


def _media_of(name: str, part: Any) -> Iterator[RawMedium]:
    extension = _extension(name)
    if extension in _IMAGES:
        yield RawMedium(kind="image", data=_encoded(part, "image"), name=name)
    elif extension in _CLIPS:
        yield RawMedium(kind="video", data=_encoded(part, "video"), name=name)
    elif _PICKLED.get(extension) == "image":
        yield from _images(part)
    elif extension in _PICKLED:
        yield from _videos(part)


def _extension(name: str) -> str:
    return name.rsplit(".", 1)[-1].lower()


def _natural(name: str) -> list[tuple[int, str]]:
    """Order ``2.jpg`` before ``10.jpg``."""
    return [(int(run), "") if run.isdecimal() else (-1, run) for run in re.split(r"(\d+)", name)]


def _read_chatml(sample: Any) -> tuple[Dialogue, list[RawMedium]]:
    dialogue = parse_dialogue(sample.conversation, getattr(sample, "tools", None))
    return dialogue, [*_images(getattr(sample, "imgs", None)),
                      *_videos(getattr(sample, "videos", None))]  # fmt: skip


def _images(value: Any) -> Iterator[RawMedium]:
    """Read one encoded image, or a (pickled) list of them."""
    for image in _listed(value, is_image):
        yield RawMedium(kind="image", data=_encoded(image, "image"))


def _videos(value: Any) -> Iterator[RawMedium]:
    """Read one encoded clip, or a (pickled) list of clips and lists of encoded frames."""
    for video in _listed(value, is_clip):
        if isinstance(video, list | tuple):
            data = tuple(_encoded(frame, "frame of a video") for frame in video)
            yield RawMedium(kind="video", data=data)
        else:
            yield RawMedium(kind="video", data=_encoded(video, "video"))


def _listed(value: Any, is_one: Callable[[bytes], bool]) -> list[Any] | tuple[Any, ...]:
    if isinstance(value, bytes):
        # A pickle of protocol 2 and up starts with 0x80; those before it with a letter or bracket.
        if is_one(value) or value[:1] not in (b"\x80", b"(", b"]"):
            return [value]
        value = load_pickle(value)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise SampleError("bad_pickle", f"a media part holds a {type(value).__name__}, no list")
    return value


def _encoded(value: Any, what: str) -> bytes:
    if not isinstance(value, bytes):
        raise SampleError(
            "bad_pickle",
            f"an {what} is a {type(value).__name__}, not its encoded bytes; is decoding on?"
            if what == "image"
            else f"a {what} is a {type(value).__name__}, not encoded bytes",
        )
    return value


def _read_question(sample: Any) -> tuple[Dialogue, list[RawMedium]]:
    """Read VQA, video and multiple-choice questions; the answer is the one of most weight."""
    kind: Kind = "video" if hasattr(sample, "video") else "image"
    data = _encoded(getattr(sample, kind), kind)
    question, answer = _text(sample.context), _answer(sample)
    return _exchange(question, answer), [RawMedium(kind=kind, data=data)]


def _answer(sample: Any) -> str:
    if hasattr(sample, "choices"):
        choices = _strings(sample.choices)
        if not 0 <= sample.correct_choice_idx < len(choices):
            raise SampleError("no_target", "the question has no choice of the correct index")
        correct: int = sample.correct_choice_idx
        return choices[correct]
    answers = _strings(sample.answers)
    if not answers:
        raise SampleError("no_target", "the question has no answer to train on")
    weights = getattr(sample, "answer_weights", None)
    if weights is None:
        return answers[0]
    weights = [float(weight) for weight in weights]
    if len(weights) != len(answers):
        raise SampleError("bad_conversation", "the answers and their weights differ in number")
    return answers[max(range(len(answers)), key=weights.__getitem__)]


def _read_caption(sample: Any) -> tuple[Dialogue, list[RawMedium]]:
    medium = RawMedium(kind="image", data=_encoded(sample.image, "image"))
    return _exchange("", _text(sample.caption)), [medium]


def _read_sequence(sample: Any) -> tuple[Dialogue, list[RawMedium]]:
    """Read interleaved text and images; the last text is the answer to all before it."""
    parts, media = [], []
    for item in sample.sequence:
        if isinstance(item, bytes) and is_image(item):
            media.append(RawMedium(kind="image", data=item))
            parts.append({"type": "image"})
        else:
            parts.append({"type": "text", "text": _text(item)})
    if len(parts) < 2 or parts[-1]["type"] != "text":
        raise SampleError("no_target", "the sequence does not end in text to train on")
    return _exchange(parts[:-1], parts[-1]["text"]), media


def _exchange(question: Any, answer: str) -> Dialogue:
    return parse_dialogue(
        [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    )


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise SampleError("bad_conversation", "a text part is no UTF-8") from None
    if not isinstance(value, str):
        raise SampleError("bad_conversation", f"a text part is a {type(value).__name__}")
    return value


def _strings(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str | bytes):
        return [_text(value)]
    if not isinstance(value, list | tuple):
        raise SampleError("bad_conversation", f"the answers are a {type(value).__name__}, no list")
    return [_text(item) for item in value]


def _read_nothing(sample: UnreadableSample) -> tuple[Dialogue, list[RawMedium]]:
    raise SampleError(sample.cause, sample.problem)


_Reader = Callable[[Any], tuple[Dialogue, list[RawMedium]]]
_READERS: tuple[tuple[str, _Reader], ...] = (
    ("parts", _read_parts),
    ("conversation", _read_chatml),
    ("context", _read_question),
    ("caption", _read_caption),
    ("sequence", _read_sequence),
    ("problem", _read_nothing),
)
"""Which field tells a type of sample, and how it is read."""
