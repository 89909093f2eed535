"""Define `cnllm models`. Each subcommand is imported when it is needed."""

from __future__ import annotations

import click

from cnllm.cli import options

__all__ = ["models"]

_NAMES = {"list": "list_"} | {name: name for name in ("add", "default", "diff", "matrix", "show")}


@click.group(
    cls=options.Group,
    lazy={name: f"cnllm.cli.commands.models.{name}:{command}" for name, command in sorted(_NAMES.items())},
)
def models() -> None:
    """List models, and show what is known about each."""
