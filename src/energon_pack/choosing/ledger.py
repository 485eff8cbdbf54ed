# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The side channel from workers to trainer: what no pack can carry.

Packs carry the counts of lost samples, but a worker whose last samples are refused sends no further
pack, and a worker that is killed sends nothing at all. So each worker keeps one small file of two
lines, rewritten in place: the sample it is working on, and its account of packs and losses.
The trainer reads the files when a pass has ended or a worker has died. A write costs about 5 us.
"""

import json
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import psutil

from energon_pack.choosing.losses import Losses
from energon_pack.choosing.scratch import scratch_folder

_ACCOUNT_AT = 4096
"""Byte at which the account begins; the line before it is shorter."""
_DYING_S = 2.0
_KEY_CHARACTERS = 200
_MESSAGE_CHARACTERS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRecord:
    """What one worker last wrote."""

    worker_id: int
    """Number within the rank."""
    pid: int = 0
    key: str = ""
    """Sample in work; empty between samples."""
    stage: str = ""
    """``measure`` or ``decode``."""
    packs: int = 0
    """Packs made since the stream began; some may still wait in the loader's queue."""
    lost: dict[str, int] = field(default_factory=dict)
    """Lost samples by cause since the stream began."""
    pending: dict[str, int] = field(default_factory=dict)
    """Those of them that no pack has carried."""
    examples: dict[str, list[Any]] = field(default_factory=dict)
    """The latest loss of each cause: key, length, message."""
    ended: bool = False
    """The worker's pass has ended."""


class WorkerDiedError(RuntimeError):
    """A worker process is gone; the message names the sample that it was working on."""


class Ledger:
    """A folder with one file a worker, shared by a loader and the workers it forks."""

    _opened: ClassVar["weakref.ref[Ledger] | None"] = None
    """The ledger that this process writes."""

    def __init__(self, folder: Path | None = None) -> None:
        """Use a folder, or make one that goes away with this object or its process."""
        self.folder = folder or scratch_folder(self, "energon-pack-ledger-")
        self._file = -1
        self._pid = -1

    def open(self, worker_id: int) -> None:
        """Start this worker's file."""
        if self._pid == os.getpid() and self._file >= 0:
            os.close(self._file)
        path = self.folder / f"worker-{worker_id}"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._pid = os.getpid()
        Ledger._opened = weakref.ref(self)
        self.work_on("", "")

    def work_on(self, key: str, stage: str) -> None:
        """Note the sample in work; a forked process notes nothing before it has opened its file."""
        if self._pid == os.getpid():
            work = {"pid": self._pid, "key": key[-_KEY_CHARACTERS:], "stage": stage}
            self._write(work, 0)

    def note(self, losses: Losses, *, packs: int, ended: bool = False) -> None:
        """Note the account."""
        account = {
            "packs": packs,
            "lost": losses.total,
            "pending": losses.pending(),
            "examples": {
                cause: [
                    lost.__key__[-_KEY_CHARACTERS:], lost.length, lost.message[:_MESSAGE_CHARACTERS]
                ]
                for cause, lost in losses.examples.items()
            },
            "ended": ended,
        }  # fmt: skip
        self._write(account, _ACCOUNT_AT)

    @classmethod
    def work_on_in_this_process(cls, key: str, stage: str) -> None:
        """Note the sample in work for a stage that has no ledger at hand."""
        if cls._opened and (ledger := cls._opened()):
            ledger.work_on(key, stage)

    def read(self) -> list[WorkerRecord]:
        """Return what the workers last wrote, by worker."""
        return [_record(path) for path in sorted(self.folder.glob("worker-*"), key=_number)]

    @contextmanager
    def naming_dead_workers(self) -> Iterator[None]:
        """Say of a worker that died while the trainer waited for it which sample it was on."""
        try:
            yield
        except (RuntimeError, OSError, EOFError) as error:  # as the loader's queues report it
            dead = self._dead_workers(time.monotonic() + _DYING_S)
            if not dead:
                raise
            raise WorkerDiedError("\n".join([str(error), *map(_last_words, dead)])) from error

    def check_workers(self) -> None:
        """Raise ``WorkerDiedError`` when a worker is gone, where waiting for it would hang."""
        dead = self._dead_workers(until=0)
        if dead:
            raise WorkerDiedError("\n".join(["a worker has died", *map(_last_words, dead)]))

    def _dead_workers(self, until: float) -> list[WorkerRecord]:
        """Return whose process is gone; a dying one closes its files before it counts as such."""
        dead = [record for record in self.read() if not record.ended and _is_dead(record.pid)]
        if dead or time.monotonic() > until:
            return dead
        time.sleep(0.05)
        return self._dead_workers(until)

    def _write(self, line: dict[str, Any], offset: int) -> None:
        os.pwrite(self._file, json.dumps(line).encode() + b"\n", offset)


def _is_dead(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _last_words(record: WorkerRecord) -> str:
    work = f"in {record.stage} of sample {record.key!r}" if record.key else "between two samples"
    return f"Worker {record.worker_id} (pid {record.pid}) was {work}, after {record.packs} packs."


def _number(path: Path) -> int:
    return int(path.name.removeprefix("worker-"))


def _record(path: Path) -> WorkerRecord:
    text = path.read_bytes()
    work, account = _line(text[:_ACCOUNT_AT]), _line(text[_ACCOUNT_AT:])
    return WorkerRecord(worker_id=_number(path), **work, **account)


def _line(text: bytes) -> dict[str, Any]:
    """Return a line's values; none of one that is just being written."""
    try:
        return dict(json.loads(text.partition(b"\n")[0] or b"{}"))
    except ValueError:
        return {}
