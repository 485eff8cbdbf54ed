# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Datasets that hand out their media as stored: nothing is decoded while Energon reads.

Energon and Megatron-Bridge decode pictures before the shuffle buffer, to 11 MB of float32 for a
1280x720 frame. ``disable_decoding`` takes their decoders out of a loaded dataset; the files stay
as they are. ``reading_chatml`` lets a ``dataset.yaml`` name Megatron-Bridge's dataset class where
that package is not installed, or slow to import.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from megatron.energon import CrudeSample, DefaultDecoderWebdatasetFactory
from megatron.energon.flavors.webdataset.sample_loader import RawSampleData
from megatron.energon.metadataset.loader_interface import LoadedDataset
from megatron.energon.typed_converter import JsonParser

from energon_pack.sources import ChatMLSample, UnreadableSample


class ChatMLWebdataset(DefaultDecoderWebdatasetFactory[ChatMLSample]):
    """Reads shards that name Megatron-Bridge's class of this name."""

    __sample_type__ = ChatMLSample

    def __init__(
        self, path: Any, *, auto_decode: bool = True, image_decode_spec: str | None = None,
        decoder: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """Take that class's arguments; those that concern decoding have no effect."""
        super().__init__(path, decoder=None, **kwargs)


class JsonDecoder:
    """Parses JSON parts, which field maps may look into, and leaves everything else alone."""

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Return ``sample`` with its JSON parts parsed; one that is broken stays bytes."""
        return {name: _parsed(name, part) for name, part in sample.items()}

    def config(self) -> dict[str, Any]:
        """Name this decoder in Energon's record of the dataset."""
        return {"decoder": type(self).__qualname__}


def _parsed(name: str, part: Any) -> Any:
    if not isinstance(part, bytes) or name.rsplit(".", 1)[-1].lower() != "json":
        return part
    try:
        return json.loads(part)
    except (ValueError, RecursionError):
        return part


def disable_decoding(loaded: LoadedDataset) -> None:
    """Make a loaded dataset hand out media as stored bytes, and broken samples as such."""
    dataset = loaded.dataset
    for factory in getattr(dataset, "inner_datasets", [dataset]):
        if hasattr(factory, "_decoder"):
            crude = factory.__sample_type__ is CrudeSample
            factory._decoder = None if crude else JsonDecoder()
    if dataset.__sample_type__ is not CrudeSample:
        _guard_loading(dataset)


def _guard_loading(dataset: Any) -> None:
    load = dataset.load_sample

    def load_or_tell(raw: Any) -> Any:
        try:
            return load(raw)
        except Exception as error:
            return _unreadable(raw, f"the sample does not fit the dataset's field map: {error}")

    dataset.load_sample = load_or_tell


def _unreadable(raw: Any, problem: str) -> UnreadableSample:
    first = raw.data[0] if isinstance(raw, RawSampleData) else raw
    return UnreadableSample(
        __key__=first["__key__"],
        __restore_key__=raw.__restore_key__
        if isinstance(raw, RawSampleData)
        else first["__restore_key__"],
        problem=problem,
    )


@contextmanager
def reading_chatml() -> Iterator[None]:
    """Let Energon resolve the name ``ChatMLWebdataset`` to the reader here while it opens datasets."""
    resolve = JsonParser._resolve_object

    def resolve_here(self: JsonParser, module_name: str, object_name: str, *rest: Any) -> Any:
        if object_name == ChatMLWebdataset.__name__:
            return ChatMLWebdataset
        return resolve(self, module_name, object_name, *rest)

    JsonParser._resolve_object = resolve_here
    try:
        yield
    finally:
        JsonParser._resolve_object = resolve
