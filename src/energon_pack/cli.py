# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The command line: which command lives in which module, imported when it is called."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import click
import typer.main

from energon_pack import __version__

USAGE_ERROR: Final = 2

COMMANDS: Final[dict[str, str]] = {
    # command -> module:function in energon_pack.commands
    "preview": "preview:preview",
}


class _LazyGroup(click.Group):
    """A group whose commands are imported by name, so that ``--help`` loads no torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, function = COMMANDS[cmd_name].split(":")
        app = typer.Typer(add_completion=False)
        app.command(cmd_name)(
            getattr(import_module(f"energon_pack.commands.{module}"), function)
        )
        command = typer.main.get_command(app)
        command.name = cmd_name
        return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="energon-pack")
def app() -> None:
    """Online sequence packing for Qwen-VL training on Megatron-Energon."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. A ``ValueError`` (bad input) is one sentence on stderr and exit status 2."""
    try:
        app(arguments, prog_name="energon-pack", standalone_mode=True)
    except ValueError as error:
        click.echo(f"energon-pack: {error}", err=True)
        sys.exit(USAGE_ERROR)
