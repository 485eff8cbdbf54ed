# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Where metrics go: log, JSON lines, TensorBoard, Weights & Biases; Prometheus in its own file.

A sink takes a flat record of numbers and text (``snapshot.py``) and shows what it can. It opens
its files and connections with the first record, so that a worker forked before has none of them.
"""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, Protocol

from energon_pack.config import MonitorConfig
from energon_pack.monitor.columns import total_text
from energon_pack.monitor.snapshot import from_record, numeric
from energon_pack.optional import require

_log = logging.getLogger(__name__)

_LOG_EVERY_S: Final = 60


class Sink(Protocol):
    """Takes records; one that raises costs its own record and nothing else."""

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Take the record of one step."""

    def close(self) -> None:
        """Write what is left and let go of files and connections."""


class FanOut:
    """Passes records to several sinks. A sink that fails is named once and tried again."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        """Pass records to ``sinks`` in this order."""
        self._sinks = list(sinks)
        self._failing: set[int] = set()

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Pass a record on; never raises."""
        for index, sink in enumerate(self._sinks):
            try:
                sink.log(metrics, step)
                self._failing.discard(index)
            except Exception as error:  # noqa: BLE001 - a sink must not stop training
                self._complain(index, error)

    def close(self) -> None:
        """Close all sinks; never raises."""
        for index, sink in enumerate(self._sinks):
            try:
                sink.close()
            except Exception as error:  # noqa: BLE001
                self._complain(index, error)

    def _complain(self, index: int, error: Exception) -> None:
        if index not in self._failing:
            name = type(self._sinks[index]).__name__
            _log.warning("%s failed and will be tried again: %r", name, error)
        self._failing.add(index)


class LogSink:
    """A line a minute through ``logging``."""

    def __init__(self) -> None:
        self._next = 0.0

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Log the totals when a minute has passed."""
        if time.monotonic() >= self._next or metrics.get("ended"):
            self._next = time.monotonic() + _LOG_EVERY_S
            _log.info("%d packs, memory of %s", step, total_text(from_record(metrics)))

    def close(self) -> None:
        """Nothing is open."""


class JsonLinesSink:
    """One record a line, appended; ``energon-pack top`` and ``plot`` read it."""

    def __init__(self, path: Path) -> None:
        """Append to ``path``."""
        self._path = path
        self._file: IO[str] | None = None

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Append a line and flush it, so that a killed run has it."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8")
        self._file.write(json.dumps({**metrics, "step": step}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class TensorBoardSink:
    """Scalars in event files, with wall time and pack count."""

    def __init__(self, folder: Path) -> None:
        """Write into ``folder``. Raises ``MissingPackageError`` without tensorboard."""
        self._writer_class = require("tensorboard.summary", "tensorboard").Writer
        self._folder = folder
        self._writer: Any = None

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Write each number as ``memory/NAME``."""
        if self._writer is None:
            self._writer = self._writer_class(str(self._folder))
        for key, value in numeric(metrics):
            self._writer.add_scalar(f"memory/{key}", value, step, wall_time=metrics.get("time"))
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()


class WandbSink:
    """A Weights & Biases run of its own beside the trainer's, one a rank in one group."""

    def __init__(self, project: str, rank: int) -> None:
        """Log to ``project``. Raises ``MissingPackageError`` without wandb."""
        self._wandb = require("wandb", "wandb")
        self._project = project
        self._rank = rank
        self._run: Any = None

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Log each number as ``memory/NAME``."""
        if self._run is None:
            self._run = self._wandb.init(
                project=self._project,
                group="energon-pack memory",
                name=f"memory rank {self._rank}",
                config={"rank": self._rank, "host": metrics.get("host")},
                reinit="create_new",
                settings=self._wandb.Settings(console="off"),  # the trainer's run has that
            )
        self._run.log({f"memory/{key}": value for key, value in numeric(metrics)}, step=step)

    def close(self) -> None:
        """Finish the run."""
        if self._run is not None:
            self._run.finish()


def rank_file(path: Path, rank: int) -> Path:
    """Return this rank's file: ``FOLDER/rank-00003.jsonl``, or beside ``RUN.jsonl`` of rank 0."""
    if path.suffix != ".jsonl":
        return path / f"rank-{rank:05d}.jsonl"
    return path if rank == 0 else path.with_name(f"{path.stem}-rank-{rank:05d}.jsonl")


def sinks_of(config: MonitorConfig, rank: int) -> list[Sink]:
    """Return the sinks that ``config`` asks for, labelled with the rank.

    Raises ``MissingPackageError`` for one whose package is not installed.
    """
    from energon_pack.monitor.prometheus import PrometheusEndpoint, PrometheusTextfile

    sinks: list[Sink] = [LogSink()] if config.log else []
    if config.jsonl is not None:
        sinks.append(JsonLinesSink(rank_file(Path(config.jsonl), rank)))
    if config.tensorboard is not None:
        sinks.append(TensorBoardSink(Path(config.tensorboard) / f"rank-{rank:05d}"))
    if config.wandb_project is not None:
        sinks.append(WandbSink(config.wandb_project, rank))
    if config.prometheus_port is not None:
        sinks.append(PrometheusEndpoint(config.prometheus_port + rank))
    if config.prometheus_textfile is not None:
        sinks.append(PrometheusTextfile(Path(config.prometheus_textfile), rank))
    return sinks
