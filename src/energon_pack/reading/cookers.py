# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Cookers: from a crude sample's undecoded parts to a sample that can be measured.

``cook_raw`` reads the layout of the docs. Shards of another layout come with a user's own function,
named by the ``cooker`` setting:

    def cook(sample):                      # {"__key__": ..., "json": bytes, "jpg": bytes, ...}
        entry = json.loads(sample["json"])
        return {"conversation": entry["dialogue"], "imgs": [sample["jpg"]]}

Energon skips a sample whose cooker raises, uncounted; here it is refused and counted.
"""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from megatron.energon import Cooker, Sample, SkipSample, basic_sample_keys, stateless
from megatron.energon.errors import FatalSampleError
from megatron.energon.task_encoder.base import get_stateless

from energon_pack.reading.shards import PROBLEM
from energon_pack.reading.sources import ChatMLSample, RawSample, UnreadableSample
from energon_pack.strict import ConfigError, Problem

_FIELDS = tuple(field.name for field in fields(ChatMLSample) if not field.name.startswith("_"))


@stateless
def cook_raw(crude: dict[str, Any]) -> RawSample:
    """Keep a crude sample's parts as they are; reading them is left to the measurement."""
    parts = {name: part for name, part in crude.items() if not name.startswith("__")}
    return RawSample(**basic_sample_keys(crude), parts=parts)


cookers: tuple[Cooker[Any], ...] = (Cooker(cook_raw),)
"""For ``CrudeWebdataset``: image, multi-image, mp4 and frame-list samples with a conversation."""


def load_cookers(name: str) -> tuple[Cooker[Any], ...]:
    """Import ``package.module:function`` or ``file.py:function``; ours cook what is left.

    The name may also be that of a ``Cooker`` or a list of them, as for subflavors of a blend.
    Raises ``ConfigError``.
    """
    place, _, attribute = name.rpartition(":")
    try:
        module = (
            _module_of(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        )
        found = getattr(module, attribute)
    except Exception as error:  # whatever a user's module does when it is imported
        problem = (
            f"{name} cannot be imported: {type(error).__name__}: {error}; "
            "give file.py:function, or package.module:function that Python finds"
        )
        raise ConfigError([Problem("cooker", problem)]) from error
    chosen = found if isinstance(found, list | tuple) else [found]
    return (*(_cooker(name, one) for one in chosen), *cookers)


def _module_of(file: Path) -> ModuleType:
    name = f"energon_pack_cooker_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _cooker(name: str, found: Any) -> Cooker[Any]:
    cooker = found if isinstance(found, Cooker) else Cooker(found)
    if not callable(cooker.cook) or inspect.isgeneratorfunction(cooker.cook):
        kind = "a generator" if callable(cooker.cook) else f"a {type(cooker.cook).__name__}"
        problem = f"{name} is {kind}; give a function that makes one sample of one"
        raise ConfigError([Problem("cooker", problem)])
    if not get_stateless(cooker.cook):
        stateless(cooker.cook)
    return cooker


def cooked(crude: Mapping[str, Any], cook: Callable[[], Any]) -> Sample:
    """Return what ``cook`` makes of a crude sample; what it raises or leaves out is told."""
    keys = basic_sample_keys(dict(crude))
    if PROBLEM in crude:
        return UnreadableSample(**keys, problem=crude[PROBLEM], cause="unreadable")
    try:
        made = cook()
        if isinstance(made, Mapping):
            made = ChatMLSample(**keys, **_known(made))
    except FatalSampleError:
        raise
    except SkipSample as error:
        return UnreadableSample(**keys, problem=str(error) or "SkipSample", cause="cooker_skipped")
    except Exception as error:  # noqa: BLE001 - whatever a user's code raises
        problem = f"{type(error).__name__}: {error}"
        return UnreadableSample(**keys, problem=problem, cause="cooker_failed")
    if made is None:
        return UnreadableSample(**keys, problem="it returned None", cause="cooker_skipped")
    if not isinstance(made, Sample):
        problem = f"it returned a {type(made).__name__}, no dict with a conversation and no sample"
        return UnreadableSample(**keys, problem=problem, cause="cooker_failed")
    made.__restore_key__ = keys["__restore_key__"]
    return made


def _known(made: Mapping[str, Any]) -> Mapping[str, Any]:
    unknown = [name for name in made if name not in _FIELDS]
    if unknown or "conversation" not in made:
        problem = f"has {', '.join(map(str, made)) or 'nothing'}; known are {', '.join(_FIELDS)}"
        raise ValueError(f"what it returned {problem}")
    return made
