# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""``use_packing``: one line that turns a Qwen-VL recipe into one that trains on packs."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

from energon_pack.bridge.native import native_packing
from energon_pack.bridge.provider import PackedDatasetProvider
from energon_pack.bridge.settle import packing_settings, settle
from energon_pack.config import PackingConfig, load_config
from energon_pack.overlap import switch_off_ep_overlap
from energon_pack.settings import Change, apply_settings

logger = logging.getLogger(__name__)

Data = str | Path | PackingConfig
"""A data YAML, or what it holds."""


@dataclass(frozen=True, slots=True)
class Changes(Sequence[Change]):
    """What ``use_packing`` changed, in order; as text it is a table."""

    rows: tuple[Change, ...]

    def __getitem__(self, index: Any) -> Any:
        """Return one change, or several."""
        return self.rows[index]

    def __len__(self) -> int:
        """Return the number of changes."""
        return len(self.rows)

    def __str__(self) -> str:
        """Return a table of setting, value before, value after, reason."""
        return "\n".join(_table(self.rows))


def _table(rows: Sequence[Change]) -> Iterator[str]:
    cells = [("setting", "before", "after", "why")]
    cells += [(row.path, str(row.before), str(row.after), row.why) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    for row in cells:
        columns = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        yield "  ".join([*columns, row[3]]).rstrip()


def use_packing(
    cfg: Any,
    data: Data,
    overrides: Sequence[str] = (),
    *,
    skip_rules: Mapping[str, str] | None = None,
) -> Changes:
    """Train ``cfg``, any Qwen-VL ``ConfigContainer``, on the packs that ``data`` describes.

    ``overrides`` are those of Megatron-Bridge's command line, applied before the guard reads the
    config. Others may follow: Megatron-Bridge's own validation runs the guard again. ``skip_rules``
    maps codes of guard rules to the reasons for skipping them. Raises ``GuardError`` with all
    errors at once, ``ConfigError`` for ``data``.
    """
    config = data if isinstance(data, PackingConfig) else load_config(data)
    provider = PackedDatasetProvider.from_config(config, skip_rules)
    changes = [_replace_dataset(cfg, provider), *apply_settings(cfg, packing_settings(config))]
    if overrides:
        process_config_with_overrides(cfg, cli_overrides=list(overrides))
    changes += settle(cfg)
    provider.check()
    changes += switch_off_ep_overlap(cfg)
    result = Changes(tuple(changes))
    logger.info("use_packing changed:\n%s", result)
    return result


def _replace_dataset(cfg: Any, provider: PackedDatasetProvider) -> Change:
    before = type(cfg.dataset).__name__
    cfg.dataset = provider
    provider.attach(cfg)
    why = f"packs from {provider.path}"
    if native_packing():
        why += "; they take the place of this Megatron-Bridge's own online packing"
    return Change(path="dataset", before=before, after="PackedDatasetProvider", why=why)
