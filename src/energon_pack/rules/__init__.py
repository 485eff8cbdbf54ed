# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The guard's rules, one file a subject; each reads ``RunFacts`` and changes nothing."""

from typing import Final

from energon_pack.rules import experts, hierarchy, model, resources, rows
from energon_pack.rules.base import Rule

RULES: Final[tuple[Rule, ...]] = (
    *model.RULES,
    *rows.RULES,
    *experts.RULES,
    *hierarchy.RULES,
    *resources.RULES,
)
