"""Import a command when it is needed, with its help in the user's language."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from cnllm.cli.language.messages import language

__all__ = ["LazyGroup", "load_command", "with_help"]


def load_command(path: str) -> click.Command:
    """Import the command at MODULE:NAME."""
    module, _, name = path.partition(":")
    command = getattr(importlib.import_module(module), name)
    assert isinstance(command, click.Command)
    return with_help(command)


def with_help(command: click.Command) -> click.Command:
    """Return the command with its help in the user's language: itself where that is English."""
    if language() is None:
        return command
    from cnllm.cli.output.help import translate_command

    return translate_command(command)


class LazyGroup(click.Group):
    """A group that imports a command only when the command is needed. `lazy` maps names to MODULE:NAME."""

    def __init__(self, *args: Any, lazy: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return [*self._lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is no such command."""
        return load_command(self._lazy[cmd_name]) if cmd_name in self._lazy else super().get_command(ctx, cmd_name)
