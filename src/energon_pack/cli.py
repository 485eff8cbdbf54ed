# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The command line: which command lives in which module, imported when it is called."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final, cast

import click

from energon_pack import __version__
from energon_pack.errors import UserError

USAGE_ERROR: Final = 2

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    # command: (module in energon_pack.commands : name of its click.Command, help line)
    "preview": ("preview:preview", "Pack a prepared dataset and show fill, speed and memory."),
    "demo": ("demo:demo", "Pack real photos and clips and train a tiny model on the packs."),
    "demo-data": ("demo:demo_data", "Write a small dataset of real photos and clips."),
    "check": ("check:check", "Check a run against every rule before a cluster is booked."),
    "top": ("top:top", "Workers' memory in the terminal, while a run trains or afterwards."),
    "plot": ("top:plot", "Workers' memory of a recorded run as a picture."),
    "plan": ("plan:plan", "Alignment, packs a step and the settings of each packing mode."),
    "verify-resume": ("resume:verify_resume", "Save, resume in a new process, compare packs."),
    "verify-hcp": ("plan:verify_hcp", "Make hierarchical context-parallel groups here."),
    "check-log": ("plan:check_log", "Which context-parallel groups a training log shows."),
}


class _LazyGroup(click.Group):
    """A group whose commands are imported when called, so that ``--help`` loads no torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        return cast(
            "click.Command", getattr(import_module(f"{__package__}.commands.{module}"), name)
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="energon-pack")
def app() -> None:
    """Online sequence packing for Qwen-VL training on Megatron-Energon."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. A ``UserError`` is one sentence on stderr and exit status 2."""
    try:
        app(arguments, prog_name="energon-pack")
    except UserError as error:
        click.echo(f"energon-pack: {error}", err=True)
        sys.exit(USAGE_ERROR)
