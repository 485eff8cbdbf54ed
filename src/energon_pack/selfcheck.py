# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A probe image, clip and text through the real processor and through this package.

Processors changed what they write between transformers releases (5.8 to 5.12: two tokens a video;
5.12 to 5.24: who chooses a size). A length that is off by one trains on wrong positions without an
error, so a difference in tokens, grids or pixels stops here, in 0.1 s, before any worker starts.
"""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import av
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from energon_pack.assembling.visual import VisualBuilder, VisualInputs
from energon_pack.candidate import Candidate, Medium
from energon_pack.config import PackingConfig
from energon_pack.decoding.clips import decode_clip
from energon_pack.errors import UserError
from energon_pack.family import Family
from energon_pack.measure import Measurer
from energon_pack.pixels import PixelReader
from energon_pack.reading.sources import RawSample
from energon_pack.refusal import SampleError

_CLIP_FRAMES, _CLIP_FPS, _WANTED_FPS = 12, 8, 4.0
_SIZE = (150, 210)
"""(height, width) of the probes in pixels: no multiple of any factor."""
_WAY_OUT = "install a transformers version that this release supports"


class SelfCheckError(UserError):
    """The measurement or the decoding differs from the installed processor."""


def self_check(family: Family, config: PackingConfig) -> None:
    """Compare measuring and decoding with the processor on three probes; raises ``SelfCheckError``.

    Checked are the processor's own rules; the sizes that ``preprocessing: bridge`` passes through
    before them do not depend on the installed transformers.
    """
    plain = PackingConfig(
        path=config.path,
        model=config.model,
        seq_length=1 << 20,
        min_pixels=config.min_pixels,
        max_pixels=config.max_pixels,
        video_fps=_WANTED_FPS,
    )
    measurer, reader = Measurer(family, plain), PixelReader(family, plain)
    picture, clip = _picture(), _clip()
    for kind, part, media in (
        ("image", {"png": picture[0]}, {"images": [picture[1]]}),
        ("video", {"mp4": clip[0]}, _video_arguments(clip[1])),
        ("text", {}, {}),
    ):
        measured, real = _both(family, measurer, kind, part, media)
        if measured.media:
            _compare_pixels(kind, _decoded(family, reader, measured.media), real)


def _both(
    family: Family, measurer: Measurer, kind: str, part: dict[str, bytes], media: dict[str, Any]
) -> tuple[Candidate, Any]:
    """Measure and process a probe; raises where tokens or grids differ."""
    place = [] if kind == "text" else [{"type": kind}]
    messages = [
        {"role": "user", "content": [*place, {"type": "text", "text": "What is shown, 图中?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "12 dots.\n\nNo more."}]},
    ]
    sample = RawSample(__key__=kind, __restore_key__=(), parts={"json": messages, **part})
    measured = measurer.measure(sample)
    try:
        text = family.processor.apply_chat_template(messages, tokenize=False)
        real = family.processor(text=[text], return_tensors="pt", **media)
    except Exception as error:
        raise SelfCheckError(
            f"transformers {_version()} fails on the probe {kind}: {error!r}; {_WAY_OUT}"
        ) from error
    grids = real.get(f"{kind}_grid_thw")
    grid = None if grids is None else tuple(np.asarray(grids)[0].tolist())
    return _require_equal(kind, measured, np.asarray(real["input_ids"][0]), grid), real


def _require_equal(kind: str, measured: Any, ids: NDArray[np.int64], grid: Any) -> Candidate:
    if isinstance(measured, Candidate):
        found = measured.media[0].grid if measured.media else None
        if np.array_equal(measured.ids, ids) and found == grid:
            return measured
        here = f"{measured.length} tokens with grid {found}"
    else:
        here = f"a refusal ({measured.message})"
    raise SelfCheckError(
        f"transformers {_version()} makes {len(ids)} tokens with grid {grid} of the probe {kind}, "
        f"the measurement {here}; {_WAY_OUT}"
    )


def _decoded(family: Family, reader: PixelReader, media: Sequence[Medium]) -> VisualInputs:
    visual = VisualBuilder(family, "float32").open(media)
    try:
        visual.add(media, reader.frames(media))
    except SampleError as error:
        cause = error.__cause__ or error
        raise SelfCheckError(
            f"the probe {media[0].kind} cannot be decoded with transformers {_version()}: "
            f"{cause!r}; {_WAY_OUT}"
        ) from error
    return visual.close()


def _compare_pixels(kind: str, visual: VisualInputs, real: Any) -> None:
    for name in ("pixel_values", "pixel_values_videos"):
        ours, theirs = getattr(visual, name), real.get(name)
        if ours is None or torch.equal(ours, theirs):
            continue
        same_shape = ours.shape == theirs.shape
        difference = f"up to {(ours - theirs).abs().max():.3g}" if same_shape else "in shape"
        raise SelfCheckError(
            f"transformers {_version()} makes pixels of the probe {kind} that differ {difference} "
            f"from those decoded here; {_WAY_OUT}"
        )


def _version() -> str:
    import transformers

    return str(transformers.__version__)


def _picture() -> tuple[bytes, Image.Image]:
    image = Image.fromarray(np.indices((*_SIZE, 3)).sum(axis=0).astype(np.uint8)[..., 0])
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue(), image


def _clip() -> tuple[bytes, torch.Tensor]:
    height, width = _SIZE
    shades = np.indices((_CLIP_FRAMES, height, width)).sum(axis=0).astype(np.uint8)
    frames = np.stack([shades, shades // 2, shades // 3], axis=-1)
    file = BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=_CLIP_FPS)
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        stream.thread_count = 1
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    data = file.getvalue()
    return data, torch.stack(list(decode_clip(data, range(_CLIP_FRAMES))))


def _video_arguments(frames: torch.Tensor) -> dict[str, Any]:
    return {
        "videos": [frames],
        "video_metadata": [{"fps": _CLIP_FPS, "total_num_frames": len(frames)}],
        "do_sample_frames": True,
        "fps": _WANTED_FPS,
    }
