"""Import a command when it is needed, with its help in the user's language."""

from __future__ import annotations

import importlib

import click

from cnllm.cli.language.messages import language

__all__ = ["load_command", "translate_help"]


def load_command(path: str) -> click.Command:
    """Import the command at MODULE:NAME."""
    module, _, name = path.partition(":")
    command = getattr(importlib.import_module(module), name)
    assert isinstance(command, click.Command)
    translate_help(command)
    return command


def translate_help(command: click.Command) -> None:
    """Let a command show its help in the user's language."""
    if language() is not None:
        from cnllm.cli.output import help

        click.Context.formatter_class = help.TranslatedHelp
        help.translate_command(command)
