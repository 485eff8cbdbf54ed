# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""From a config to packs: opens the dataset, starts the workers, taps what each pack reports."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from megatron.energon import (
    SavableDataLoader,
    SavableDataset,
    WorkerConfig,
    get_savable_loader,
    get_train_dataset,
    get_val_dataset,
)
from megatron.energon.errors import FatalSampleError

from energon_pack.choosing.ledger import Ledger, WorkerRecord
from energon_pack.config import MonitorConfig, PackingConfig
from energon_pack.encoder import Pack, PackingTaskEncoder
from energon_pack.errors import UserError
from energon_pack.heap import begun
from energon_pack.in_flight import warn_where_short
from energon_pack.monitor import MemoryMonitor
from energon_pack.reading.prepared import DatasetError, check_prepared
from energon_pack.reading.undecoded import reading_chatml
from energon_pack.resume import StateGuard, fingerprint
from energon_pack.stats import PackInfo
from energon_pack.window import find_window

Split = Literal["train", "val"]


class SamplesError(UserError, FatalSampleError):
    """A run that its samples have stopped: too many lost in a row, or ``on_overlong: error``."""


class PackLoader:
    """Packs of one rank, in Energon's order, from its worker processes.

    Iterating a training split never ends; a validation split ends after one pass, and iterating
    again starts the pass afresh. ``save_state`` may be called between any two packs.
    """

    def __init__(
        self,
        loader: SavableDataLoader[Pack],
        *,
        ledger: Ledger,
        guard: StateGuard,
        monitor: MonitorConfig | None = None,
    ) -> None:
        """Wrap Energon's loader, its workers' ledger, and what a restored state must match.

        With ``monitor``, their memory is watched for as long as packs are read.
        """
        self._loader = loader
        self._ledger = ledger
        self._guard = guard
        self._monitor = monitor
        self._taps: list[Callable[[PackInfo], None]] = []

    def __iter__(self) -> Iterator[Pack]:
        """Yield packs; each one's ``PackInfo`` goes to the taps first.

        Raises ``SamplesError`` when too many samples are lost, ``WorkerMemoryError`` above a limit
        of the monitor, ``WorkerDiedError`` for a worker that the kernel or a fault ended, with the
        sample that it was working on.
        """
        with self._ledger.naming_dead_workers(), _telling_losses(), self._watched() as packs:
            # Without workers Energon freezes this process itself, for as long as packs are read.
            for pack in begun(packs) if self._loader.num_workers else packs:
                for tap in self._taps:
                    tap(pack["pack_info"])
                yield pack

    @contextmanager
    def _watched(self) -> Iterator[Iterator[Pack]]:
        # No generator of packs: torch raises a worker's death wherever this process is at work, and
        # a generator that is not at work ends only with the last reference to the error's frames.
        if self._monitor is None:
            yield iter(self._loader)
            return
        with MemoryMonitor(self._monitor) as monitor:
            monitor.follow(self._ledger)
            yield monitor.watch(self._loader)

    def tap(self, observer: Callable[[PackInfo], None]) -> None:
        """Call ``observer`` with every pack's figures, before the trainer has the pack."""
        self._taps.append(observer)

    def save_state(self) -> Any:
        """Return this rank's position; plain values that Megatron-Bridge's checkpoints can hold.

        Raises ``WorkerDiedError`` when there is a worker that would never answer.
        """
        self._ledger.check_workers()
        return self._guard.sealed(self._loader.save_state_rank())

    def restore_state(self, state: Any) -> None:
        """Continue from ``save_state``; call it before the first pack is read.

        Raises ``ResumeError`` with a table when the state is another run's.
        """
        self._loader.restore_state_rank(self._guard.opened(state))

    def restore_sample(self, restore_key: Any) -> Pack:
        """Build one pack again from its ``__restore_key__``, in this process."""
        return self._loader.restore_sample(restore_key)

    @property
    def ledger(self) -> Ledger:
        """The files in which the workers note the sample in work and what they have lost."""
        return self._ledger

    def worker_records(self) -> list[WorkerRecord]:
        """Return what the workers last wrote: the sample in work, and losses no pack carried."""
        return self._ledger.read()


