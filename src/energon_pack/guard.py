# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The guard: every rule over one run's facts, all findings in one report.

1. ``read_facts`` reads the config once; rules see nothing else and change nothing.
2. Every rule runs, so one call names every fault. A rule whose fact cannot be known here says so.
3. A rule can be skipped by its code, with a reason that the report repeats.
4. What can be mended without a choice is mended afterwards (``switch_off_ep_overlap``).
"""

import dataclasses
import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from energon_pack.config import PackingConfig
from energon_pack.errors import UserError
from energon_pack.facts import RunFacts
from energon_pack.read_facts import read_facts
from energon_pack.rules import RULES
from energon_pack.rules.base import Fault, Rule, Severity

_ORDER: Final[tuple[Severity, ...]] = ("error", "warning", "note")
_COLOURS: Final[dict[Severity, str]] = {"error": "red", "warning": "yellow", "note": "cyan"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A fault with the rule that found it."""

    code: str
    severity: Severity
    setting: str
    value: str
    consequence: str
    fix: str
    versions: str

    def __str__(self) -> str:
        """Setting, value, consequence, fix and versions, in one paragraph."""
        return (
            f"{self.severity} [{self.code}] {self.setting} is {self.value}. {self.consequence} "
            f"{self.fix} (Read in {self.versions}.)"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Unchecked:
    """A rule that could not be checked, or was told not to be."""

    code: str
    reason: str


class GuardError(UserError):
    """A run that must not start; ``report`` has everything that was found."""

    def __init__(self, report: "Report") -> None:
        """Say every finding in one message."""
        self.report = report
        super().__init__(report.text())


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Everything the guard found in one run, errors first."""

    findings: tuple[Finding, ...] = ()
    unknown: tuple[Unchecked, ...] = ()
    """Rules that need a fact which cannot be known here."""
    skipped: tuple[Unchecked, ...] = ()
    """Rules that were skipped, with the reason that was given."""

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """Return the findings of one severity."""
        return tuple(finding for finding in self.findings if finding.severity == severity)

    def raise_errors(self) -> None:
        """Raise ``GuardError`` with the whole report when there is an error."""
        if self.of("error"):
            raise GuardError(self)

    def summary(self) -> str:
        """Return the counts, in one line."""
        counts = {severity: len(self.of(severity)) for severity in _ORDER}
        said = (f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items())
        return f"guard: {', '.join(said)}; {len(self.unknown)} not checked"

    def text(self) -> str:
        """Return the report for a log: the counts, then a line a finding."""
        lines = [self.summary()]
        lines += map(str, self.findings)
        lines += [f"not checked [{rule.code}]: {rule.reason}" for rule in self.unknown]
        lines += [f"skipped [{rule.code}]: {rule.reason}" for rule in self.skipped]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the report as JSON with the keys ``findings``, ``unknown`` and ``skipped``."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    def table(self) -> Table:
        """Return the report for a terminal: a rule, and beside it what it found."""
        table = Table("rule", "finding", show_lines=True)
        for finding in self.findings:
            head = f"[{_COLOURS[finding.severity]}]{finding.severity}[/]\n{finding.code}"
            what = f"[bold]{finding.setting} = {escape(finding.value)}[/]\n{finding.consequence}"
            table.add_row(head, f"{what}\n{finding.fix}\n[dim]{finding.versions}[/]")
        for title, rules in (("not checked", self.unknown), ("skipped", self.skipped)):
            for rule in rules:
                table.add_row(f"[dim]{title}[/]\n{rule.code}", escape(rule.reason))
        return table


def run_guard(
    cfg: Any,
    data: PackingConfig | None,
    *,
    skip: Mapping[str, str] | None = None,
    step: str | None = None,
) -> Report:
    """Run every rule on a ``ConfigContainer``.

    ``data`` is our dataset, None for a config that Megatron-Bridge packs itself. ``skip`` maps
    codes to reasons. ``step`` names the launcher's forward step where it is known.
    """
    return run_rules(read_facts(cfg, data, step=step), skip or {})


def run_rules(facts: RunFacts, skip: Mapping[str, str], rules: Iterable[Rule] = RULES) -> Report:
    """Run the rules on facts. Raises ``UserError`` for a skip without a reason or a rule."""
    rules = [rule for rule in rules if rule.any_packing or facts.packing is not None]
    _check_skips(skip)
    findings: list[Finding] = []
    unknown: list[Unchecked] = []
    for rule in rules:
        if rule.code in skip:
            continue
        for answer in rule.check(facts):
            if isinstance(answer, Fault):
                findings.append(_finding(rule, answer))
            else:
                unknown.append(Unchecked(code=rule.code, reason=f"unknown: {answer.reason}"))
    findings.sort(key=lambda finding: _ORDER.index(finding.severity))
    return Report(
        findings=tuple(findings),
        unknown=tuple(unknown),
        skipped=tuple(Unchecked(code=code, reason=reason) for code, reason in skip.items()),
    )


def _check_skips(skip: Mapping[str, str]) -> None:
    codes = [rule.code for rule in RULES]
    for code, reason in skip.items():
        if code not in codes:
            close = difflib.get_close_matches(code, codes, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UserError(f"{code!r} is no rule that could be skipped{hint}")
        if not reason.strip():
            raise UserError(f"rule {code!r} is skipped without a reason; write one: {code}=REASON")


def _finding(rule: Rule, fault: Fault) -> Finding:
    return Finding(
        code=rule.code,
        severity=rule.severity,
        setting=fault.setting,
        value=str(fault.value),
        consequence=fault.consequence,
        fix=fault.fix,
        versions=rule.versions,
    )
