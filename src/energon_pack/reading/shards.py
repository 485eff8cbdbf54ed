# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Shards with damage: a sample that cannot be read is told and counted; the others are read.

Energon 7.4.1 ends the run at the first such sample, and again at the same one after a resume. An
index that is not the shard's own it follows: samples that the index does not know are never read,
and others may come without some of their parts. Here

1. the first time a worker opens a shard, the shard's index is checked: it has as many samples as
   Energon counts on, and the shard ends where it says;
2. a sample that cannot be read is tried once more with the files opened anew, which mends a stale
   handle of a network file system; then a stand-in with the reason takes its place.
"""

import os
from bisect import bisect_right
from contextlib import suppress
from typing import Any, NamedTuple

from megatron.energon import SavableDataset
from megatron.energon.flavors.jsonl.ijsonl_reader import IJsonlReader
from megatron.energon.flavors.webdataset.itar import CachedItarOffsetReader, TarIndexReader
from megatron.energon.flavors.webdataset.itar_reader import (
    ITarReader,
    JoinIndexFileITarReader,
    ShardInfosITarReader,
)
from megatron.energon.flavors.webdataset.sample_loader import WebdatasetSampleLoaderDataset
from megatron.energon.wrappers.base import BaseWrapperDataset

PROBLEM = "__problem__"
"""Key under which a stand-in says why its sample could not be read."""
_TAR_BLOCK_BYTES = 512
_TAR_RECORD_BYTES = 20 * _TAR_BLOCK_BYTES
"""To whose multiple an archive is filled up behind its last sample."""


def tell_unreadable(dataset: SavableDataset[Any]) -> None:
    """Make a dataset that Energon has built hand out stand-ins instead of raising."""
    while isinstance(dataset, BaseWrapperDataset):
        dataset = dataset.dataset
    if isinstance(dataset, WebdatasetSampleLoaderDataset):
        readers: list[Any] = [_TellingReader(reader) for reader in dataset.join_readers]
        dataset.join_readers = readers


class _Place(NamedTuple):
    """Where a sample is stored: the file's name, and the sample's number in it."""

    name: str
    number: int
    path: Any = None
    """Of a shard that has an index."""
    samples: int | None = None
    """Samples that Energon counts on in that shard."""
    pointer: Any = None
    """Of a joined sample into its shard."""


class _TellingReader:
    """Reads like the reader that it wraps; what that raises becomes a stand-in."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._checked: dict[str, str | None] = {}

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, index: int) -> Any:
        try:
            return self._read(index)
        except Exception:  # noqa: BLE001 - tried again, and told if it fails again
            self._forget_files()
        try:
            return self._read(index)
        except Exception as error:  # noqa: BLE001 - whatever a damaged file provokes
            self._forget_files()
            place = None
            with suppress(Exception):  # the index that says where it lies may be what is damaged
                place = self._place(index)
            place = place or self._source(index)
            return self._stand_in(index, place, _sentence(error, place.name))

    def _read(self, index: int) -> Any:
        place = self._place(index)
        if place is None:
            return None
        if place.path is not None and (problem := self._shard_problem(place)):
            return self._stand_in(index, place, problem)
        if place.pointer is not None:
            sample = self._reader._get_item_by_sample_pointer(place.pointer, index)  # noqa: SLF001
        else:
            sample = self._reader[index]
        if sample is None and isinstance(self._reader, IJsonlReader):
            return self._stand_in(index, place, f"line {index + 1} is empty")
        for file in getattr(self._reader, "itar_files_cache", {}).values():
            file.members.clear()  # tarfile keeps every header that it has ever read
        return sample

    def _place(self, index: int) -> _Place | None:
        """Find a sample; None where a joined dataset has none, which Energon takes for damage."""
        reader = self._reader
        if isinstance(reader, ShardInfosITarReader):
            starts = reader.shard_count_cumsum
            at = bisect_right(starts, index) - 1
            shard = reader.shard_infos[at]
            return _Place(shard.name, index - starts[at], shard.path, shard.count)
        if isinstance(reader, JoinIndexFileITarReader):
            pointer = reader._get_itar_sample_pointer(index)  # noqa: SLF001
            at = pointer.tar_file_id
            if at < 0:
                return None
            return _Place(reader.tar_filenames[at], index, reader.tar_filepaths[at], None, pointer)
        return self._source(index)

    def _source(self, index: int) -> _Place:
        """Name the file or folder that is read, for want of a shard."""
        if isinstance(self._reader, IJsonlReader):
            return _Place(self._reader.jsonl_path.name, index)
        return _Place(str(self._reader.base_path), index)

    def _shard_problem(self, place: _Place) -> str | None:
        if place.name not in self._checked:
            self._checked[place.name] = _index_problem(place)
        return self._checked[place.name]

    def _stand_in(self, index: int, place: _Place, problem: str) -> dict[str, Any]:
        return {
            "__key__": f"{place.name}#{place.number}",
            "__shard__": place.name,
            "__restore_key__": ("Webdataset", index),
            "__sources__": (),
            PROBLEM: problem,
        }

    def _forget_files(self) -> None:
        if isinstance(self._reader, ITarReader):
            self._reader.close()  # type: ignore[no-untyped-call]
        if isinstance(self._reader, ShardInfosITarReader):
            self._reader.cached_offset_reader = CachedItarOffsetReader(
                cache_size=self._reader.itar_cache_size
            )
        if isinstance(self._reader, IJsonlReader):
            self._reader.ijsonl_file = None
        if isinstance(self._reader, JoinIndexFileITarReader):
            while self._reader.index_reader_cache:
                self._reader.index_reader_cache.popitem()[1].close()  # type: ignore[no-untyped-call]


def _index_problem(shard: _Place) -> str | None:
    """Say how a shard and its index differ; None where they agree, or the shard was cut short."""
    with TarIndexReader(shard.path) as index:
        count = len(index) - 1
        end = index[count] if count >= 0 else 0
    if shard.samples not in (None, count):
        return (
            f"{shard.name} has {count} samples in its index and {shard.samples} in .info.json; "
            "run energon prepare again"
        )
    if not shard.path.is_local():  # to look into it would fetch it
        is_whole = shard.path.size() <= end + _TAR_RECORD_BYTES
    else:
        with shard.path.open("rb") as file:
            is_whole = _ends_at(file, end)
    if not is_whole:
        return f"{shard.name} is not the file that was indexed; run energon prepare again"
    return None


def _ends_at(file: Any, end: int) -> bool:
    """Tell whether an archive ends at a byte, or was cut before it, which is no other end."""
    size = file.seek(0, os.SEEK_END)
    file.seek(end if size >= end else max(size - _TAR_BLOCK_BYTES, 0))
    is_end = not file.read(_TAR_BLOCK_BYTES).strip(b"\0")
    return is_end if size >= end else not is_end or size < _TAR_BLOCK_BYTES


def _sentence(error: Exception, file: str) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{file} or its index is not there any more"
    if isinstance(error, OSError):
        return f"{file} cannot be read: {error.strerror or type(error).__name__}"
    return f"{file} is damaged or cut short here; write it again and run energon prepare"
