# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What measuring a sample costs, against decoding and processing it with the real processor.

    python bench/measure.py [--family qwen3_vl] [--repeat 30]

Medians on one thread; 60 words are asked and 200 answered, as in a usual instruction sample.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import av
import numpy as np
import torch
from PIL import Image

from energon_pack.assembling.positions import mrope_positions
from energon_pack.config import PackingConfig
from energon_pack.demo.processor import FAMILIES, build_processor
from energon_pack.family import Family, load_family
from energon_pack.measure import Measurer
from energon_pack.reading.sources import RawSample


def main() -> None:
    """Print one line a sample and family."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--family", choices=FAMILIES, action="append")
    parser.add_argument("--repeat", type=int, default=30)
    parser.add_argument("--processors", type=Path, default=Path(tempfile.gettempdir()) / "bench")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'family':12} {'sample':28} {'tokens':>7} {'measure ms':>11} {'process ms':>11} ratio")
    for name in arguments.family or FAMILIES:
        family = load_family(str(build_processor(name, arguments.processors / name)))
        for label, kind, data in samples():
            compare(family, label, kind, data, arguments.repeat)


def samples() -> list[tuple[str, str, bytes]]:
    """Encoded media: a usual photo, a large one, and clips of the codecs that people store."""
    photo = [("JPEG 1024x768", jpeg(768, 1024)), ("JPEG 3840x2160", jpeg(2160, 3840))]
    clips = [
        ("H.264 1280x720, 16 frames", clip("libx264", 16)),
        ("H.264 1280x720, 240 frames", clip("libx264", 240)),
        ("VP9 1280x720, 16 frames", clip("libvpx-vp9", 16)),
    ]
    return [(label, "jpg", data) for label, data in photo] + [
        (label, "mp4", data) for label, data in clips
    ]


def compare(family: Family, label: str, part: str, data: bytes, repeat: int) -> None:
    """Print the cost of measuring and of processing one sample."""
    kind = "image" if part == "jpg" else "video"
    question = "word " * 60
    messages = [
        {"role": "user", "content": [{"type": kind}, {"type": "text", "text": question}]},
        {"role": "assistant", "content": "and so on it went " * 40},
    ]
    sample = RawSample(
        __key__="0", __restore_key__=(), parts={"json": json.dumps(messages).encode(), part: data}
    )
    config = PackingConfig(path=".", model=".", seq_length=1 << 20)
    measurer = Measurer(family, config)
    candidate = measurer.measure(sample)
    measuring = milliseconds(lambda: measurer.measure(sample), repeat)
    process = process_image if kind == "image" else process_clip
    processing = milliseconds(lambda: process(family, messages, data), max(3, repeat // 10))
    print(
        f"{family.name:12} {label:28} {candidate.length:7} {measuring:11.2f} {processing:11.1f} "
        f"{processing / measuring:5.0f}"
        f"   (positions {milliseconds(lambda: mrope_positions(family, candidate), repeat):.2f} ms)"
    )


def milliseconds(run: Callable[[], Any], repeat: int) -> float:
    """Return the median wall time of ``run``."""
    run()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1000 * median(times)


def process_image(family: Family, messages: list[dict[str, Any]], data: bytes) -> Any:
    """Decode and process as a task encoder without deferral does."""
    text = family.processor.apply_chat_template(messages, tokenize=False)
    image = Image.open(BytesIO(data)).convert("RGB")
    return family.processor(text=[text], images=[image], return_tensors="pt")


def process_clip(family: Family, messages: list[dict[str, Any]], data: bytes) -> Any:
    """Decode every frame and process those that the processor samples."""
    text = family.processor.apply_chat_template(messages, tokenize=False)
    with av.open(BytesIO(data)) as container:
        rate = float(container.streams.video[0].average_rate)
        frames = np.stack([f.to_ndarray(format="rgb24") for f in container.decode(video=0)])
    return family.processor(
        text=[text],
        videos=[torch.from_numpy(frames).permute(0, 3, 1, 2)],
        video_metadata=[{"fps": rate, "total_num_frames": len(frames)}],
        do_sample_frames=True,
        fps=2.0,
        return_tensors="pt",
    )


def scene(height: int, width: int) -> np.ndarray:
    """Return soft shapes under fine grain, which encode to the size of a photo."""
    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (9, 12, 3), dtype=np.uint8)
    soft = np.array(Image.fromarray(coarse).resize((width, height))).astype(np.int16)
    return (soft + random.integers(-8, 8, soft.shape)).clip(0, 255).astype(np.uint8)


def jpeg(height: int, width: int) -> bytes:
    """Encode the scene at quality 90."""
    file = BytesIO()
    Image.fromarray(scene(height, width)).save(file, "JPEG", quality=90)
    return file.getvalue()


def clip(codec: str, count: int) -> bytes:
    """Encode the scene drifting sideways at 30 frames a second."""
    file, still = BytesIO(), scene(720, 1280)
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream(codec, rate=30)
        stream.height, stream.width, stream.pix_fmt = 720, 1280, "yuv420p"
        for at in range(count):
            pixels = np.roll(still, 4 * at, axis=1)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


if __name__ == "__main__":
    main()
