# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The worker processes of one trainer: found among its children, and missed when they die."""

import multiprocessing.process
import os
import signal
import time
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

import psutil

# torch names its data workers so, Energon's included.
_WORKER_NAME: Final = "pt_data_worker"


@dataclass(frozen=True, slots=True)
class Death:
    """A worker that ended otherwise than in order."""

    pid: int
    exit_code: int | None
    """Minus the signal that killed it; None when nobody can tell any more."""

    def __str__(self) -> str:
        """Say how it ended, such as ``was killed by SIGKILL``."""
        if self.exit_code is None:
            return "is gone"
        if self.exit_code >= 0:
            return f"exited with status {self.exit_code}"
        try:
            return f"was killed by {signal.Signals(-self.exit_code).name}"
        except ValueError:
            return f"was killed by signal {-self.exit_code}"


class Roster:
    """The data workers of one process, this one or another."""

    def __init__(self, pid: int) -> None:
        """Watch the children of ``pid``."""
        self.trainer = psutil.Process(pid)
        self.workers: dict[int, psutil.Process] = {}
        self._own = pid == os.getpid()
        self._handles: dict[int, BaseProcess] = {}
        self._met: list[psutil.Process] = []

    def meet(self, pid: int) -> None:
        """Take note of a worker whose first pack has come; it may be dead at the next look."""
        handle = _children_by_pid().get(pid)
        if handle is None:
            return
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if _is_alive(process):  # else its death may have been told
                self._handles[pid] = handle
                self._met.append(process)

    def refresh(self, carried: Container[int]) -> list[Death]:
        """Find new workers, drop those that ended, and return those that died.

        A child is a worker when a pack carried its pid, or when torch has named it one.
        """
        met, self._met = self._met, []
        for process in (*met, *self._children()):
            pid = process.pid
            if pid not in self.workers and (pid in carried or _name(process) == _WORKER_NAME):
                self.workers[pid] = process
        return [death for pid in list(self.workers) if (death := self._missed(pid))]

    def _children(self) -> list[psutil.Process]:
        """Return the living children that are not known as workers."""
        if not self._own:
            return [process for process in _children_of(self.trainer) if _is_alive(process)]
        handles = _children_by_pid()
        found = []
        for pid in handles.keys() - self.workers.keys():
            try:
                process = psutil.Process(pid)
            except psutil.NoSuchProcess:
                continue
            if _is_alive(process):  # a dead one may wait long for the trainer to fetch it
                self._handles[pid] = handles[pid]
                found.append(process)
        return found

    def _missed(self, pid: int) -> Death | None:
        if _is_alive(self.workers[pid]) or (self._own and _is_ending(pid)):
            return None
        code = self._exit_code(pid) if self._own else _zombie_exit_code(pid)
        del self.workers[pid]
        self._handles.pop(pid, None)
        return None if code == 0 else Death(pid, code)

    def _exit_code(self, pid: int) -> int | None:
        """Look at how a child ended, and leave it to its parent to fetch that."""
        try:
            result = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return _fetched_exit_code(self._handles[pid]) if pid in self._handles else None
        assert result is not None
        return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def _children_by_pid() -> dict[int, BaseProcess]:
    # The public active_children() reaps, and then torch cannot say how a worker died.
    children = list(multiprocessing.process._children)  # type: ignore[attr-defined]  # noqa: SLF001
    return {child.pid: child for child in children if child.pid}


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _is_ending(pid: int) -> bool:
    """Say whether a child's first thread has ended, and others not yet."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def _fetched_exit_code(handle: BaseProcess) -> int | None:
    """Return the exit code that another thread has fetched, or is just fetching."""
    for _ in range(10):
        if handle.exitcode is not None:
            return handle.exitcode
        time.sleep(0.01)
    return None


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


def _children_of(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.Error:
        return []


def _zombie_exit_code(pid: int) -> int | None:
    try:
        status = int(Path(f"/proc/{pid}/stat").read_text().rsplit(" ", 1)[1])
    except (OSError, ValueError):
        return None
    return os.waitstatus_to_exitcode(status)
