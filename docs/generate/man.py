"""The man page `cnllm.1`, from the help of every command."""

from __future__ import annotations

from cnllm.cli.app import COMMANDS, root
from docs.generate.commands import helps

__all__ = ["page"]

_WIDTH = 76


def page() -> str:
    """Return the page in roff: each command with what `--help` prints."""
    lines = [
        '.\\" Written by `python -m docs.generate` from the help of the commands.',
        '.TH CNLLM 1 "" "cnllm" "User Commands"',
        ".SH NAME",
        "cnllm \\- one client for every model endpoint",
        ".SH SYNOPSIS",
        ".B cnllm",
        "[\\fICOMMAND\\fR] [\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]",
        ".SH DESCRIPTION",
        _escape((root.help or "").split("\n\n")[0].replace("\n", " ")),
        ".SH COMMANDS",
    ]
    for name, (_, line) in COMMANDS.items():
        lines += [".TP", f"\\fB{_escape(name)}\\fR", _escape(line)]
    for path, text in helps(_WIDTH):
        lines += [f".SH {_escape(' '.join(['cnllm', *path]).upper())}", ".nf"]
        lines += [_escape(line) for line in text.splitlines()]
        lines.append(".fi")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    """Return text as roff shows it: no line begins with a request, and a hyphen stays one that can be copied."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