def build_loader(
    config: PackingConfig,
    split: Split = "train",
    *,
    encoder: PackingTaskEncoder | None = None,
    worker_config: WorkerConfig | None = None,
) -> PackLoader:
    """Open ``config.path`` and return the packs of ``split``.

    ``worker_config`` says which data-parallel rank this is (default: from ``torch.distributed``,
    else one rank). The training split's workers are watched as ``config.monitor`` says. Raises
    ``DatasetError`` or ``ConfigError`` for what a user can mend.
    """
    check_prepared(config.path, split)
    encoder = encoder or PackingTaskEncoder(config)
    dataset = build_dataset(config, split, encoder=encoder, worker_config=worker_config)
    workers = max(dataset.worker_config.num_workers, 1)
    if not torch.accelerator.is_available():  # Energon asks for pinned memory all the same
        warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true but no")
    loader = get_savable_loader(
        dataset,
        # A snapshot with every pack: resuming then replays nothing.
        checkpoint_every_sec=0,
        checkpoint_every_min_n_samples=1,
        n_checkpoints=config.prefetch_factor * workers + 1,
        prefetch_factor=config.prefetch_factor,
    )
    now = fingerprint(config, split=split, family=encoder.family, dataset=dataset)
    guard = StateGuard(now, config.resume_mismatch)
    if split == "train":
        _check_shares(config, dataset)
        warn_where_short(config, encoder.family)
    monitor = config.monitor if config.monitor.enabled and split == "train" else None
    return PackLoader(loader, ledger=find_window(dataset).ledger, guard=guard, monitor=monitor)


def _check_shares(config: PackingConfig, dataset: SavableDataset[Pack]) -> None:
    """Refuse workers without samples: a training split repeats, and they would repeat nothing."""
    workers = max(dataset.worker_config.num_workers, 1)
    shares = [dataset.len_worker(worker) for worker in range(workers)]
    if not all(shares):
        raise DatasetError(
            f"{config.path} has {sum(shares)} samples for the {workers} workers of this rank; "
            f"set num_workers to {sum(shares)} or less, or train on fewer ranks"
        )


def build_dataset(
    config: PackingConfig,
    split: Split,
    *,
    encoder: PackingTaskEncoder,
    worker_config: WorkerConfig | None = None,
) -> SavableDataset[Pack]:
    """Open a dataset that ``check_prepared`` has passed, without starting workers."""
    worker_config = worker_config or default_worker_config(config, split)
    common: dict[str, Any] = {
        "split_part": split,
        "worker_config": worker_config,
        "batch_size": 1,
        "packing_buffer_size": config.packing_buffer_size,
        "task_encoder": encoder,
    }
    with reading_chatml(), _named(config.path):
        if split == "val":
            return get_val_dataset(config.path, **common)
        return get_train_dataset(
            config.path,
            shuffle_buffer_size=config.shuffle_buffer_size,
            max_samples_per_sequence=config.max_samples_per_sequence,
            **common,
        )


@contextmanager
def _telling_losses() -> Iterator[None]:
    """Say why the samples have stopped the run, without the traceback that workers send along."""
    try:
        yield
    except SamplesError:
        raise
    except FatalSampleError as error:
        reason = str(error).rpartition(f"{FatalSampleError.__name__}: ")[2]
        raise SamplesError(reason.strip()) from error


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Say which dataset it was that Energon could not open."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # whatever wrong or damaged files provoke in Energon
        raise DatasetError(
            f"{path} cannot be opened as an Energon dataset: {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]} is not in it; run energon prepare again"
    if isinstance(error, FileNotFoundError):
        missing = error.filename or "a dataset that it names"
        return f"{missing} is not there; run energon prepare again"
    told = " ".join(str(error).split())
    return told or f"one of its files cannot be read ({type(error).__name__})"


def default_worker_config(config: PackingConfig, split: Split) -> WorkerConfig:
    """Return the worker counts of ``split``, with rank and size from ``torch.distributed``."""
    workers = config.num_workers
    if split == "val" and config.num_val_workers is not None:
        workers = config.num_val_workers
    worker_config = WorkerConfig.default_worker_config(workers)
    worker_config.seed_offset = config.seed
    return worker_config
