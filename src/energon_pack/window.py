# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The sliding window: a worker's measured candidates, of which one pack leaves at a time.

1. Fill: read candidates until there are ``packing_buffer_size``, or they hold
   ``packing_buffer_bytes`` of media; a refused one is counted and dropped.
2. Select: the policy names the candidates of the next pack; they leave the window.
3. Decode each of them into the pack. One that breaks is counted and left out.
4. Close the pack, and go on with 1. A finite pass ends with the window empty.

Whatever the next pack depends on is changed before a pack is yielded, and the savable state holds
plain values only: the restore keys of the waiting candidates, two counters, the losses and the mean
cost. A restore measures the waiting candidates again, without decoding any.
"""

import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

from megatron.energon import SavableDataset, WorkerConfig
from megatron.energon.errors import FatalSampleError
from megatron.energon.state import FlexState
from megatron.energon.wrappers.base import BaseWrapperDataset, SampleIndex

from energon_pack.candidate import Candidate, Refused, RestoreKey
from energon_pack.choosing.ledger import Ledger
from energon_pack.choosing.losses import Losses
from energon_pack.choosing.passes import PassDataset
from energon_pack.choosing.selector import Selector
from energon_pack.choosing.stopwatch import Stopwatch
from energon_pack.choosing.waiting import Waiting
from energon_pack.config import PackingConfig
from energon_pack.refusal import SampleError
from energon_pack.sizes import parse_size
from energon_pack.stats import StreamInfo

_PACKS_IN_MEAN = 256
"""Packs over which the mean step cost runs."""
_FAULTS_OF_THE_PROGRAM = (FatalSampleError, ImportError, NameError, SyntaxError, SystemError)

Decode = Callable[[Candidate], Any]
"""Yields the decoded media of a candidate; raises ``SampleError``."""


class OpenPack(Protocol):
    """A pack that candidates are decoded into."""

    def add(self, candidate: Candidate, frames: Any) -> None:
        """Add a candidate, or leave the pack as it is and pass on what ``frames`` raises."""

    def close(self) -> dict[str, Any]:
        """Return the pack."""


_Member = tuple[int, Candidate]
"""Its decode index, and what was decoded."""


class WindowPackingDataset(BaseWrapperDataset[Candidate | Refused, dict[str, Any]]):
    """Turns a stream of measured candidates into packs, and resumes exactly."""

    _savable_fields = ("_decode_index", "_pack_index", "_cost_mean", "_cost_packs")

    def __init__(
        self,
        dataset: SavableDataset[Candidate | Refused],
        *,
        config: PackingConfig,
        buffer_size: int,
        decode: Decode,
        open_pack: Callable[[Sequence[Candidate]], OpenPack],
        worker_config: WorkerConfig,
    ) -> None:
        """Wrap a stream of ``Candidate`` and ``Refused``."""
        super().__init__(
            PassDataset(dataset, worker_config=worker_config), worker_config=worker_config
        )
        self._selector = Selector.of(config)
        most_bytes = config.packing_buffer_bytes and parse_size(config.packing_buffer_bytes)
        self._waiting = Waiting(buffer_size, most_bytes or None, config.spill_dir)
        self._buffer_size = buffer_size
        self._max_consecutive_skips = config.max_consecutive_skips
        self._on_overlong = config.on_overlong
        self._decode = decode
        self._open_pack = open_pack
        self.ledger = Ledger()
        self.reset_state_own()

    def reset_state_own(self) -> None:
        """Start afresh with an empty window."""
        self._waiting.clear()
        self._restored_keys: list[tuple[str, RestoreKey]] = []
        self._losses = Losses()
        self._decode_index = SampleIndex(self.worker_config, src=self)
        self._pack_index = SampleIndex(self.worker_config, src=self)
        self._cost_mean = 0.0
        self._cost_packs = 0
        self._stopwatch = Stopwatch()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield packs until the source has ended and the window is empty."""
        source = iter(self.dataset)
        self.ledger.open(self.worker_config.rank_worker_id())
        self._read_restored()
        self.ledger.note(self._losses, packs=self._pack_index.current_idx)
        while self._fill(source):
            pack = self._next_pack()
            if pack is not None:
                yield pack
        self.ledger.note(self._losses, packs=self._pack_index.current_idx, ended=True)

    def _fill(self, source: Iterator[Candidate | Refused]) -> bool:
        """Read until the window is full; say whether it holds anything."""
        if self._waiting and self._selector.policy.empties_buffer:
            return True
        with self._stopwatch.timing("fill"):
            while self._waiting.has_room:
                sample = next(source, None)
                if sample is None:
                    break
                self._admit(sample)
        return bool(self._waiting)

    def _admit(self, sample: Candidate | Refused) -> None:
        if isinstance(sample, Refused):
            self._lose(sample, "read")
            return
        item = self._selector.item(sample)
        cause = self._selector.too_big(item)
        if cause is None:
            self._losses.in_a_row["read"] = 0
            self._waiting.add(sample, item)
        else:
            self._lose(_refusal(sample, cause, f"fits no pack: {item}"), "read")

    def _next_pack(self) -> dict[str, Any] | None:
        """Choose, decode and assemble a pack; None when none of its members could be decoded."""
        with self._stopwatch.timing("select"):
            candidates = self._take_next()
        with self._stopwatch.timing("decode"):
            opened = self._open_pack(candidates)
            members = [
                member for candidate in candidates if (member := self._decoded(candidate, opened))
            ]
        if not members:
            return None
        with self._stopwatch.timing("assemble"), self._pack_index.ctx() as pack_index:
            pack = self._closed(opened, pack_index, members)
        pack["pack_info"] = replace(pack["pack_info"], stream=self._stream_info(candidates))
        self.ledger.note(self._losses, packs=pack_index + 1)
        self.ledger.work_on("", "")
        return pack

    def _take_next(self) -> list[Candidate]:
        items = self._waiting.items
        chosen = self._selector.next_pack(items, self._cost_mean if self._cost_packs else None)
        cost = sum(items[index].cost for index in chosen)
        self._cost_packs = min(self._cost_packs + 1, _PACKS_IN_MEAN)
        self._cost_mean += (cost - self._cost_mean) / self._cost_packs
        return self._waiting.take(chosen)

    def _decoded(self, candidate: Candidate, opened: OpenPack) -> _Member | None:
        """Decode one member into the pack; None, and counted, when it breaks."""
        self.ledger.work_on(candidate.__key__, "decode")
        with self._decode_index.ctx() as decode_index:
            try:
                opened.add(candidate, self._decode(candidate))
            except _FAULTS_OF_THE_PROGRAM:
                raise
            except SampleError as error:
                refusal = _refusal(candidate, error.cause, str(error))
            except Exception as error:  # noqa: BLE001 - one sample's fault costs that sample
                refusal = _refusal(candidate, "unexpected", _with_place(error))
            else:
                self._losses.in_a_row["decode"] = 0
                return decode_index, candidate
        self._lose(refusal, "decode")
        return None

    def _closed(
        self, opened: OpenPack, pack_index: int, members: Sequence[_Member]
    ) -> dict[str, Any]:
        pack = opened.close()
        pack["__keys__"] = [candidate.__key__ for _, candidate in members]
        keys = ((decode_index, candidate.__restore_key__) for decode_index, candidate in members)
        pack["__restore_key__"] = (type(self).__name__, pack_index, *keys)
        return pack

    def _lose(self, refused: Refused, stage: str) -> None:
        """Count a lost sample; stop the run when there is nothing else."""
        self._losses.add(refused, stage)
        self.ledger.note(self._losses, packs=self._pack_index.current_idx)
        if refused.cause == "overlong" and self._on_overlong == "error":
            raise FatalSampleError(f"on_overlong: error: {refused.__key__}: {refused.message}")
        if self._losses.in_a_row[stage] > self._max_consecutive_skips:
            raise FatalSampleError(
                f"{self._losses.in_a_row[stage]} samples were lost in a row, more than "
                f"max_consecutive_skips {self._max_consecutive_skips}. Lost so far:\n"
                f"{self._losses.table()}"
            )

    def _stream_info(self, taken: Sequence[Candidate]) -> StreamInfo:
        largest_key, largest_bytes = self._waiting.largest
        return StreamInfo(
            worker_id=self.worker_config.rank_worker_id(),
            pid=os.getpid(),
            pack_index=self._pack_index.current_idx - 1,
            candidates=len(self._waiting),
            buffer_bytes=self._waiting.bytes_in_memory,
            largest_key=largest_key,
            largest_bytes=largest_bytes,
            skipped=self._losses.take_pending(),
            notes=dict(Counter(note for candidate in taken for note in candidate.notes)),
            seconds=self._stopwatch.take(),
        )

    def save_state(self) -> FlexState:
        """Return plain values: where the source is, and what is needed to measure again."""
        state = super().save_state()
        state["candidates"] = self._waiting.keys or list(self._restored_keys)
        state["losses"] = self._losses.save_state()
        return state

    def restore_state(self, state: FlexState) -> None:
        """Take over a saved state; the waiting candidates are read when iteration starts."""
        super().restore_state(state)
        self._waiting.clear()
        self._restored_keys = list(state["candidates"])
        self._losses = Losses.restored(state["losses"])

    def _read_restored(self) -> None:
        """Measure the candidates of a saved state again, in their order."""
        keys, self._restored_keys = self._restored_keys, []
        for key, restore_key in keys:
            sample = self.dataset.restore_sample(restore_key)
            if isinstance(sample, Refused):
                sample = replace(sample, __key__=key, cause="unreadable_on_resume")
            self._admit(sample)

    def restore_sample(self, restore_key: RestoreKey) -> dict[str, Any]:
        """Build one pack again from its key; what belongs to the stream stays empty."""
        name, pack_index, *member_keys = restore_key
        assert name == type(self).__name__, restore_key
        candidates = [self._restored_candidate(key) for _, key in member_keys]
        opened = self._open_pack(candidates)
        members = []
        for (decode_index, _), candidate in zip(member_keys, candidates, strict=True):
            with self._decode_index.ctx(decode_index):
                opened.add(candidate, self._decode(candidate))
            members.append((decode_index, candidate))
        with self._pack_index.ctx(pack_index):
            return self._closed(opened, pack_index, members)

    def _restored_candidate(self, restore_key: RestoreKey) -> Candidate:
        candidate = self.dataset.restore_sample(restore_key)
        if isinstance(candidate, Refused):
            raise SampleError("unreadable_on_resume", candidate.message)
        assert isinstance(candidate, Candidate), candidate
        return candidate

    def len_worker(self, worker_idx: int | None = None) -> int:
        """Return the number of samples; how many packs they make is known only afterwards."""
        return int(self.dataset.len_worker(worker_idx))

    def config(self) -> dict[str, Any]:
        """Describe what the packs depend on."""
        return {
            "type": type(self).__qualname__,
            "dataset": self.dataset.config(),
            "limits": asdict(self._selector.limits),
            "buffer_size": self._buffer_size,
        }


def find_window(dataset: SavableDataset[Any]) -> WindowPackingDataset:
    """Return the window inside a dataset that Energon may have wrapped further."""
    if isinstance(dataset, WindowPackingDataset):
        return dataset
    assert isinstance(dataset, BaseWrapperDataset), dataset
    return find_window(dataset.dataset)


def _refusal(candidate: Candidate, cause: str, message: str) -> Refused:
    return Refused(
        __key__=candidate.__key__,
        __restore_key__=candidate.__restore_key__,
        cause=cause,
        message=message,
        length=candidate.length,
    )


def _with_place(error: Exception) -> str:
    """Say what an error that no rule names was, and where it came from."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
