# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Amounts of memory as people write them: ``512MiB``, ``8GB``, ``80%``."""

import re
from dataclasses import dataclass
from typing import Final

from energon_pack.errors import UserError

_UNITS: Final[dict[str, int]] = {
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)},
}
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)
_SHARE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*", re.ASCII)


class SizeError(UserError):
    """Text that names no amount of memory."""


@dataclass(frozen=True, slots=True)
class Limit:
    """An amount of memory, or a share of one that is only known while running."""

    text: str
    """As the user wrote it."""
    amount_bytes: int | None
    """None for a share."""
    share: float | None
    """From above 0 to 1; None for an amount."""

    def level_bytes(self, whole_bytes: int) -> int:
        """Return the limit in bytes where a share is one of ``whole_bytes``."""
        if self.share is not None:
            return int(self.share * whole_bytes)
        assert self.amount_bytes is not None
        return self.amount_bytes


def parse_size(text: str) -> int:
    """Return the bytes of ``512MiB`` (1024 based) or ``8GB`` (1000 based).

    Raises ``SizeError`` for anything else: no unit, zero, a negative number.
    """
    match = _SIZE.fullmatch(text)
    factor = _UNITS.get(match[2].lower()) if match else None
    if match is None or factor is None or not int(float(match[1]) * factor):
        raise SizeError(f"{text!r} is no amount of memory; write one like 512MiB or 8GB")
    return int(float(match[1]) * factor)


def parse_limit(text: str) -> Limit:
    """Read an amount as ``parse_size`` does, or a share such as ``80%``.

    Raises ``SizeError`` for anything else, and for a share that is zero or above 100 %.
    """
    match = _SHARE.fullmatch(text)
    if match is None:
        return Limit(text, parse_size(text), None)
    share = float(match[1]) / 100
    if not 0 < share <= 1:
        raise SizeError(f"{text!r} is no share of the memory; write one like 80%")
    return Limit(text, None, share)


def format_size(num_bytes: float) -> str:
    """Return bytes for a person, with three digits: ``1.46 GiB``, ``512 MiB``, ``-3.2 KiB``."""
    value, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 999.5:
            break
        value, unit = value / 1024, larger
    digits = 0 if unit == "B" or abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"
