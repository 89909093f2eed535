"""Import a command when it is needed, with its help in the user's language."""

from __future__ import annotations

import importlib

import click

from cnllm.cli.language.messages import language

__all__ = ["load_command", "with_help"]


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
