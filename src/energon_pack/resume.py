# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What must be the same for a run to continue exactly, and the refusal when it is not.

The fingerprint is a flat dict of plain values that is stored beside the loader's state. A state is
checked against the fingerprint of the new run before any worker starts, so that a mismatch is one
readable table in the trainer and not a traceback from a worker.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

from megatron.energon import SavableDataset
from megatron.energon.epathlib import EPath
from megatron.energon.savable_loader import SavableDataLoaderState, SavableDatasetCheckpoint

from energon_pack.config import PackingConfig
from energon_pack.errors import UserError
from energon_pack.family import Family

_LOGGER = logging.getLogger(__name__)

FORMAT: Final = 1
"""Raised when a release chooses or builds packs differently from the same input."""

_FREE: Final = frozenset(
    {
        # These change no pack, or stand in the fingerprint under what they lead to.
        *("path", "model", "cooker", "num_workers", "num_val_workers"),
        *("prefetch_factor", "spill_dir", "monitor"),
        *("on_overlong", "max_consecutive_skips", "resume_mismatch"),
    }
)
_FIXED: Final = frozenset(
    {"split", "data_parallel_rank", "data_parallel_size", "num_workers", "dataset_tree"}
)
"""Without these Energon cannot place the state at all."""
_NAMES_OF_FUNCTIONS: Final = frozenset({"map_fn", "sample_loader", "part_filter", "cook"})
_PLACE: Final = frozenset({"worker_config", "slice_offsets"})

Fingerprint = dict[str, Any]


class ResumeError(UserError):
    """A saved state that this run cannot continue exactly."""


class StateGuard:
    """Keeps the fingerprint of a run beside the loader states that it saves."""

    def __init__(self, now: Fingerprint, resume_mismatch: Literal["error", "warn"]) -> None:
        """Take this run's fingerprint and what to do about another one."""
        self._now = now
        self._resume_mismatch = resume_mismatch
        self._opened: SavableDataLoaderState | None = None

    def sealed(self, position: SavableDataLoaderState | None) -> dict[str, Any]:
        """Return what a checkpoint holds for the loader's position."""
        if position is not None:
            position.worker_states = [
                self._started(worker, state) for worker, state in enumerate(position.worker_states)
            ]
        return {"fingerprint": self._now, "position": position}

    def _started(self, worker: int, state: Any) -> Any:
        """Mend the state of a worker that has not started yet.

        Energon 7.4.1 then answers with no state and one pack to skip, so a resume would lose that
        worker's first pack. It is where the run was resumed, or at the very start.
        """
        if not isinstance(state, SavableDatasetCheckpoint) or state.state or not state.offset:
            return state
        if self._opened is not None:
            return self._opened.worker_states[worker]
        return SavableDatasetCheckpoint(state=None, offset=0)

    def opened(self, state: Any) -> SavableDataLoaderState | None:
        """Return the position of a saved state; raises ``ResumeError`` when it does not match."""
        if not isinstance(state, dict) or state.keys() != {"fingerprint", "position"}:
            raise ResumeError(
                f"The checkpoint holds no loader state of energon-pack but {type(state).__name__}; "
                "continuing would start the data over. Load a checkpoint with one, or start anew."
            )
        check_fingerprint(state["fingerprint"], self._now, self._resume_mismatch)
        self._opened = state["position"]
        return self._opened


def fingerprint(
    config: PackingConfig, *, split: str, family: Family, dataset: SavableDataset[Any]
) -> Fingerprint:
    """Return everything that the packs of a run depend on."""
    settings = {name: value for name, value in asdict(config).items() if name not in _FREE}
    settings["cost"] = json.dumps(settings["cost"], sort_keys=True)
    workers = dataset.worker_config
    return {
        "format": FORMAT,
        "split": split,
        "data_parallel_rank": workers.rank,
        "data_parallel_size": workers.world_size,
        "num_workers": workers.num_workers,
        "dataset": _identity(dataset.config()),
        "dataset_tree": _tree(dataset),
        "family": family.name,
        "processor": family.fingerprint,
        "cooker": config.cooker and Path(config.cooker).name,
        **settings,
    }


def check_fingerprint(
    saved: Mapping[str, Any], now: Mapping[str, Any], mode: Literal["error", "warn"]
) -> None:
    """Compare a saved fingerprint with this run's; call it before workers start.

    Raises ``ResumeError`` with a table of the fields that differ; with ``warn`` only where Energon
    cannot place the state, else the table is logged.
    """
    differing = [name for name in now if name in saved and saved[name] != now[name]]
    if not differing:
        return
    table = _table([(name, saved[name], now[name]) for name in differing])
    fixed = [name for name in differing if name in _FIXED]
    if fixed:
        raise ResumeError(
            f"The saved loader state belongs to another run and cannot be continued:\n{table}\n"
            f"Set {', '.join(fixed)} back, or start without the loader state."
        )
    if mode == "error":
        raise ResumeError(
            f"The run would not continue exactly from the saved loader state:\n{table}\n"
            "Set these back, or set resume_mismatch: warn to continue from there all the same."
        )
    _LOGGER.warning("resume_mismatch: warn: the run does not continue exactly:\n%s", table)


def _table(rows: list[tuple[str, Any, Any]]) -> str:
    cells = [("field", "saved", "now"), *((name, str(old), str(new)) for name, old, new in rows)]
    name_width, old_width = (max(len(row[i]) for row in cells) for i in (0, 1))
    return "\n".join(f"  {n:<{name_width}}  {old:<{old_width}}  {new}" for n, old, new in cells)


def _tree(dataset: Any) -> str:
    """Return the nested classes, which Energon compares when it restores."""
    inner = ", ".join(_tree(member) for member in getattr(dataset, "datasets", ()))
    return f"{type(dataset).__name__}({inner})" if inner else type(dataset).__name__


def _identity(config: dict[str, Any]) -> str:
    """Name the shards, their order and their sampling, wherever the folder now lies."""
    shards = [shard for source in _sources(config) for shard in source["shards"]]
    samples = sum(shard["count"] for shard in shards)
    indexes = [_index_id(source) for source in _sources(config)]
    text = json.dumps([_without_place(config["dataset"]), indexes], sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{len(shards)} shards, {samples} samples, {digest}"


def _sources(config: Any) -> list[dict[str, Any]]:
    """Return the parts of Energon's nested config that name shards."""
    if isinstance(config, dict):
        found = [config] if "shards" in config else []
        return found + [source for value in config.values() for source in _sources(value)]
    if isinstance(config, list | tuple):
        return [source for value in config for source in _sources(value)]
    return []


def _index_id(source: dict[str, Any]) -> str | None:
    """Return what ``energon prepare`` wrote to tell this index from any other."""
    path = EPath(source.get("_path", "")) / ".nv-meta" / "index.uuid"
    return path.read_text().strip() if path.is_file() else None


def _without_place(config: Any) -> Any:
    """Drop paths, ranks and the names of functions from Energon's nested config."""
    if isinstance(config, dict):
        return {
            key: _without_place(value)
            for key, value in config.items()
            if not key.startswith("_") and key not in _PLACE | _NAMES_OF_FUNCTIONS
        }
    if isinstance(config, list | tuple):
        return [_without_place(value) for value in config]
    return config
