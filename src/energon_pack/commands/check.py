# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""``energon-pack check``: every rule of the guard over a recipe, or over facts from YAML."""

import json
import os
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from energon_pack.errors import UserError
from energon_pack.facts import load_facts
from energon_pack.guard import Report, run_rules
from energon_pack.rules import RULES

FILE = click.Path(path_type=Path, dir_okay=False)
FOUND_ERRORS = 1


@click.command()
@click.option("--recipe", metavar="FILE.py:NAME", help="Function that returns a config.")
@click.option("--data", type=FILE, help="Dataset YAML for the recipe.")
@click.option("--facts", type=FILE, help="Facts of the run in YAML, without Megatron-Bridge.")
@click.option("--world-size", type=click.IntRange(1), help="Ranks that the run will have.")
@click.option("--skip", multiple=True, metavar="RULE=REASON", help="Rule to skip, and why.")
@click.option("--list", "listing", is_flag=True, help="List the rules and stop.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@click.argument("overrides", nargs=-1)
def check(
    recipe: str | None,
    data: Path | None,
    facts: Path | None,
    world_size: int | None,
    skip: tuple[str, ...],
    listing: bool,
    form: str,
    overrides: tuple[str, ...],
) -> None:
    """Check a run before a cluster is booked; OVERRIDES are Megatron-Bridge's own.

    Exit status: 0 no error (warnings and notes may stand), 1 at least one error, 2 not checked.
    """
    if listing:
        _show_rules(form)
        return
    if world_size:
        os.environ["WORLD_SIZE"] = str(world_size)
    reasons = dict(_reason(text) for text in skip)
    if facts and not (recipe or data or overrides):
        report = run_rules(load_facts(facts), reasons)
    elif recipe and data and not facts:
        from energon_pack.bridge.recipe import check_recipe

        report = check_recipe(recipe, data, overrides, skip=reasons)
    else:
        raise click.UsageError("give --recipe FILE.py:NAME with --data YAML, or --facts YAML alone")
    _show_report(report, form)
    if report.of("error"):
        sys.exit(FOUND_ERRORS)


def _reason(text: str) -> tuple[str, str]:
    code, equals, reason = text.partition("=")
    if not equals:
        raise UserError(f"--skip {text!r} gives no reason; write {text}=REASON")
    return code, reason


def _show_report(report: Report, form: str) -> None:
    if form == "json":
        click.echo(report.to_json())
        return
    console = Console()
    if report.findings or report.unknown or report.skipped:
        console.print(report.table())
    console.print(report.summary())


def _show_rules(form: str) -> None:
    if form == "json":
        keys = ("code", "severity", "wish", "versions")
        click.echo(
            json.dumps([{key: getattr(rule, key) for key in keys} for rule in RULES], indent=2)
        )
        return
    table = Table("code", "severity", "wish", box=None)
    for rule in RULES:
        table.add_row(rule.code, rule.severity, rule.wish)
    Console().print(table)
