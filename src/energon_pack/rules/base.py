# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What a rule is: a code, a one-line wish, and a check that reads facts and yields its faults."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from energon_pack.config import PackingConfig
from energon_pack.facts import RunFacts, Switches

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One way in which a run breaks a rule."""

    setting: str
    value: object
    consequence: str
    """What would happen, as a sentence."""
    fix: str
    """What to set instead, as a sentence."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that the rule needs and that cannot be known here."""

    reason: str


Check = Callable[[RunFacts], Iterable[Fault | Unknown]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One combination that must not, or should not, be trained."""

    code: str
    severity: Severity
    wish: str
    """What should hold, in one line."""
    versions: str
    """The releases that the reason was read in."""
    check: Check
    any_packing: bool = False
    """Whether it also holds for configs that Megatron-Bridge packs itself."""


def rule(
    code: str,
    severity: Severity,
    *,
    versions: str = "Megatron-Bridge 0.6.2, Megatron Core 0.19.2",
    any_packing: bool = False,
) -> Callable[[Check], Rule]:
    """Make a rule of a check, whose docstring is the wish."""

    def make(check: Check) -> Rule:
        assert check.__doc__, code
        return Rule(
            code=code,
            severity=severity,
            wish=check.__doc__,
            versions=versions,
            check=check,
            any_packing=any_packing,
        )

    return make


def faults_of(switches: Switches, consequence: str, fix: str) -> Iterator[Fault]:
    """Yield a fault for each switch that is on; ``{setting}`` in the fix is its path."""
    for switch in switches:
        setting, _, value = switch.partition("=")
        yield Fault(
            setting=setting,
            value=value,
            consequence=consequence,
            fix=fix.format(setting=setting),
        )


def packing_of(facts: RunFacts) -> PackingConfig:
    """Return our dataset; rules without ``any_packing`` run only where there is one."""
    assert facts.packing is not None
    return facts.packing


def release_of(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: ``2.20.0.dev0`` is (2, 20, 0)."""
    numbers = []
    for part in version.split("+", maxsplit=1)[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
