"""Print lines and JSON on stdout."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cnllm.cli.language.messages import localize
from cnllm.cli.output import stdio, terminal
from cnllm.cli.output.errors import hide_secrets

__all__ = ["print_csv", "print_json", "print_line", "print_listing", "print_message", "print_path", "print_report"]


def print_json(value: Any) -> None:
    """Print a value on stdout as JSON, structs too: on one line, or indented on a terminal."""
    text = json.dumps(value, default=_plain, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None)
    print_line(terminal.escape_json(text) if sys.stdout.isatty() else text)


def _plain(value: Any) -> Any:
    from msgspec import to_builtins

    return to_builtins(value)


def print_listing(rows: Sequence[Any], text: Callable[[], str], nothing: str, *, as_json: bool) -> None:
    """Print rows on stdout: as JSON, else as the text. Where there are none, that is said on stderr."""
    if as_json:
        print_json(rows)
    elif rows:
        print_line(text())
    else:
        stdio.print_line(nothing)


def print_report(value: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Print a value on stdout: as JSON, else as these lines, which are messages."""
    if as_json:
        print_json(value)
    else:
        for line in lines:
            print_message(line)


def print_csv(lines: Iterable[Sequence[object]]) -> None:
    """Print lines of cells as CSV."""
    import csv
    import io

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    print_line(text.getvalue().rstrip("\n"))


def print_message(text: str) -> None:
    """Print a message on stdout: on a terminal in the user's language."""
    print_line(localize(text))


def print_line(text: str, *, raw: bool = False) -> None:
    """Print a line on stdout at once, without secrets. On a terminal, escape control characters, unless `raw`."""
    secrets = hide_secrets()
    if secrets:
        from cnllm.config.redact import redact  # imported late: a listing needs no redaction, and stays fast

        text = redact(text, secrets)
    sys.stdout.write((terminal.escape(text) if sys.stdout.isatty() and not raw else text) + "\n")
    sys.stdout.flush()


def print_path(path: str | os.PathLike[str]) -> None:
    """Print a path on stdout. A program gets its bytes, which need not be UTF-8."""
    text = os.fspath(path)
    buffer = getattr(sys.stdout, "buffer", None)
    if text.isascii() or buffer is None or sys.stdout.isatty():
        print_line(text)
        return
    sys.stdout.flush()
    buffer.write(os.fsencode(text) + b"\n")
    buffer.flush()
