"""Print lines and JSON on stdout."""

from __future__ import annotations

import sys
from typing import Any

from cnllm.cli.output import terminal
from cnllm.cli.output.errors import hide_secrets

__all__ = ["print_json", "print_line"]


def print_json(value: Any) -> None:
    """Print one JSON value on stdout: on one line, or indented on a terminal."""
    import json

    text = json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None)
    print_line(terminal.escape_json(text) if sys.stdout.isatty() else text)


def print_line(text: str, *, raw: bool = False) -> None:
    """Print a line on stdout at once, without secrets. On a terminal, escape control characters, unless `raw`."""
    secrets = hide_secrets()
    if secrets:
        from cnllm.config.redact import redact  # imported late: a listing needs no redaction, and stays fast

        text = redact(text, secrets)
    sys.stdout.write((terminal.escape(text) if sys.stdout.isatty() and not raw else text) + "\n")
    sys.stdout.flush()
