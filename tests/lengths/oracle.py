# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What the real processor makes of a sample, and samples to measure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from energon_pack.candidate import Candidate, Refused
from energon_pack.config import PackingConfig
from energon_pack.family import Family
from energon_pack.measure import Measurer
from energon_pack.reading.sources import RawSample


def config(**changes: Any) -> PackingConfig:
    return PackingConfig(**({"path": ".", "model": ".", "seq_length": 1 << 20} | changes))


def exchange(*question: Any, answer: str = "An answer.") -> list[dict[str, Any]]:
    """One question, of text and of ``image`` / ``video`` places, and its answer."""
    parts = [
        {"type": part} if part in ("image", "video") else {"type": "text", "text": part}
        for part in question
    ]
    return [{"role": "user", "content": parts}, {"role": "assistant", "content": answer}]


def raw(conversation: Any, **parts: Any) -> RawSample:
    """A crude sample; underscores of part names stand for dots (``0_jpg``)."""
    named = {name.strip("_").replace("_", "."): part for name, part in parts.items()}
    text = conversation if isinstance(conversation, bytes) else json.dumps(conversation).encode()
    return RawSample(
        __key__="key", __restore_key__=("Webdataset", 0), parts={"json": text, **named}
    )


def measure(family: Family, sample: Any, **settings: Any) -> Candidate | Refused:
    return Measurer(family, config(**settings)).measure(sample)


def measured(family: Family, sample: Any, **settings: Any) -> Candidate:
    result = measure(family, sample, **settings)
    assert isinstance(result, Candidate), result
    return result


def refused(family: Family, sample: Any, **settings: Any) -> Refused:
    result = measure(family, sample, **settings)
    assert isinstance(result, Refused), result
    return result


def processed(
    family: Family, messages: Sequence[Mapping[str, Any]], *, tools: Any = None, **media: Any
) -> Mapping[str, Any]:
    """The processor's own output for typed messages."""
    text = family.processor.apply_chat_template(list(messages), tools=tools, tokenize=False)
    return family.processor(text=[text], return_tensors="np", **media)


def frames_as_video(pictures: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(pictures)).permute(0, 3, 1, 2)


def assert_same(candidate: Candidate, real: Mapping[str, Any]) -> None:
    """Ids and grids are the processor's own."""
    assert candidate.ids.tolist() == real["input_ids"][0].tolist()
    for kind in ("image", "video"):
        grids = [list(medium.grid) for medium in candidate.media if medium.kind == kind]
        assert grids == np.asarray(real.get(f"{kind}_grid_thw", [])).tolist()
