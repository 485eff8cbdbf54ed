# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The public reports that need Megatron-Bridge; the others are in ``tests/test_hard_inputs.py``."""

import pytest
from hard_parts import chat, one_pass, write


@pytest.mark.parametrize("text_only", ["allow", "dummy_image"])
def test_row_19_vlm_step_accepts_a_pack_of_text(text_only, bridge, qwen3, tmp_path):
    from integration.cpu import on_cpu
    from megatron.bridge.training.vlm_step import get_batch_from_iterator
    from megatron.core.rerun_state_machine import RerunDataIterator

    folder = write(tmp_path / "data", [{"json": chat("x")}] * 2)
    (pack,) = one_pass(folder, qwen3, text_only_packs=text_only).packs
    with on_cpu():
        batch = get_batch_from_iterator(
            RerunDataIterator(iter([pack])), is_first_pp_stage=True, is_last_pp_stage=True
        )
    visual = batch["visual_inputs"]
    arguments = visual.normalized_for_model() if visual else {}
    assert len(arguments.get("pixel_values", ())) == (4 if text_only == "dummy_image" else 0)
    assert batch["input_ids"].shape[1] == pack["total_tokens"]
