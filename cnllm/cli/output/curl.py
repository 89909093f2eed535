"""Format a request as a curl command for a shell."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from cnllm.cli.output import terminal

__all__ = ["curl_command"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def curl_command(method: str, url: str, headers: dict[str, str], body: Any, *, placeholder: str, env: str) -> str:
    """Return the command. In headers the shell replaces the placeholder with `$ENV`; it changes no other text.

    The body goes through stdin, so that its length and its characters do not matter.
    """
    end = "CNLLM"
    # one line without control characters: nothing in it can end the here-document, or act on the terminal
    text = terminal.escape_json(json.dumps(body, ensure_ascii=False))
    lines = [f"curl -sS -N -X {shlex.quote(method)} {shlex.quote(url)}"]
    lines += [f"  -H {_header(f'{name}: {value}', placeholder, env)}" for name, value in headers.items()]
    lines += [f"  --data-binary @- <<'{end}'"]
    return " \\\n".join(lines) + f"\n{text}\n{end}"


def _header(text: str, placeholder: str, env: str) -> str:
    if not placeholder or placeholder not in text:
        return shlex.quote(text)
    if not _NAME.fullmatch(env):
        raise ValueError(f"{env!r} is not the name of a variable")
    return f'"${env}"'.join(shlex.quote(piece) if piece else "" for piece in text.split(placeholder))
