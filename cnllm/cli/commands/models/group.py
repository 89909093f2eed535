"""Define `cnllm models`. Each subcommand is imported when it is needed."""

from __future__ import annotations

import click

from cnllm.cli import options
from cnllm.cli.lazy_command import load_command

__all__ = ["models"]

COMMANDS = {
    "add": "cnllm.cli.commands.models.add:add",
    "default": "cnllm.cli.commands.models.default:default",
    "diff": "cnllm.cli.commands.models.diff:diff",
    "list": "cnllm.cli.commands.models.list:list_",
    "matrix": "cnllm.cli.commands.models.matrix:matrix",
    "show": "cnllm.cli.commands.models.show:show",
}


class LazyGroup(options.Group):
    """A group that imports a command only when the command is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        return load_command(COMMANDS[cmd_name])


@click.group(cls=LazyGroup)
def models() -> None:
    """List models, and show what is known about each."""
