# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""placeholder"""

from typing import Any


def self_check(family: Any, config: Any) -> None: ...
