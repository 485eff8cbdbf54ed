# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Positions per sample are what Megatron-Bridge's Qwen3-VL computes on the whole packed row."""

import json
import random
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from energon_pack.assembling.positions import mrope_positions
from energon_pack.candidate import Candidate
from energon_pack.config import PackingConfig
from energon_pack.demo.processor import build_processor
from energon_pack.family import Family, load_family
from energon_pack.measure import Measurer
from energon_pack.reading.sources import ChatMLSample


@pytest.fixture(scope="module", params=["qwen3_vl", "qwen3_5_vl"])
def family(request: pytest.FixtureRequest) -> Family:
    import transformers

    root = request.config.cache.mkdir(f"processors-{transformers.__version__}")
    return load_family(str(build_processor(request.param, root / request.param)))


def sample(rng: random.Random, kinds: list[str]) -> ChatMLSample:
    places = "".join(f"<{kind}> and " for kind in kinds)
    turns = [{"role": "user", "content": places}, {"role": "assistant", "content": "a " * 9}]
    videos = [[png(rng)] * rng.randint(1, 7) for kind in kinds if kind == "video"]
    return ChatMLSample(
        __key__="key",
        __restore_key__=(),
        conversation=json.dumps(turns),
        imgs=[png(rng) for kind in kinds if kind == "image"],
        videos=videos,
    )


def png(rng: random.Random) -> bytes:
    file = BytesIO()
    Image.new("L", (rng.randint(40, 400), rng.randint(40, 400))).save(file, "PNG")
    return file.getvalue()


@pytest.mark.usefixtures("bridge")
@pytest.mark.parametrize("seed", range(4))
def test_positions_on_a_packed_row_are_megatron_bridges(seed, family):
    from megatron.bridge.models.qwen_vl.modelling_qwen3_vl.rope import get_rope_index
    from megatron.core.packed_seq_params import PackedSeqParams

    rng = random.Random(seed)
    measurer = Measurer(family, PackingConfig(path=".", model=".", seq_length=1 << 20))
    kinds = [[], ["image"], ["image", "video"], ["video"], [], ["image", "image"], ["image"]]
    candidates = [measurer.measure(sample(rng, rng.choice(kinds))) for _ in range(6)]
    assert all(isinstance(candidate, Candidate) for candidate in candidates)

    offsets = torch.tensor(np.cumsum([0, *(c.length for c in candidates)]), dtype=torch.int32)
    longest = max(candidate.length for candidate in candidates)
    grids = {
        f"{kind}_grid_thw": torch.tensor(
            [m.grid for candidate in candidates for m in candidate.media if m.kind == kind]
        ).reshape(-1, 3)
        for kind in ("image", "video")
    }
    row = np.concatenate([candidate.ids for candidate in candidates]).astype(np.int64)
    theirs, _ = get_rope_index(
        family.merge_size,
        family.image_token_id,
        family.video_token_id,
        family.vision_start_id,
        torch.from_numpy(row)[None],
        packed_seq_params=PackedSeqParams(
            qkv_format="thd",
            cu_seqlens_q=offsets,
            cu_seqlens_kv=offsets,
            max_seqlen_q=longest,
            max_seqlen_kv=longest,
        ),
        **grids,
    )
    ours = np.concatenate([mrope_positions(family, c) for c in candidates], axis=1)
    assert ours.tolist() == theirs[:, 0].tolist()
