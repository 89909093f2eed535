"""The help of every command, in English and in Chinese."""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest.mock import patch

import click
from click.testing import CliRunner

from cnllm.cli.app import root
from cnllm.cli.chat_commands import COMMANDS
from cnllm.cli.language.messages import translate
from cnllm.cli.lazy_command import with_help
from docs.generate.markdown import cell, table

__all__ = ["helps", "page", "page_zh"]

_WIDTH = 100


def page() -> str:
    """Return a page with the help of every command, as `--help` prints it."""
    parts = [
        "# Commands",
        "Every command prints this with `--help`, those with many options with `--help-all`. What all of them have in "
        "common stands under "
        "[the command line](command-line.md).",
    ]
    parts += _sections()
    parts += [
        "## In a chat",
        "`cnllm chat` takes these at the beginning of a line.",
        table(["command", "what it does"], [[f"`{name}`", cell(text)] for name, (text, _) in COMMANDS.items()]),
    ]
    return "\n\n".join(parts) + "\n"


def page_zh() -> str:
    """Return the same page as a terminal in Chinese prints it."""
    with patch.dict(os.environ, {"LC_ALL": "zh_CN.UTF-8", "LANGUAGE": ""}):
        parts = [
            "# 命令",
            "每个命令的 `--help` 输出就是下面的内容，选项多的命令用 `--help-all`。所有命令共有的部分见"
            "[命令行](../../reference/command-line.md)（英文）。",
        ]
        parts += _sections()
        parts += [
            "## 在聊天里",
            "`cnllm chat` 里，行首可以写这些：",
            table(["命令", "作用"], [[f"`{name}`", cell(translate(text))] for name, (text, _) in COMMANDS.items()]),
        ]
    return "\n\n".join(parts) + "\n"


def _sections() -> Iterator[str]:
    """Yield a heading and the help of each command."""
    for path, shown in helps(_WIDTH):
        yield f"{'#' * (2 if len(path) < 2 else 3)} {' '.join(['cnllm', *path])}"
        yield f"```text\n{shown}\n```"


def helps(width: int) -> Iterator[tuple[list[str], str]]:
    """Yield the words of every command, and the help that it prints at this width."""
    yield from _helps(root, [], width)


def _helps(command: click.Command, path: list[str], width: int) -> Iterator[tuple[list[str], str]]:
    """Yield each command's words and its help, a group before its commands."""
    names = {name for param in command.params for name in param.opts}
    flag = "--help-all" if "--help-all" in names else "--help"
    result = CliRunner().invoke(with_help(root), [*path, flag], prog_name="cnllm", terminal_width=width)
    if result.exit_code != 0:
        raise RuntimeError(f"cnllm {' '.join(path)} {flag}: {result.output}")
    yield path, result.output.rstrip()
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _helps(inner, [*path, name], width)
