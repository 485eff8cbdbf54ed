# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Strict YAML into frozen dataclasses: every problem at once, each with its path and a way out."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, override

import yaml

from energon_pack.errors import UserError

MAX_YAML_BYTES = 1 << 20


class Problem(NamedTuple):
    """One thing that is wrong: where (dotted path) and what."""

    path: str
    text: str


class ConfigError(UserError):
    """Settings that cannot be used; ``problems`` has all of them."""

    def __init__(self, problems: list[Problem], source: str | None = None) -> None:
        """Join the problems into one message, a line each."""
        self.problems = problems
        self.source = source
        lines = [
            f"{problem.path}: {problem.text}" if problem.path else problem.text
            for problem in problems
        ]
        head = f"{source}: " if source else ""
        super().__init__(
            head
            + (lines[0] if len(lines) == 1 else f"{len(lines)} problems\n  " + "\n  ".join(lines))
        )


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML without duplicate keys, merge keys, anchors or custom tags."""

    @override
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(
                None, None, "anchors and aliases are not read here; write the value out", mark
            )
        return super().compose_node(parent, index)

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is no text", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} stands twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def load_yaml(source: Path) -> dict[str, Any]:
    """Read a YAML mapping with the safe loader.

    Raises ``ConfigError`` when the file is missing, too large, no YAML, or no mapping.
    """
    name = str(source)
    try:
        size = source.stat().st_size
        if size > MAX_YAML_BYTES:
            raise ConfigError([Problem("", f"has {size} bytes, too many for a dataset YAML")], name)
        text = source.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError([Problem("", "no such file; give the dataset YAML")], name) from None
    except IsADirectoryError:
        raise ConfigError([Problem("", "is a folder; give the dataset YAML in it")], name) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("", f"cannot be read: {error}")], name) from None
    try:
        value = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError([Problem("", f"is no readable YAML: {_one_line(error)}")], name) from None
    if not isinstance(value, dict):
        raise ConfigError([Problem("", "holds no settings; it must be a mapping")], name)
    return value


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def parse_dataclass[T](cls: type[T], values: Mapping[str, Any]) -> T:
    """Build ``cls`` from a mapping; raise ``ConfigError`` with every problem found."""
    problems: list[Problem] = []
    result = _build(cls, values, "", problems)
    if problems:
        raise ConfigError(problems)
    return typing.cast("T", result)


def _build(cls: type[Any], values: Mapping[str, Any], path: str, problems: list[Problem]) -> Any:
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    before = len(problems)
    known = {}
    for key, value in values.items():
        where = f"{path}{key}"
        if key not in fields:
            problems.append(Problem(where, "is no known setting" + _suggest(key, fields)))
            continue
        known[key] = _convert(hints[key], value, where, problems)
    missing = (
        name
        for name, field in fields.items()
        if name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    )
    problems.extend(Problem(f"{path}{name}", "is missing; it has no default") for name in missing)
    if len(problems) > before:
        return None
    try:
        return cls(**known)
    except ConfigError as error:
        problems.extend(Problem(f"{path}{inner.path}", inner.text) for inner in error.problems)
        return None


def _suggest(key: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _convert(hint: Any, value: Any, path: str, problems: list[Problem]) -> Any:
    options = list(_options(hint))
    for option in options:
        if dataclasses.is_dataclass(option) and isinstance(value, Mapping):
            return _build(typing.cast("type[Any]", option), value, f"{path}.", problems)
        if typing.get_origin(option) is tuple and isinstance(value, list):
            item = typing.get_args(option)[0]
            parts = enumerate(value)
            return tuple(_convert(item, part, f"{path}[{i}]", problems) for i, part in parts)
        if _fits(option, value):
            return float(value) if option is float and isinstance(value, int) else value
    wanted = " or ".join(dict.fromkeys(map(_say, options)))
    problems.append(
        Problem(path, f"is {value!r}; it must be {wanted}" + _suggest_value(options, value))
    )
    return None


def _options(hint: Any) -> Iterator[Any]:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        for part in typing.get_args(hint):
            yield from _options(part)
    elif origin is Literal:
        yield from (Literal[part] for part in typing.get_args(hint))
    else:
        yield hint


def _fits(option: Any, value: Any) -> bool:
    if typing.get_origin(option) is Literal:
        return bool(value == typing.get_args(option)[0])
    if option is type(None):
        return value is None
    if isinstance(value, bool):
        return option is bool
    if option is float:
        return isinstance(value, int | float)
    return typing.get_origin(option) is not tuple and isinstance(value, option)


_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _say(option: Any) -> str:
    if typing.get_origin(option) is Literal:
        return str(typing.get_args(option)[0])
    if typing.get_origin(option) is tuple:
        return "a list"
    if dataclasses.is_dataclass(option):
        return "a mapping"
    return "null" if option is type(None) else _NAMES.get(option, str(option))


def _suggest_value(options: list[Any], value: Any) -> str:
    words = [typing.get_args(o)[0] for o in options if typing.get_origin(o) is Literal]
    if not isinstance(value, str):
        return ""
    return _suggest(value, dict.fromkeys(word for word in words if isinstance(word, str)))
