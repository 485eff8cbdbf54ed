# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Online sequence packing for Qwen-VL training on Megatron-Energon."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from energon_pack.config import ConfigError, MonitorConfig, PackingConfig, load_config
    from energon_pack.encoder import PackingTaskEncoder
    from energon_pack.loader import PackLoader, build_loader
    from energon_pack.stats import PackInfo, StreamInfo

__version__ = "0.1.0"

_HOMES = {
    "ConfigError": "config",
    "MonitorConfig": "config",
    "PackInfo": "stats",
    "PackLoader": "loader",
    "PackingConfig": "config",
    "PackingTaskEncoder": "encoder",
    "StreamInfo": "stats",
    "build_loader": "loader",
    "load_config": "config",
}

__all__ = [
    "ConfigError",
    "MonitorConfig",
    "PackInfo",
    "PackLoader",
    "PackingConfig",
    "PackingTaskEncoder",
    "StreamInfo",
    "build_loader",
    "load_config",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that ``import energon_pack`` loads no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
