# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Conversations of one to three turns that say truly what is shown and what was changed.

One function a kind of sample: it draws media and edits from ``chance`` and returns the sample's
files. Example of ``photo``: the cat's picture, its left half, blurred, 640 pixels wide, and
"It shows a tabby cat looking to one side. This is its left half, blurred."
"""

import io
import json
import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import av
from PIL import Image

from energon_pack.demo import edits
from energon_pack.demo.media import CLIPS, PHOTOS, Source, load_clip, load_photo

Parts = dict[str, bytes]
"""File extension to content: the files of one sample in a shard."""

Turn = tuple[list[Any], str]
"""A question in parts, text or typed, and its answer."""

IMAGE: Final = {"type": "image"}
VIDEO: Final = {"type": "video"}

FRAME_LIST_FPS: Final = 2.0
"""Frames a second of the stored frame lists, about; their conversations say the true number."""


def text_only(chance: random.Random) -> Parts:
    """Questions about token counts, answered with the numbers."""
    turns = []
    for _ in range(chance.randint(1, 3)):
        width, height = (32 * chance.randint(8, 40) for _ in range(2))
        answer = (
            "Patches of 16 pixels are merged two by two, so a token covers 32 by 32 pixels. "
            f"{width} / 32 is {width // 32}, {height} / 32 is {height // 32}: "
            f"the picture costs {width * height // 1024} tokens."
        )
        turns.append(([f"A picture has {width} by {height} pixels. What does it cost?"], answer))
    return _conversation(turns)


def photo(chance: random.Random) -> Parts:
    """One photo, edited, and up to three turns about it."""
    source = chance.choice(PHOTOS)
    image, words = _edited_photo(source, chance)
    first = ([IMAGE, "What does the picture show?"], f"It shows {source.subject}. {words}")
    more = [
        (["How large is it?"], f"It has {image.width} by {image.height} pixels."),
        (["Who made the original?"], f"The credit says: {source.credit}."),
    ]
    return _conversation([first, *chance.sample(more, chance.randint(0, 2))], jpg=_jpeg(image))


def photos(chance: random.Random) -> Parts:
    """Two to four photos in one question."""
    sources = chance.sample(PHOTOS, chance.randint(2, 4))
    edited = [_edited_photo(source, chance) for source in sources]
    described = " ".join(
        f"Picture {number} shows {source.subject}. {words}"
        for number, (source, (_, words)) in enumerate(zip(sources, edited, strict=True), 1)
    )
    turns = [([*[IMAGE] * len(sources), "Describe the pictures in order."], described)]
    if chance.random() < 0.5:
        largest = max(range(len(edited)), key=lambda place: edited[place][0].width)
        turns.append((["Which one is the widest?"], f"Picture {largest + 1} is the widest."))
    images = [_jpeg(image) for image, _ in edited]
    if chance.random() < 0.5:
        return _conversation(turns, jpgs=pickle.dumps(images))
    named = {f"{place}.jpg" if place else "jpg": data for place, data in enumerate(images)}
    return _conversation(turns, **named)


def clip(chance: random.Random) -> Parts:
    """A clip as an H.264 file."""
    edited = _edit_clip(chance)
    return _conversation(edited.turns(VIDEO), mp4=_mp4(edited.frames, edited.fps))


def frames(chance: random.Random) -> Parts:
    """A clip as a pickled list of JPEG frames, as people store frames that were sampled before."""
    edited = _edit_clip(chance, stored_fps=FRAME_LIST_FPS)
    stored = [_jpeg(frame) for frame in edited.frames]
    return _conversation(edited.turns({**VIDEO, "fps": edited.fps}), videos=pickle.dumps([stored]))


KINDS: Final[dict[str, tuple[Callable[[random.Random], Parts], ...]]] = {
    "image": (photo, photo, photos),
    "video": (clip,),
    "frames": (frames,),
    "mixed": (text_only, photo, photo, photo, photos, photos, clip, frames),
}
"""Kind of dataset: the samples it deals out in turn."""


def _conversation(turns: Sequence[Turn], **parts: bytes) -> Parts:
    messages = []
    for question, answer in turns:
        content = [
            {"type": "text", "text": part} if isinstance(part, str) else part for part in question
        ]
        messages.append({"role": "user", "content": content})
        messages.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
    return {"json": json.dumps(messages).encode(), **parts}


def _edited_photo(source: Source, chance: random.Random) -> tuple[Image.Image, str]:
    part, edit = edits.pick(chance)
    longest = 16 * chance.randint(16, 56)
    image = edit.apply(edits.scale(edits.crop(load_photo(source), part), longest))
    return image, f"You see {part}, {edit.words}."


@dataclass(frozen=True, kw_only=True, slots=True)
class _EditedClip:
    """A piece of a clip, and what there is to say about it."""

    frames: list[Image.Image]
    fps: float
    description: str
    direction: str | None
    """``forwards`` or ``backwards``, where it is asked for."""

    def turns(self, place: dict[str, Any]) -> list[Turn]:
        turns: list[Turn] = [([place, "What happens in the clip?"], self.description)]
        if self.direction:
            answer = f"It runs {self.direction}."
            turns.append((["Does it run forwards or backwards?"], answer))
        return turns


def _edit_clip(chance: random.Random, stored_fps: float | None = None) -> _EditedClip:
    source = chance.choice(CLIPS)
    part, edit = edits.pick(chance)
    everything, fps = load_clip(source)
    count = min(len(everything), round(chance.uniform(1.5, 5.0) * fps))
    start = chance.randint(0, len(everything) - count)
    step = round(fps / stored_fps) if stored_fps else 1
    longest = 16 * chance.randint(14, 30)
    shown = [
        edit.apply(edits.scale(edits.crop(frame, part), longest))
        for frame in everything[start : start + count : step]
    ]
    backwards = chance.random() < 0.3
    direction = "backwards" if backwards else "forwards"
    return _EditedClip(
        frames=shown[::-1] if backwards else shown,
        fps=fps / step,
        description=f"It shows {source.subject}. You see {part}, {edit.words}.",
        direction=direction if chance.random() < 0.5 else None,
    )


def _jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=88)
    return buffer.getvalue()


def _mp4(shown: list[Image.Image], fps: float) -> bytes:
    width, height = (edge // 2 * 2 for edge in shown[0].size)
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=round(fps), options={"preset": "veryfast"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.thread_count = 1  # the same bytes on every machine
        for image in shown:
            frame = av.VideoFrame.from_image(image.crop((0, 0, width, height)))
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return buffer.getvalue()
