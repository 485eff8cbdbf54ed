# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What the installed processor says about its model family: nothing here is defaulted."""

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from energon_pack.errors import UserError

FamilyName = Literal["qwen2_5_vl", "qwen3_vl", "qwen3_5_vl"]

_SMALLEST_QWEN3_5_VOCABULARY = 200_000
"""Qwen3-VL has 151,669 tokens, Qwen3.5 has 248,077; both come with the same processor class."""


class ProcessorError(UserError):
    """A processor that cannot be loaded, or one whose lengths are not known here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A Qwen-VL processor and the numbers that lengths and patches follow from."""

    name: FamilyName
    processor: Any
    """Hugging Face processor; its ``size`` already has the configured pixel bounds."""
    tokenizer: Any
    patch_size: int
    """Side of a patch in pixels."""
    merge_size: int
    """Patches along the side of one visual token."""
    temporal_patch_size: int
    """Frames in one temporal patch."""
    image_token_id: int
    video_token_id: int
    vision_start_id: int
    vision_end_id: int
    image_mean: tuple[float, float, float]
    """Per channel, of images and video frames alike, after ``rescale_factor``."""
    image_std: tuple[float, float, float]
    rescale_factor: float
    fingerprint: str
    """Hash of processor, tokenizer, template and transformers version."""

    @property
    def factor(self) -> int:
        """Pixels along the side of one visual token."""
        return self.patch_size * self.merge_size

    @property
    def uses_mrope_positions(self) -> bool:
        """Whether the model takes the batch's mRoPE positions; Qwen2.5-VL makes its own."""
        return self.name != "qwen2_5_vl"


def load_family(
    model: str, *, min_pixels: int | None = None, max_pixels: int | None = None
) -> Family:
    """Load the processor of ``model``, a Hugging Face id or a folder, with the given pixel bounds.

    One bound may be given alone. For Qwen2.5-VL they also bound video frames, as they do when
    given to the processor. Raises ``ProcessorError``.
    """
    processor = _load_processor(model)
    name = _family_name(processor, model)
    _set_bounds(processor.image_processor, min_pixels, max_pixels)
    if name == "qwen2_5_vl":
        _set_bounds(processor.video_processor, min_pixels, max_pixels)
    _check_processing(processor, model)
    return _describe(name, processor)


def _load_processor(model: str) -> Any:
    if "/" not in model and not Path(model).exists():
        message = (
            f"model {model!r} is no folder here, and a name on the Hugging Face hub has an owner, "
            "such as Qwen/Qwen3-VL-8B-Instruct; set model to one of the two"
        )
        raise ProcessorError(message)
    from transformers import AutoProcessor

    try:
        return AutoProcessor.from_pretrained(model)
    except Exception as error:
        logging.getLogger(__name__).debug("loading %s failed", model, exc_info=True)
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        message = f"no processor could be loaded from {model!r}: {reason}"
        raise ProcessorError(message) from error


def _family_name(processor: Any, model: str) -> FamilyName:
    kind = type(processor).__name__
    if kind == "Qwen2_5_VLProcessor":
        return "qwen2_5_vl"
    if kind == "Qwen3VLProcessor":
        wide = len(processor.tokenizer) >= _SMALLEST_QWEN3_5_VOCABULARY
        return "qwen3_5_vl" if wide else "qwen3_vl"
    message = (
        f"{model!r} has a {kind}; lengths are known for Qwen2.5-VL, Qwen3-VL and Qwen3.5-VL "
        "processors only"
    )
    raise ProcessorError(message)


def _set_bounds(part: Any, min_pixels: int | None, max_pixels: int | None) -> None:
    """Bound ``part``'s resize; the processors' own arguments ignore a bound given alone."""
    least = part.size["shortest_edge"] if min_pixels is None else min_pixels
    most = part.size["longest_edge"] if max_pixels is None else max_pixels
    if least > most:
        message = (
            f"min_pixels {least} is above max_pixels {most}; the bound that is not given is the "
            "processor's own, so set both"
        )
        raise ProcessorError(message)
    part.size = type(part.size)(shortest_edge=least, longest_edge=most)


def _check_processing(processor: Any, model: str) -> None:
    image, video = processor.image_processor, processor.video_processor
    if type(image).__name__ != "Qwen2VLImageProcessor":
        message = (
            f"{model!r} loads a {type(image).__name__}; only the torchvision image processor is "
            "followed, because the Pillow one gives other pixels: install torchvision and set no "
            "use_fast: false"
        )
        raise ProcessorError(message)
    for switch in ("do_resize", "do_rescale", "do_normalize", "do_convert_rgb"):
        if not (getattr(image, switch) and getattr(video, switch)):
            raise ProcessorError(f"{model!r} sets {switch} to false, which is not followed here")
    if getattr(video, "cap_pixels_per_frame", None):
        raise ProcessorError(f"{model!r} sets cap_pixels_per_frame, which is not followed here")
    shared = ("patch_size", "merge_size", "temporal_patch_size", "rescale_factor", "resample",
              "image_mean", "image_std")  # fmt: skip
    for field in shared:
        if _plain(getattr(image, field)) != _plain(getattr(video, field)):
            message = (
                f"{model!r} has {field} {getattr(image, field)} for images and "
                f"{getattr(video, field)} for video; they must be equal"
            )
            raise ProcessorError(message)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


def _describe(name: FamilyName, processor: Any) -> Family:
    image, tokenizer = processor.image_processor, processor.tokenizer
    start, end = tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|vision_end|>"])
    return Family(
        name=name,
        processor=processor,
        tokenizer=tokenizer,
        patch_size=image.patch_size,
        merge_size=image.merge_size,
        temporal_patch_size=image.temporal_patch_size,
        image_token_id=processor.image_token_id,
        video_token_id=processor.video_token_id,
        vision_start_id=start,
        vision_end_id=end,
        image_mean=tuple(image.image_mean),
        image_std=tuple(image.image_std),
        rescale_factor=image.rescale_factor,
        fingerprint=_fingerprint(processor),
    )


def _fingerprint(processor: Any) -> str:
    import transformers

    digest = hashlib.sha256()
    for part in (
        transformers.__version__,
        processor.image_processor.to_json_string(),
        processor.video_processor.to_json_string(),
        processor.tokenizer.backend_tokenizer.to_str(),
        str(processor.chat_template),
    ):
        digest.update(part.encode())
    return digest.hexdigest()
