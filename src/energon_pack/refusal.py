# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Why a sample does not reach a pack. Each cause is a slug that counts are kept under."""

from typing import Final

CAUSES: Final[dict[str, str]] = {
    "overlong": "longer than seq_length",
    "too_many_images": "more images than max_num_images",
    "too_many_visual_tokens": "more visual tokens than max_visual_tokens",
    "bad_conversation": "conversation that cannot be read",
    "bad_image": "image that cannot be read",
    "bad_video": "video that cannot be read",
    "bad_pickle": "pickled part that holds more than lists of bytes, text and numbers",
    "media_mismatch": "placeholders and media differ in number",
    "bad_size": "image or frame size that the model's resize refuses",
    "too_large": "image or frame above the pixel limit",
    "no_target": "no assistant turn to train on",
    "decode_failed": "media that broke while it was decoded",
    "length_mismatch": "decoded sample whose length is not the measured one",
    "cooker_failed": "sample that the cooker could not turn into a conversation",
    "cooker_skipped": "sample that the cooker left out",
    "unreadable": "sample that could not be read from its shard",
    "unreadable_on_resume": "candidate that could not be read again when the run resumed",
    "unexpected": "error that no rule names",
}


class SampleError(ValueError):
    """A fault of one sample. It costs that sample only and is counted under ``cause``."""

    def __init__(self, cause: str, message: str, *, length: int | None = None) -> None:
        """Keep the cause (a key of ``CAUSES``), one sentence, and the length in tokens if known."""
        assert cause in CAUSES, cause
        super().__init__(message)
        self.cause = cause
        self.length = length
