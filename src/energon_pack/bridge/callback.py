# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""``PackingCallback``: what the packs are like, into the run's own TensorBoard and W&B.

It also compares the ranks of each replica, and stops the run in order when the memory monitor asks
for it: every rank leaves Megatron-Bridge's loop at the same step, after its own checkpoint.
"""

import atexit
import logging
import time
from collections import Counter
from typing import Any

import torch.distributed as dist
from megatron.bridge.training.callbacks import Callback, CallbackContext
from megatron.bridge.training.utils.pg_utils import get_pg_collection

from energon_pack.bridge.figures import IntervalFigures, metrics, reduce_figures
from energon_pack.bridge.provider import PackedDatasetProvider
from energon_pack.bridge.replicas import any_rank, check_replicas
from energon_pack.bridge.stream import TrainStream
from energon_pack.encoder import Pack
from energon_pack.monitor import MemoryMonitor

logger = logging.getLogger(__name__)


class PackingCallback(Callback):
    """Pass it to ``finetune`` or ``pretrain``: ``callbacks=[PackingCallback()]``.

    Every ``logger.log_interval`` steps it reduces the figures over all ranks, logs them, and
    compares the sample keys of each replica's TP and CP ranks. A config without packing is left
    alone.
    """

    def __init__(self) -> None:
        """Wait for the training to start."""
        self.stop_reason: str | None = None
        """Why the run was stopped, on every rank, once it was."""
        self._stream: TrainStream | None = None
        self._monitor: MemoryMonitor | None = None
        self._figures = IntervalFigures()
        self._skipped: Counter[str] = Counter()
        self._step_start = 0.0

    def on_train_start(self, context: CallbackContext) -> None:
        """Tap the packs of the run's packed dataset, and start the memory monitor."""
        provider = context.state.cfg.dataset
        if not isinstance(provider, PackedDatasetProvider) or provider.train_stream is None:
            return
        self._monitor = MemoryMonitor(provider.packing_config().monitor, rank=dist.get_rank())
        self._monitor.start()
        # Megatron-Bridge leaves through sys.exit when it stops early, without on_train_end.
        atexit.register(self._leave)
        self._stream = provider.train_stream
        self._stream.tap(self._take)
        self._monitor.follow(self._stream.ledger)
        if provider.valid_stream is not None:
            provider.valid_stream.tap(self._take_valid)

    def _take(self, pack: Pack) -> None:
        assert self._monitor is not None
        self._figures.add(pack["pack_info"])
        self._monitor.observe(pack["pack_info"], pack["__keys__"])

    def _take_valid(self, pack: Pack) -> None:
        assert self._monitor is not None
        self._monitor.observe(pack["pack_info"], pack["__keys__"], loader="val")

    def on_train_step_start(self, context: CallbackContext) -> None:  # noqa: ARG002
        """Take the time."""
        self._step_start = time.perf_counter()

    def on_train_step_end(self, context: CallbackContext) -> None:
        """Log at the run's own interval; stop in order where the monitor asks for it."""
        if self._stream is None:
            return
        self._figures.seconds += time.perf_counter() - self._step_start
        # Megatron-Bridge counts the step only after this call, and logs it with the new number.
        step = context.state.train_state.step + 1
        if step % context.state.cfg.logger.log_interval == 0:
            groups = get_pg_collection(context.model)
            check_replicas(self._stream.trace, [groups.tp, groups.cp])
            self._log(context.state, groups.dp, step)
        self._stop_where_asked(context.state.cfg, step)

    def _log(self, state: Any, group: dist.ProcessGroup, step: int) -> None:
        totals, highest = reduce_figures(self._figures, group)
        self._figures.start_interval()
        values = metrics(totals, highest)
        for name in totals:
            if name.startswith("skipped/"):
                self._skipped[name] += int(totals[name])
        values |= {f"packing/{name}": count for name, count in self._skipped.items() if count}
        # Both are None but on the last rank.
        if state.tensorboard_logger:
            for name, value in values.items():
                state.tensorboard_logger.add_scalar(name, value, step)
        if state.wandb_logger:
            state.wandb_logger.log(values, step)

    def _stop_where_asked(self, cfg: Any, step: int) -> None:
        """Let all ranks save and exit at this step when any rank's monitor wants to stop."""
        assert self._monitor is not None
        limits = self._monitor.config
        if not limits.enabled or not (limits.fail_worker or limits.fail_total):
            return
        reason = self._monitor.stop_reason()
        if not any_rank(reason is not None):
            return
        reasons: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(reasons, reason)
        self.stop_reason = "; ".join(filter(None, reasons))
        cfg.train.exit_interval = step

    def on_train_end(self, context: CallbackContext) -> None:  # noqa: ARG002
        """End the monitor, then the workers: at Python's exit PyTorch cannot end them in order."""
        if self._stream is None:
            return
        assert self._monitor is not None
        self._monitor.close()
        self._stream.close()

    def _leave(self) -> None:
        """End the monitor; the reason for a stop is the last line of the log."""
        assert self._monitor is not None
        self._monitor.close()
        if self.stop_reason:
            logger.error("stopped in order: %s", self.stop_reason)
