# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What one loader does: speed in five slices, the worker's memory, the first batch, resuming.

A worker's clock and idle memory are taken in the worker itself, right after it was forked; its
peak is the kernel's own high-water mark. Memory on its way to the trainer (files in /dev/shm and
memory files that the worker or the trainer has open) is sampled ten times a second.
"""

import itertools
import multiprocessing
import os
import pickle
import statistics
import struct
import threading
import time
from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from typing import Any

import psutil
from loaders import Case, open_loader, tensor_bytes, useful_tokens

NUM_SLICES = 5
_TRAVELLING = ("/memfd:energon-pack", "/dev/shm/torch_")


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``function(*arguments)``, run in a fork of this process."""
    receiving, sending = multiprocessing.Pipe(duplex=False)

    def run() -> None:
        sending.send(function(*arguments))

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    sending.close()
    try:
        return receiving.recv()
    except EOFError:
        raise RuntimeError(f"{arguments[0]} did not end well") from None
    finally:
        process.join()


def measure(case: Case, seconds: float, least_packs: int = NUM_SLICES) -> dict[str, float]:
    """Run a loader for ``seconds`` behind its first pack and return its figures."""
    watch = _Watch()
    loader = open_loader(case)
    times, tokens, num_bytes, cpu_at_first = [], [], [], 0.0
    for pack in loader:
        times.append(time.monotonic())
        cpu_at_first = cpu_at_first or watch.worker_cpu_s()
        tokens.append(useful_tokens(pack))
        num_bytes.append(tensor_bytes(pack))
        del pack
        if times[-1] - times[0] > seconds and len(times) > least_packs:
            break
    rows = case.micro_batch if case.loader == "unpacked" else 1
    figures = watch.figures()
    return {
        **figures,
        **_speed(times, tokens),
        "tokens_per_cpu_s": sum(tokens[1:]) / (watch.worker_cpu_s() - cpu_at_first),
        "first_batch_s": times[0] - watch.started,
        "fill": sum(tokens) / (len(tokens) * case.seq_length * rows),
        "pack_tensors_bytes": max(num_bytes),
        "num_packs": len(times),
    }


def first_batch(case: Case) -> float:
    """Return the seconds from the worker's start to the first pack."""
    watch = _Watch()
    next(iter(open_loader(case)))
    return time.monotonic() - watch.started


def save(case: Case, packs: int) -> bytes:
    """Return a loader's state after ``packs`` packs, pickled: it has tensors of its process."""
    loader = open_loader(case)
    for _, _ in zip(range(packs), loader, strict=False):
        pass
    state = loader.save_state() if case.loader == "ours" else loader.save_state_rank()
    return pickle.dumps(state)


def resume(case: Case, state: bytes) -> float:
    """Return the seconds from a restored worker's start to its first pack."""
    watch = _Watch()
    loader = open_loader(case)
    if case.loader == "ours":
        loader.restore_state(pickle.loads(state))
    else:
        loader.restore_state_rank(pickle.loads(state))
    next(iter(loader))
    return time.monotonic() - watch.started


def _speed(times: list[float], tokens: list[int]) -> dict[str, float]:
    edges = [round(at * (len(times) - 1) / NUM_SLICES) for at in range(NUM_SLICES + 1)]
    slices = list(itertools.pairwise(edges))
    durations = [times[end] - times[start] for start, end in slices]
    return {
        "tokens_per_s": statistics.median(
            sum(tokens[start + 1 : end + 1]) / duration
            for (start, end), duration in zip(slices, durations, strict=True)
        ),
        "packs_per_s": statistics.median(
            (end - start) / duration
            for (start, end), duration in zip(slices, durations, strict=True)
        ),
    }


class _Watch:
    """Notes when the worker starts and how large it is then, and watches it grow."""

    def __init__(self) -> None:
        self._note = mmap(-1, 24)
        self._travelling = 0
        trainer = os.getpid()

        def note() -> None:
            if os.getppid() == trainer and self._note[:8] == bytes(8):
                resident = _status(os.getpid(), "VmRSS")
                self._note[:] = struct.pack("qqd", os.getpid(), resident, time.monotonic())

        os.register_at_fork(after_in_child=note)
        threading.Thread(target=self._sample, daemon=True).start()

    @property
    def started(self) -> float:
        """The worker's start on the monotonic clock."""
        return struct.unpack("qqd", self._note)[2]

    def worker_cpu_s(self) -> float:
        """Return the worker's processor time so far."""
        times = psutil.Process(struct.unpack("qqd", self._note)[0]).cpu_times()
        return times.user + times.system

    def figures(self) -> dict[str, float]:
        """Return bytes; call it while the worker lives."""
        worker, idle, _ = struct.unpack("qqd", self._note)
        return {
            "peak_worker_rss_above_idle": _status(worker, "VmHWM") - idle,
            "worker_uss": psutil.Process(worker).memory_full_info().uss,
            "peak_travelling_bytes": self._travelling,
        }

    def _sample(self) -> None:
        while True:
            time.sleep(0.1)
            pids = (os.getpid(), struct.unpack("qqd", self._note)[0])
            files = {}
            for pid in filter(None, pids):
                files.update(_travelling_files(pid))
            self._travelling = max(self._travelling, sum(files.values()))


def _status(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _travelling_files(pid: int) -> dict[int, int]:
    """Return inode to allocated bytes of the files that pass tensors between processes."""
    files = {}
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            if str(link.readlink()).startswith(_TRAVELLING):
                stat = link.stat()
                files[stat.st_ino] = stat.st_blocks * 512
    except OSError:  # closed while we looked
        return files
    return files
