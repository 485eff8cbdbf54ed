# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Datasets that hand out their media as stored: nothing is decoded while Energon reads.

Energon skips a line of JSON that it cannot parse, uncounted; here it is parsed when it is measured.
Energon and Megatron-Bridge decode pictures before the shuffle buffer, to 11 MB of float32 for a
1280x720 frame. ``disable_decoding`` takes their decoders out of a loaded dataset; the files stay
as they are. ``reading_chatml`` lets a ``dataset.yaml`` name Megatron-Bridge's dataset class where
that package is not installed, or slow to import.
"""

# ruff: noqa: SLF001 - Energon has no public way to replace a decoder or a dataset class

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from megatron.energon import CrudeSample, DefaultDecoderWebdatasetFactory
from megatron.energon.epathlib import EPath
from megatron.energon.flavors.jsonl.crude_jsonl_dataset import DefaultCrudeJsonlDatasetFactory
from megatron.energon.flavors.webdataset.sample_loader import RawSampleData
from megatron.energon.metadataset.loader_interface import LoadedDataset
from megatron.energon.typed_converter import JsonParser

from energon_pack.reading.conversation import strict_json
from energon_pack.reading.cookers import cook_raw
from energon_pack.reading.shards import PROBLEM
from energon_pack.reading.sources import ChatMLSample, UnreadableSample


class ChatMLWebdataset(DefaultDecoderWebdatasetFactory[ChatMLSample]):
    """Reads shards that name Megatron-Bridge's class of this name."""

    __sample_type__ = ChatMLSample

    def __init__(self, path: EPath, **settings: Any) -> None:
        """Take that class's settings; those that concern decoding have no effect."""
        for name in ("auto_decode", "image_decode_spec", "image_decode", "decoder"):
            settings.pop(name, None)
        super().__init__(path, decoder=None, **settings)


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
        return strict_json(part)
    except (ValueError, RecursionError):
        return part


def disable_decoding(loaded: LoadedDataset) -> None:
    """Make a loaded dataset hand out media as stored bytes, and broken samples as such."""
    dataset = loaded.dataset
    for factory in getattr(dataset, "inner_datasets", [dataset]):
        if hasattr(factory, "_decoder"):
            crude = factory.__sample_type__ is CrudeSample
            factory._decoder = None if crude else JsonDecoder()
    if isinstance(dataset, DefaultCrudeJsonlDatasetFactory):
        dataset._load_sample = lambda sample: CrudeSample(  # type: ignore[method-assign]
            sample, __subflavors__=dataset.subflavors
        )
    elif dataset.__sample_type__ is not CrudeSample:
        _guard_loading(dataset)


def _guard_loading(dataset: Any) -> None:
    load = dataset.load_sample

    def load_or_tell(raw: Any) -> Any:
        joined = isinstance(raw, RawSampleData)
        parts: tuple[Any, ...] = raw.data if joined else (raw,)
        problem = next((part[PROBLEM] for part in parts if part and PROBLEM in part), None)
        problem = problem or _mismatch([part for part in parts if part])
        if problem:
            return _unreadable(dataset, raw, problem, "unreadable")
        try:
            sample = load(raw)
            if joined:
                sample = cook_raw(sample) if isinstance(sample, CrudeSample) else sample
                # Energon 7.4.1 puts its class's name before this key, and then cannot read it.
                sample.__restore_key__ = raw.__restore_key__
        except Exception as error:  # noqa: BLE001 - counted like any bad sample
            what = "joiner" if joined else "field map"
            problem = f"the sample does not fit the dataset's {what}: {error}"
            return _unreadable(dataset, raw, problem, "bad_conversation")
        return sample

    dataset.load_sample = load_or_tell


def _mismatch(parts: Sequence[Any]) -> str | None:
    """Say where the parts of a joined sample are not of one key."""
    for part in parts[1:]:
        if part["__key__"] != (key := parts[0]["__key__"]):
            shard, found = part["__shard__"], part["__key__"]
            return f"{shard} holds {found} where {key} was joined; run energon prepare again"
    return None


def _unreadable(dataset: Any, raw: Any, problem: str, cause: str) -> UnreadableSample:
    joined = isinstance(raw, RawSampleData)
    return UnreadableSample(
        __key__=(raw.data[0] if joined else raw)["__key__"],
        __restore_key__=raw.__restore_key__ if joined else raw["__restore_key__"],
        __subflavors__=None if joined else dataset.subflavors,
        problem=problem,
        cause=cause,
    )


@contextmanager
def reading_chatml() -> Iterator[None]:
    """Let Energon resolve ``ChatMLWebdataset`` to the reader here, while it opens datasets."""
    resolve = JsonParser._resolve_object

    def resolve_here(parser: JsonParser, module_name: str, object_name: str, *rest: Any) -> Any:
        if object_name == ChatMLWebdataset.__name__:
            return ChatMLWebdataset
        return resolve(parser, module_name, object_name, *rest)

    JsonParser._resolve_object = resolve_here  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        JsonParser._resolve_object = resolve  # type: ignore[method-assign]
