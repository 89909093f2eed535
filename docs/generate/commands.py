"""The help of every command."""

from __future__ import annotations

from collections.abc import Iterator

import click
from click.testing import CliRunner

from cnllm.cli.app import root
from cnllm.cli.chat_commands import COMMANDS
from docs.generate.markdown import cell, table

__all__ = ["helps", "page"]

_WIDTH = 100


def page() -> str:
    """Return a page with the help of every command, as `--help` prints it."""
    parts = [
        "# Commands",
        "Every command prints this with `--help`, those with many options with `--help-all`. What all of them have in "
        "common stands under "
        "[the command line](command-line.md).",
    ]
    for path, shown in helps(_WIDTH):
        level = 2 if len(path) < 2 else 3
        parts += [f"{'#' * level} {' '.join(['cnllm', *path])}", f"```text\n{shown}\n```"]
    parts += [
        "## In a chat",
        "`cnllm chat` takes these at the beginning of a line.",
        table(["command", "what it does"], [[f"`{name}`", cell(text)] for name, text in COMMANDS.items()]),
    ]
    return "\n\n".join(parts) + "\n"


def helps(width: int) -> Iterator[tuple[list[str], str]]:
    """Yield the words of every command, and the help that it prints at this width."""
    yield from _helps(root, [], width)


def _helps(command: click.Command, path: list[str], width: int) -> Iterator[tuple[list[str], str]]:
    """Yield each command's words and its help, a group before its commands."""
    names = {name for param in command.params for name in param.opts}
    flag = "--help-all" if "--help-all" in names else "--help"
    result = CliRunner().invoke(root, [*path, flag], prog_name="cnllm", terminal_width=width)
    if result.exit_code != 0:
        raise RuntimeError(f"cnllm {' '.join(path)} {flag}: {result.output}")
    yield path, result.output.rstrip()
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _helps(inner, [*path, name], width)
