# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Pickled parts of a sample, read without running anything that they name."""

import io
import pickle
from typing import Any

from energon_pack.refusal import SampleError


def load_pickle(data: bytes) -> Any:
    """Read a pickle of lists, tuples, bytes, text and numbers.

    Raises ``SampleError`` (``bad_pickle``) for one that names anything else, or that is broken.
    """
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except Exception as error:  # noqa: BLE001 - broken pickles raise nearly anything
        raise SampleError("bad_pickle", f"a pickled part cannot be read: {error}") from None


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # How pickle protocols 0 to 2 write bytes, and empty bytes.
        if (module, name) == ("_codecs", "encode"):
            return _latin1
        if (module, name) == ("__builtin__", "bytes"):
            return _no_bytes
        message = f"it names {module}.{name}; only lists of bytes, text and numbers are read"
        raise pickle.UnpicklingError(message)


def _latin1(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it holds bytes written as {encoding!r}")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""
