# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A recipe by its file and name, packed and with overrides, as the guard reads it.

Works without a GPU and without Transformer Engine: what a recipe asks of the device is answered
for an H100, and the rules that need either say that they could not be checked.
"""

import contextlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from energon_pack.bridge.without_gpu import assumed_device, prepare_import
from energon_pack.errors import UserError
from energon_pack.guard import GuardError, Report, run_guard

_NEEDED = (
    "; check --recipe needs Megatron-Bridge (pip install 'energon-pack[bridge]', Python 3.12). "
    "On a machine without it describe the run in YAML: check --facts facts.yaml"
)


def check_recipe(
    spec: str, data: Path, overrides: Sequence[str] = (), *, skip: Mapping[str, str]
) -> Report:
    """Return the guard's report on the recipe ``FILE.py:NAME`` with the packs of ``data``.

    A recipe that takes ``data`` calls ``use_packing`` itself; any other has it called. Raises
    ``UserError`` when the recipe cannot be built.
    """
    prepare_import()
    # Recipes and Megatron-Bridge print; standard output is the report's.
    with contextlib.redirect_stdout(sys.stderr), assumed_device():
        try:
            cfg = _packed(_find(spec), data, [*overrides, *_skip_overrides(skip)])
        except GuardError as error:
            return error.report
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"{spec} cannot be built: {type(error).__name__}: {error}") from error
        return run_guard(cfg, cfg.dataset.packing_config(), skip=cfg.dataset.skip_rules)


def _packed(recipe: Callable[..., Any], data: Path, overrides: Sequence[str]) -> Any:
    from energon_pack.bridge import use_packing

    if "data" in inspect.signature(recipe).parameters:
        return recipe(data, overrides)
    cfg = recipe()
    use_packing(cfg, data, overrides)
    return cfg


def _skip_overrides(skip: Mapping[str, str]) -> list[str]:
    quoted = {
        code: reason.replace("\\", "\\\\").replace("'", "\\'") for code, reason in skip.items()
    }
    return [f"+dataset.skip_rules.{code}='{reason}'" for code, reason in quoted.items()]


def _find(spec: str) -> Callable[..., Any]:
    """Import the file and return the function; its folder is importable, as for a script."""
    file, _, name = spec.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise UserError(f"{spec!r} names no recipe; write FILE.py:NAME, and {file!r} is no file")
    sys.path.insert(0, str(path.parent.resolve()))
    module_spec = importlib.util.spec_from_file_location(path.stem, path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except ImportError as error:
        raise UserError(f"{file} cannot be imported: {error}{_NEEDED}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise UserError(f"{file} has no recipe {name!r}")
    return found  # type: ignore[no-any-return]
