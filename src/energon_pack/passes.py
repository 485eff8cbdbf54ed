# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""One pass over a dataset that ends once, also across a resume, and whose samples may vanish.

Energon 7.4.1 starts the next epoch when a dataset that had ended is restored and iterated, so the
last packs of a finite pass, which leave a buffer after the source has ended, would come with a
whole epoch behind them. It also makes a checkpoint unloadable when one buffered sample can no
longer be read.
"""

from collections.abc import Iterator
from typing import Any

from megatron.energon import SavableDataset, WorkerConfig
from megatron.energon.errors import FatalSampleError
from megatron.energon.wrappers.base import BaseWrapperDataset

from energon_pack.candidate import Refused, RestoreKey


class PassDataset(BaseWrapperDataset[Any, Any]):
    """Remembers that its dataset has ended; turns what cannot be restored into ``Refused``."""

    _savable_fields = ("_ended",)

    def __init__(self, dataset: SavableDataset[Any], *, worker_config: WorkerConfig) -> None:
        """Wrap a dataset, below or above any buffer."""
        super().__init__(dataset, worker_config=worker_config)
        self.reset_state_own()

    def reset_state_own(self) -> None:
        """Start afresh."""
        self._ended = False
        self._restored = False

    def restore_state(self, state: Any) -> None:
        """Restore, and let the next ``iter`` continue the saved pass instead of starting one."""
        super().restore_state(state)
        self._restored = True

    def __iter__(self) -> Iterator[Any]:
        """Continue the saved pass after a restore; else continue or start one."""
        # No generator: a blend calls iter() on members that it then never advances.
        if not self._restored:
            self._ended = False
        self._restored = False
        return iter(()) if self._ended else self._pass(iter(self.dataset))

    def _pass(self, samples: Iterator[Any]) -> Iterator[Any]:
        yield from samples
        self._ended = True

    def restore_sample(self, restore_key: RestoreKey) -> Any:
        """Read a sample again; one that has become unreadable comes back refused."""
        try:
            return super().restore_sample(restore_key)
        except FatalSampleError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a vanished or changed shard raises
            message = f"{type(error).__name__}: {error}"
            return Refused(
                __key__=str(restore_key),
                __restore_key__=restore_key,
                cause="unreadable_on_resume",
                message=message,
            )

    def len_worker(self, worker_idx: int | None = None) -> int:
        """Return the wrapped dataset's length."""
        return int(self.dataset.len_worker(worker_idx))

    def config(self) -> dict[str, Any]:
        """Return the wrapped dataset's config; this wrapper changes no sample."""
        return dict(self.dataset.config())
