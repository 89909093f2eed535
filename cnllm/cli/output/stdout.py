"""Lines and JSON on stdout."""

from __future__ import annotations

import sys
from typing import Any

from cnllm.cli.output import terminal
from cnllm.cli.output.errors import hide_secrets

__all__ = ["print_json", "print_line"]


def print_json(value: Any) -> None:
    """One JSON value on stdout: on a line of its own, or laid out for a terminal."""
    import json

    text = json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None)
    print_line(terminal.escape_json(text) if sys.stdout.isatty() else text)


def print_line(text: str, *, raw: bool = False) -> None:
    """A line on stdout, at once, without secrets; a terminal gets nothing that it would obey, unless wanted (`raw`)."""
    secrets = hide_secrets()
    if secrets:
        from cnllm.config.redact import redact  # a listing has nothing to hide, and is fast

        text = redact(text, secrets)
    sys.stdout.write((terminal.escape(text) if sys.stdout.isatty() and not raw else text) + "\n")
    sys.stdout.flush()
