# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Scratch folders that a trainer shares with its workers and that do not outlive them."""

import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path

_LOCK = "in-use"


def scratch_folder(owner: object, prefix: str, parent: str | None = None) -> Path:
    """Make a folder that goes away with ``owner`` or with its process.

    The process and the workers that it forks hold a lock in it; folders whose lock nobody holds any
    more, as after ``kill -9``, are removed on the way.
    """
    place = Path(parent or tempfile.gettempdir())
    place.mkdir(parents=True, exist_ok=True)
    for leftover in place.glob(f"{prefix}*"):
        _remove_if_abandoned(leftover)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_SH)
    weakref.finalize(owner, _remove, folder, lock, os.getpid())
    return folder


def _remove(folder: Path, lock: int, process: int) -> None:
    if os.getpid() == process:  # a forked worker inherits the finalizer, not the folder
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_if_abandoned(folder: Path) -> None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR)
    except OSError:  # another user's, or just being made
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
