# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of a training config by their dotted path: read, set, and written out three ways.

The path is that of Megatron-Bridge's own command line, ``model.calculate_per_token_loss``. Config
objects are reached through ``getattr`` alone, so nothing here needs Megatron-Bridge.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import yaml

_MISSING: Final = object()


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One value that a config should have, and the reason for it."""

    path: str
    """From the config container: ``model.seq_length``."""
    value: Any
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One value that was changed in a config."""

    path: str
    before: Any
    after: Any
    why: str


def read_path(cfg: Any, path: str, default: Any = None) -> Any:
    """Return the value at a dotted path, or ``default`` where an object on the way is missing."""
    value = cfg
    for name in path.split("."):
        value = getattr(value, name, _MISSING)
        if value is _MISSING or value is None:
            return default
    return value


def apply_settings(cfg: Any, settings: Iterable[Setting]) -> list[Change]:
    """Set the values on ``cfg``; return those that differed before.

    A path whose owner ``cfg`` lacks, such as ``comm_overlap`` of a config without one, is passed
    over: what does not exist needs no value.
    """
    changes = []
    for setting in settings:
        owner_path, _, name = setting.path.rpartition(".")
        owner = read_path(cfg, owner_path) if owner_path else cfg
        if owner is None or not hasattr(owner, name):
            continue
        before = getattr(owner, name)
        if before == setting.value:
            continue
        setattr(owner, name, setting.value)
        changes.append(
            Change(path=setting.path, before=before, after=setting.value, why=setting.why)
        )
    return changes


def as_python(settings: Iterable[Setting]) -> str:
    """Return the settings as assignments to ``cfg``."""
    return "\n".join(f"cfg.{setting.path} = {setting.value!r}" for setting in settings)


def as_overrides(settings: Iterable[Setting]) -> str:
    """Return the settings as overrides for Megatron-Bridge's command line."""
    return " ".join(f"{setting.path}={_override(setting.value)}" for setting in settings)


def _override(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_override(part)}" for key, part in value.items()) + "}"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def as_yaml(settings: Iterable[Setting]) -> str:
    """Return the settings as a YAML file that ``process_config_with_overrides`` merges."""
    tree: dict[str, Any] = {}
    for setting in settings:
        *parents, name = setting.path.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = setting.value
    return yaml.safe_dump(tree, sort_keys=False).rstrip()
