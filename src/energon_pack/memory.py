# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Memory as the kernel counts it: of a process, its cgroup, the machine, and /dev/shm.

Cost on one core: ``read_process`` 0.1 ms; ``read_footprint`` walks the page tables, about 1 ms for
each 100 MB of resident memory, so it is for now and then.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

# cgroup v1 says "no limit" with the largest multiple of a page that fits 63 bits.
_NO_LIMIT_BYTES: Final = 1 << 60
# Reclaimed by the kernel before it kills anything. /dev/shm is not in it.
_RECLAIMABLE: Final = ("inactive_file", "active_file", "slab_reclaimable")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessMemory:
    """What one process holds; cheap to read."""

    rss_bytes: int
    """Resident memory, shared pages included."""
    held_bytes: int
    """Resident memory and swap without mapped files, which the kernel may drop; this leaks."""
    shared_bytes: int
    """Resident shared memory, where packs wait for the trainer."""
    open_files: int
    threads: int
    cpu_seconds: float
    peak_rss_bytes: int = 0
    """Largest resident memory so far; 0 where the platform does not keep it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    """What one process costs next to others that share its pages; dear to read."""

    uss_bytes: int
    """Memory that no other process shares."""
    pss_bytes: int
    """The same and its part of the shared pages, so that a sum over processes counts each once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ceiling:
    """The memory above which the kernel kills: the cgroup's limit, or the whole machine."""

    source: str
    """``cgroup`` or ``machine``."""
    limit_bytes: int
    used_bytes: int
    """In use by all processes under it, without page cache that the kernel would reclaim first."""

    @property
    def left_bytes(self) -> int:
        """What is left before the kernel kills."""
        return self.limit_bytes - self.used_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedMemory:
    """The file system that packs travel through; a worker that finds it full dies of SIGBUS."""

    size_bytes: int
    used_bytes: int


def read_process(process: psutil.Process) -> ProcessMemory:
    """Read one process. Raises ``psutil.Error`` when it has ended."""
    with process.oneshot():
        fields = _status_kib(process.pid)
        rss = fields["VmRSS"] * 1024 if "VmRSS" in fields else process.memory_info().rss
        if not rss:  # a process on its way out gives its memory back first
            raise psutil.ZombieProcess(process.pid)
        cpu = process.cpu_times()
        return ProcessMemory(
            rss_bytes=rss,
            held_bytes=rss + 1024 * (fields.get("VmSwap", 0) - fields.get("RssFile", 0)),
            shared_bytes=1024 * fields.get("RssShmem", 0),
            open_files=process.num_fds(),
            threads=process.num_threads(),
            cpu_seconds=cpu.user + cpu.system,
            peak_rss_bytes=1024 * fields.get("VmHWM", 0),
        )


def _status_kib(pid: int) -> dict[str, int]:
    """Return the memory lines of ``/proc/PID/status`` in KiB; empty where there is no such file."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in text.splitlines() if line.endswith(" kB"))
    return {name: int(value.split()[0]) for name, value in pairs}


def read_footprint(process: psutil.Process) -> Footprint | None:
    """Read the unique and proportional memory; None where the platform or its rules forbid it."""
    try:
        full = process.memory_full_info()
        return Footprint(uss_bytes=full.uss, pss_bytes=full.pss)
    except (psutil.Error, AttributeError, OSError):
        return None


def read_shared_memory(folder: str = "/dev/shm") -> SharedMemory | None:  # noqa: S108
    """Read how full shared memory is; None where there is none."""
    try:
        stats = os.statvfs(folder)
    except OSError:
        return None
    size = stats.f_blocks * stats.f_frsize
    return SharedMemory(size_bytes=size, used_bytes=size - stats.f_bavail * stats.f_frsize)


def read_ceiling(pid: int | None = None, proc: Path = Path("/proc")) -> Ceiling:
    """Read what the kernel would let ``pid`` (default: this process) and its neighbours use."""
    machine = psutil.virtual_memory()
    levels = cgroup_levels(pid, proc)
    limited = [(limit, level) for level in levels if (limit := _limit_bytes(level))]
    # Of equal limits the outermost counts most, so it is the one that binds.
    limit, level = min(reversed(limited), key=lambda pair: pair[0], default=(machine.total, None))
    used = _used_bytes(level) if level else None
    if used is None or limit >= machine.total:
        return Ceiling(
            source="machine",
            limit_bytes=machine.total,
            used_bytes=machine.total - machine.available,
        )
    return Ceiling(source="cgroup", limit_bytes=limit, used_bytes=used)


def read_oom_kills(pid: int | None = None) -> int:
    """Return how many processes of this cgroup the kernel has killed for memory."""
    own = next(cgroup_levels(pid), None)
    if own is None:
        return 0
    counts = _key_values(own / "memory.events") or _key_values(own / "memory.oom_control")
    return counts.get("oom_kill", 0)


def cgroup_levels(pid: int | None = None, proc: Path = Path("/proc")) -> Iterator[Path]:
    """Yield the folders of the memory cgroup of ``pid``, from its own up to the mounted root.

    Version 1 is taken where it has the memory controller, else version 2. A path outside the mount
    is what a container sees of the host's; then the mount itself is the container's own.
    """
    folder = proc / (str(pid) if pid else "self")
    try:
        groups = [line.split(":", 2) for line in (folder / "cgroup").read_text().splitlines()]
        mounts = [line.split() for line in (folder / "mountinfo").read_text().splitlines()]
    except OSError:
        return
    paths = {name: path for _, names, path in groups for name in names.split(",")}
    name = "memory" if "memory" in paths else ""
    for fields in mounts:
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        if kind == ("cgroup" if name else "cgroup2") and (not name or name in options):
            yield from _levels(Path(fields[4]), fields[3], paths.get(name, "/"))
            return


def _levels(mount: Path, root: str, path: str) -> Iterator[Path]:
    below = os.path.relpath(path, root)
    own = mount if below.startswith("..") else mount / below
    level = own if own.is_dir() else mount
    while level != mount:
        yield level
        level = level.parent
    yield mount


def _limit_bytes(level: Path) -> int | None:
    limit = _number(level / "memory.max") or _number(level / "memory.limit_in_bytes")
    return limit if limit and limit < _NO_LIMIT_BYTES else None


def _used_bytes(level: Path) -> int | None:
    used = _number(level / "memory.current") or _number(level / "memory.usage_in_bytes")
    if used is None:
        return None
    stats = _key_values(level / "memory.stat")
    prefix = "total_" if "total_inactive_file" in stats else ""
    return max(0, used - sum(stats.get(prefix + name, 0) for name in _RECLAIMABLE))


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _key_values(file: Path) -> dict[str, int]:
    try:
        return {name: int(value) for name, value in map(str.split, file.read_text().splitlines())}
    except (OSError, ValueError):
        return {}
