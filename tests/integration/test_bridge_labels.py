# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""``preprocessing: bridge`` gives the ids, labels and loss mask of Megatron-Bridge 0.6.2 itself."""

import json
import pickle
import random
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from energon_pack.candidate import Candidate
from energon_pack.config import PackingConfig
from energon_pack.demo.processor import FAMILIES, build_processor
from energon_pack.family import Family, load_family
from energon_pack.measure import Measurer
from energon_pack.reading.sources import ChatMLSample

COUNT = [pytest.param(25), pytest.param(120, marks=pytest.mark.full)]
"""Conversations a family."""

WORDS = (
    "dog", "图", "là\n\n12", "<b>", "{x}", "é", "🙂", "a,b", "\t", "End.", "答え",
    "<think>no</think>",
)  # fmt: skip
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    import transformers

    root = request.config.cache.mkdir(f"processors-{transformers.__version__}")
    return load_family(str(build_processor(request.param, root / request.param)))


def text(rng: random.Random, most: int = 12) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(0, most)))


def answer(rng: random.Random, most: int = 12) -> str:
    """Text without blanks at its start: Megatron-Bridge finds no turn where they melt into it."""
    return text(rng, most).lstrip()


class Case:
    """One random conversation with its media, stored as Megatron-Bridge's datasets store them."""

    def __init__(self, rng: random.Random, *, tools: bool) -> None:
        self.rng = rng
        self.images: list[bytes] = []
        self.videos: list[list[bytes]] = []
        self.tools = TOOLS if tools and rng.random() < 0.3 else None
        self.turns: list[dict[str, Any]] = []
        if rng.random() < 0.4:
            self.turns.append({"role": "system", "content": text(rng)})
        for _ in range(rng.randint(1, 3)):
            self.exchange()
        if rng.random() < 0.5 and not self.tools:
            self.turns = [self.legacy(turn) for turn in self.turns]

    def exchange(self) -> None:
        question = self.question()
        self.turns.append({"role": "user", "content": question})
        if self.tools and self.rng.random() < 0.6:
            call = {"function": {"name": "look", "arguments": {"at": text(self.rng), "n": 3}}}
            self.turns.append(
                {"role": "assistant", "content": answer(self.rng), "tool_calls": [call]}
            )
            self.turns.append({"role": "tool", "content": text(self.rng)})
        same = (
            isinstance(question, str)
            and "<" not in question
            and question[:1].strip()
            and self.rng.random() < 0.2
        )
        self.turns.append(
            {"role": "assistant", "content": question if same else answer(self.rng, 30)}
        )

    def question(self) -> Any:
        pieces: list[Any] = [text(self.rng)]
        for _ in range(self.rng.choice((0, 0, 1, 1, 2))):
            pieces += [{"type": self.medium()}, text(self.rng)]
        if self.rng.random() < 0.4:
            parts = [p if isinstance(p, dict) else {"type": "text", "text": p} for p in pieces]
            return [part for part in parts if part.get("text") != ""]
        return "".join(p if isinstance(p, str) else f"<{p['type']}>" for p in pieces)

    def medium(self) -> str:
        height, width = self.rng.randint(30, 500), self.rng.randint(30, 500)
        if self.rng.random() < 0.75:
            self.images.append(jpeg(height, width))
            return "image"
        self.videos.append([jpeg(height, width)] * self.rng.randint(1, 7))
        return "video"

    @staticmethod
    def legacy(turn: dict[str, Any]) -> dict[str, Any]:
        names = {"user": "human", "assistant": "gpt"}
        return {"from": names.get(turn["role"], turn["role"]), "value": turn["content"]}

    def sample(self, *, decoded: bool) -> ChatMLSample:
        """The sample as Megatron-Bridge reads it (pictures decoded) or as it is stored."""
        images: Any = [Image.open(BytesIO(data)) for data in self.images]
        videos: Any = [[Image.open(BytesIO(data)) for data in video] for video in self.videos]
        if not decoded:
            images, videos = pickle.dumps(self.images), pickle.dumps(self.videos)
        payload = {"messages": self.turns} | ({"tools": self.tools} if self.tools else {})
        return ChatMLSample(
            __key__="key",
            __restore_key__=("Webdataset", 0),
            conversation=json.dumps(payload),
            imgs=images if self.images else None,
            videos=videos if self.videos else None,
        )


def jpeg(height: int, width: int) -> bytes:
    file = BytesIO()
    Image.new("RGB", (width, height), (90, 120, 30)).save(file, "JPEG")
    return file.getvalue()


def labels_of(candidate: Candidate) -> np.ndarray:
    shifted = np.append(np.where(candidate.trained, candidate.ids, -100)[1:], -100)
    return shifted.astype(np.int64)


@pytest.mark.usefixtures("bridge")
@pytest.mark.parametrize("count", COUNT)
def test_ids_labels_and_loss_mask_are_megatron_bridges(count, family):
    from megatron.bridge.models.qwen_vl.data.energon import QwenVLTaskEncoder

    encoder = QwenVLTaskEncoder(
        family.tokenizer,
        family.processor,
        max_padding_length=1 << 20,
        max_num_images=None,
        max_num_frames=5,
        max_visual_tokens=None,
        pad_to_multiple_of=1,
    )
    settings = PackingConfig(
        path=".", model=".", seq_length=1 << 20, preprocessing="bridge", max_num_frames=5
    )
    measurer = Measurer(family, settings)
    rng = random.Random(11)
    for _ in range(count):
        case = Case(rng, tools=family.name != "qwen2_5_vl")
        theirs = encoder.batch([encoder.encode_sample(case.sample(decoded=True))])
        ours = measurer.measure(case.sample(decoded=False))
        assert isinstance(ours, Candidate), ours
        assert ours.ids.tolist() == theirs.input_ids[0].tolist(), case.turns
        labels = labels_of(ours)
        assert labels.tolist() == theirs.labels[0].tolist(), case.turns
        assert (labels != -100).astype(np.float32).tolist() == theirs.loss_mask[0].tolist()
        for kind in ("image", "video"):
            grids = getattr(theirs.visual_inputs, f"{kind}_grid_thw")
            here = [list(medium.grid) for medium in ours.media if medium.kind == kind]
            assert here == ([] if grids is None else grids.tolist())
