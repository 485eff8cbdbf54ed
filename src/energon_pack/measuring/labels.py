# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
r"""Which tokens are trained, found from the token ids in one pass.

An assistant turn is ``<|im_start|>assistant\n`` to ``<|im_end|>\n``. Trained are its content, the
``<|im_end|>`` and the newline after it, as Megatron-Bridge and Qwen's own fine-tuning do; never the
role marker, and no structural or visual token inside it. Example, T for trained:

    <|im_start|> user \n Hi <|im_end|> \n <|im_start|> assistant \n Hello <|im_end|> \n
         -        -   -   -      -       -        -          -      -    T        T       T

Text cannot fake a turn: conversations with control tokens in their text are refused before.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from energon_pack.refusal import SampleError

_NEVER_TRAINED = (
    "<|im_start|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>",
    "<|video_pad|>",
)  # fmt: skip


class TurnMarker:
    """Finds the assistant turns in token ids of one tokenizer."""

    def __init__(self, tokenizer: Any, turns: Literal["all", "last"]) -> None:
        """Look the markers up in ``tokenizer``; train ``all`` assistant turns or the ``last``."""
        self._turns = turns
        self._start, self._end = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
        self._role = np.array(tokenizer.encode("assistant\n", add_special_tokens=False))
        self._newline = self._role[-1]
        self._never = np.array(tokenizer.convert_tokens_to_ids(list(_NEVER_TRAINED)))

    def trained(self, ids: NDArray[np.int32], num_turns: int) -> NDArray[np.bool_]:
        """Return (n,) bool, True where the token is trained.

        ``num_turns`` assistant turns are expected. Raises ``SampleError``: ``no_target`` when there
        is none, ``bad_conversation`` when the chat template left some out.
        """
        spans = self._spans(ids)
        if num_turns == 0:
            raise SampleError("no_target", "the conversation has no assistant turn to train on")
        if len(spans) != num_turns:
            raise SampleError(
                "bad_conversation",
                f"the chat template renders {len(spans)} of {num_turns} assistant turns",
            )
        trained = np.zeros(len(ids), dtype=np.bool_)
        for start, stop in spans if self._turns == "all" else spans[-1:]:
            trained[start:stop] = True
        trained[np.isin(ids, self._never)] = False
        return trained

    def _spans(self, ids: NDArray[np.int32]) -> list[tuple[int, int]]:
        ends = np.flatnonzero(ids == self._end)
        spans = []
        for start in np.flatnonzero(ids == self._start):
            # The token after the role is its newline, or one that an answer's leading blank lines
            # melted into with it; it belongs to the marker either way.
            content = start + 1 + len(self._role)
            if not np.array_equal(ids[start + 1 : content - 1], self._role[:-1]):
                continue
            after = ends[np.searchsorted(ends, content)] + 1
            newline = after < len(ids) and ids[after] == self._newline
            spans.append((int(content), int(after + newline)))
        return spans
