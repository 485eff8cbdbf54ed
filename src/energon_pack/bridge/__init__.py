# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The one place that imports Megatron-Bridge: its dataset, its callback, and ``use_packing``."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from energon_pack.bridge.callback import PackingCallback
    from energon_pack.bridge.provider import PackedDatasetProvider
    from energon_pack.bridge.use import use_packing

_HOMES = {
    "PackedDatasetProvider": "provider",
    "PackingCallback": "callback",
    "use_packing": "use",
}

__all__ = ["PackedDatasetProvider", "PackingCallback", "use_packing"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use: ``without_gpu`` has to run before Megatron-Bridge."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
