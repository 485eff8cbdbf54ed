# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Switching expert-parallel communication overlap off, everywhere it can be asked for.

With it Megatron-Bridge's ``vlm_step`` builds a schedule plan, and that call passes neither the pack
boundaries nor the visual inputs: every pack would train as one text without its pictures.
"""

from typing import Any, Final

from energon_pack.settings import Change, Setting, apply_settings, read_path

_FLAGS: Final = ("overlap_moe_expert_parallel_comm", "delay_wgrad_compute")

OVERLAP_PATHS: Final = (
    *(f"model.{flag}" for flag in _FLAGS),
    "model.ep_overlap_early_attn_memory_release",
    "model.overlap_dispatch_backward_with_experts_wgrad",
    "model.moe_a2a_overlap",
    "ddp.delay_wgrad_compute",
    *(f"comm_overlap.{flag}" for flag in _FLAGS),
    *(f"comm_overlap.user_comm_overlap_cfg.{flag}" for flag in _FLAGS),
)
"""Where Megatron-Bridge 0.6.2 and Megatron Core 0.19.2 read the flags, or assert on them."""

OVERLAP_REASON: Final = (
    "the schedule plan of expert-parallel overlap passes neither pack boundaries nor visual inputs"
)


def switch_off_ep_overlap(cfg: Any) -> list[Change]:
    """Clear every overlap and delayed-gradient flag that is on; return what was changed.

    A step of its own, after the rules: call it before ``comm_overlap.setup`` copies the flags onto
    the model, so in ``use_packing``; calling it again changes nothing.
    """
    nested = (path.replace("model.", "model.transformer.", 1) for path in OVERLAP_PATHS)
    return apply_settings(
        cfg,
        [
            Setting(path=path, value=False, why=OVERLAP_REASON)
            for path in dict.fromkeys((*OVERLAP_PATHS, *nested))
            if read_path(cfg, path)
        ],
    )
