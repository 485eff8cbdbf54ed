# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What stands below every buffer so that a resume is exact and survives unreadable samples.

Energon 7.4.1 starts the next epoch when a dataset that had ended is restored and iterated, so the
last packs of a finite pass, which leave a buffer after the source has ended, would come with a
whole epoch behind them. And one buffered sample that can no longer be read makes a checkpoint
unloadable.
"""

from collections.abc import Iterator
from typing import Any

from megatron.energon import ConcatDataset, SavableDataset, ShuffleBufferDataset, WorkerConfig
from megatron.energon.errors import FatalSampleError
from megatron.energon.wrappers.base import BaseWrapperDataset

from energon_pack.candidate import Refused, RestoreKey


class PassDataset(BaseWrapperDataset[Any, Any]):
    """One pass over a dataset, which ends once, also when it is resumed after its end."""

    _savable_fields = ("_ended",)

    def __init__(self, dataset: SavableDataset[Any], *, worker_config: WorkerConfig) -> None:
        """Wrap a dataset below a buffer."""
        super().__init__(dataset, worker_config=worker_config)
        self.reset_state_own()

    def reset_state_own(self) -> None:
        """Start afresh: no end to remember, no saved pass to continue."""
        self._ended = False
        self._resumes = False

    def restore_state(self, state: Any) -> None:
        """Restore, and let the next ``iter`` continue the saved pass instead of starting one."""
        super().restore_state(state)
        self._resumes = True

    def __iter__(self) -> Iterator[Any]:
        """Continue the saved pass after a restore; else start one."""
        if not self._resumes:
            _start_passes(self)
        self._resumes = False
        return iter(()) if self._ended else self._pass(iter(self.dataset))

    def _pass(self, samples: Iterator[Any]) -> Iterator[Any]:
        yield from samples
        self._ended = True

    def restore_sample(self, restore_key: RestoreKey) -> Any:
        """Read a sample again; one that has become unreadable comes back as ``Refused``."""
        try:
            return super().restore_sample(restore_key)
        except FatalSampleError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a vanished or changed shard raises
            return Refused(
                __key__=str(restore_key),
                __restore_key__=restore_key,
                cause="unreadable_on_resume",
                message=f"{type(error).__name__}: {error}",
            )

    def len_worker(self, worker_idx: int | None = None) -> int:
        """Return the wrapped dataset's length."""
        return int(self.dataset.len_worker(worker_idx))

    def config(self) -> dict[str, Any]:
        """Return the wrapped dataset's config; no sample is changed."""
        return dict(self.dataset.config())


def _start_passes(dataset: SavableDataset[Any]) -> None:
    """Start a pass here and below, also where the resumed pass did not come any more."""
    if isinstance(dataset, PassDataset):
        dataset.reset_state_own()
    if isinstance(dataset, BaseWrapperDataset):
        for inner in dataset.datasets:
            _start_passes(inner)


def resumable(dataset: SavableDataset[Any]) -> SavableDataset[Any]:
    """Put passes below Energon's shuffle buffer and under the parts of a chain."""
    worker_config = dataset.worker_config
    if isinstance(dataset, ShuffleBufferDataset):
        below = PassDataset(dataset.dataset, worker_config=worker_config)
        return ShuffleBufferDataset(below, size=dataset.size, worker_config=worker_config)
    if isinstance(dataset, ConcatDataset):
        parts = [PassDataset(part, worker_config=worker_config) for part in dataset.datasets]
        return ConcatDataset(*parts, worker_config=worker_config)
    return dataset
