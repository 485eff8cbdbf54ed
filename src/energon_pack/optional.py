# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Packages that only some uses need, imported where they are used."""

from importlib import import_module
from types import ModuleType

from energon_pack.errors import UserError


class MissingPackageError(UserError):
    """An optional package that is not installed."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional package. Raises ``MissingPackageError`` with the command to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            f"{module.partition('.')[0]} cannot be imported ({error}); "
            f"run: pip install 'energon-pack[{extra}]'"
        ) from None
