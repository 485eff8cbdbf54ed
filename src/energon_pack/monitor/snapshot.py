# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""One look at a rank's memory: what the monitor records, and what every view and sink reads.

As a flat record (one JSON line) a worker's fields are ``worker/NAME/FIELD``; what is not known is
left out. Fields that end in ``_total`` only rise.
"""

import numbers
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

# Numbers that say where and when a record is from, not how much of something there is.
_IDENTITY: Final = frozenset({"time", "interval_s", "rank", "pid", "step", "ended"})


def _about(text: str, **default: Any) -> Any:
    """Return a dataclass field whose description the Prometheus sink also shows."""
    return field(metadata={"about": text}, **default)


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something that happened between two looks."""

    time: float
    kind: str
    """``died``, ``grows``, ``steady``, ``warn``, ``fail``."""
    message: str
    worker: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSnapshot:
    """One worker process and the packs that came from it."""

    name: str
    """The loader's worker id (``val 0`` of another loader); ``pid 4711`` before its first pack."""
    pid: int = _about("Process id")
    rss_bytes: int = _about("Resident memory, shared pages included")
    peak_bytes: int = _about("Largest resident memory seen")
    held_bytes: int = _about("Resident memory and swap without mapped files")
    shared_bytes: int = _about("Resident shared memory")
    uss_bytes: int | None = _about(
        "Memory that no other process shares, read now and then", default=None
    )
    pss_bytes: int | None = _about(
        "USS and a part of the shared pages, read now and then", default=None
    )
    open_files: int = _about("Open file descriptors")
    threads: int = _about("Threads")
    cpu_seconds_total: float = _about("CPU time used")
    packs_total: int = _about("Packs received from it", default=0)
    packs_per_second: float | None = _about("Packs received from it in a second", default=None)
    fill_ratio: float | None = _about("Mean fill of its packs", default=None)
    skipped_samples_total: int = _about("Samples that reached no pack", default=0)
    candidates: int | None = _about("Candidates in its buffer", default=None)
    buffer_bytes: int | None = _about("Compressed media bytes in its buffer", default=None)
    largest_bytes: int | None = _about("Media bytes of its largest candidate", default=None)
    largest_key: str | None = None
    """Key of its largest candidate."""
    last_key: str | None = None
    """Last sample in a pack that arrived."""
    growth_bytes_per_pack: float | None = _about("Growth of held memory a pack", default=None)
    growth_bytes_per_second: float | None = _about("Growth of held memory a second", default=None)
    grows: bool = _about("1 while it keeps growing after its warm-up", default=False)
    seconds_to_limit: float | None = _about("Time to its limit at the present rate", default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A rank: the trainer, its workers, and what they share with others."""

    time: float
    """Seconds since the epoch."""
    interval_s: float
    """Seconds to the next snapshot."""
    rank: int
    host: str
    pid: int
    step: int
    """Training packs received, those before a resume included."""
    trainer_rss_bytes: int = _about("Resident memory of the trainer")
    total_bytes: int = _about("Memory of trainer and workers, shared pages counted once")
    peak_bytes: int = _about("Largest total seen")
    limit_bytes: int = _about("Memory above which the kernel kills: cgroup or machine")
    used_bytes: int = _about("In use under that limit by all, without reclaimable page cache")
    limit_source: str
    """``cgroup`` or ``machine``."""
    shm_used_bytes: int | None = _about("In use in /dev/shm", default=None)
    shm_size_bytes: int | None = _about("Size of /dev/shm", default=None)
    packs_total: int = _about("Packs received from all workers", default=0)
    packs_per_second: float | None = _about("Packs received in a second", default=None)
    seconds_to_limit: float | None = _about("Time to the limit at the present rate", default=None)
    warnings_total: int = _about("Warnings given", default=0)
    worker_deaths_total: int = _about("Workers that died", default=0)
    monitor_cpu_seconds_total: float = _about("CPU time of the monitor itself", default=0.0)
    ended: bool = False
    """Whether this is the run's last snapshot."""
    stop_reason: str | None = None
    """Why the monitor asks the run to stop."""
    workers: tuple[WorkerSnapshot, ...] = ()
    events: tuple[Event, ...] = ()

    @property
    def left_bytes(self) -> int:
        """What is left before the kernel kills."""
        return self.limit_bytes - self.used_bytes

    def record(self) -> dict[str, Any]:
        """Return the flat record; ``from_record`` reads it back."""
        record = _known(self, leave_out=("workers", "events"))
        for worker in self.workers:
            values = _known(worker, leave_out=("name",))
            record |= {f"worker/{worker.name}/{name}": value for name, value in values.items()}
        record["events"] = [asdict(event) for event in self.events]
        return record


def from_record(record: Mapping[str, Any]) -> Snapshot:
    """Read a flat record. Raises ``TypeError`` for one that lacks fields; more do no harm."""
    of_rank: dict[str, Any] = {}
    of_workers: dict[str, dict[str, Any]] = defaultdict(dict)
    for key, value in record.items():
        if key.startswith("worker/"):
            _, name, attribute = key.split("/", 2)
            of_workers[name][attribute] = value
        else:
            of_rank[key] = value
    events = of_rank.pop("events", [])
    workers = (_build(WorkerSnapshot, values | {"name": n}) for n, values in of_workers.items())
    return _build(
        Snapshot,
        of_rank
        | {"workers": tuple(workers), "events": tuple(_build(Event, event) for event in events)},
    )


def _known(snapshot: Any, leave_out: tuple[str, ...]) -> dict[str, Any]:
    pairs = ((f.name, getattr(snapshot, f.name)) for f in fields(snapshot))
    return {name: value for name, value in pairs if value is not None and name not in leave_out}


def _build[T](cls: type[T], values: Mapping[str, Any]) -> T:
    names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    return cls(**{name: values[name] for name in names if name in values})


def numeric(metrics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the measured numbers of a record, workers' included."""
    for key, value in metrics.items():
        if key.rsplit("/", 1)[-1] not in _IDENTITY and isinstance(value, numbers.Real):
            yield key, float(value)
