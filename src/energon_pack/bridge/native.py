# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Does this Megatron-Bridge pack Qwen-VL samples online itself? Releases from 0.7 on do."""

from megatron.bridge.models.qwen_vl.data.energon import QwenVLTaskEncoder
from megatron.energon import TaskEncoder


def native_packing() -> bool:
    """Tell whether its Qwen-VL task encoder chooses samples for packs.

    Then ``dataset.packing_buffer_size`` of an ``EnergonDatasetConfig`` switches that path on, where
    0.6.2 fails. Ours has the same name on another class, so one config never has both.
    """
    return bool(QwenVLTaskEncoder.select_samples_to_pack is not TaskEncoder.select_samples_to_pack)
