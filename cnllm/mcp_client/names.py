"""Names that every endpoint accepts: of a server, and of its tools."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

__all__ = ["MAX_LABEL", "label_of", "label_of_command", "label_of_url", "tool_names"]

MAX_LABEL = 24
_MAX_NAME = 64
_SEPARATOR = "__"  # no label holds it, so that a name has one label only
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_LAUNCHER = re.compile(r"(uvx?|pipx|python[\d.]*|npx|node|npm|pnpm|bunx?|deno|docker|podman|env)(\.exe|\.cmd)?")
_LAUNCHER_WORDS = {"run", "exec", "tool", "x", "dlx"}
_ENDING = re.compile(r"(\.(py|js|ts|mjs|sh|exe))$|[@=<>~!].*$|:[\w.-]+$")
_COMMON = re.compile(r"^(mcp[-_]server[-_]|server[-_]|mcp[-_])|([-_]mcp[-_]server|[-_]server|[-_]mcp)$")


def label_of(text: str) -> str:
    """Return a text as a label: letters, digits and single underscores or dashes, with a letter first."""
    label = re.sub(r"_{2,}", "_", _UNSAFE.sub("_", text)).strip("_-")[:MAX_LABEL].strip("_-")
    return label if label[:1].isalpha() else f"mcp{f'_{label}' if label else ''}"[:MAX_LABEL]


def label_of_command(command: Sequence[str]) -> str:
    """Return a label for a command: of the program, or of what a launcher such as `uvx` or `python` starts."""
    first = _base_name(command[0])
    if _LAUNCHER.fullmatch(first.lower()):
        words = [word for word in command[1:] if not word.startswith("-") and word not in _LAUNCHER_WORDS]
        named = [word for word in words if "=" not in word[1:].partition("==")[0] and not re.search(r"\s", word)]
        first = _base_name(named[0]) if named else first
    return label_of(_COMMON.sub("", _ENDING.sub("", first)) or first)


def label_of_url(url: str) -> str:
    """Return a label for a URL: its host without `www`, `mcp`, `api` and the top-level domain."""
    host = urlsplit(url).hostname or ""
    if re.fullmatch(r"[\d.]+|.*:.*", host):
        return label_of(f"at_{host}")
    parts = host.split(".")
    words = [part for part in (parts[:-1] if len(parts) > 1 else parts) if part not in ("www", "mcp", "api")]
    return label_of(words[-1] if words else host)


def _base_name(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def tool_names(label: str, names: Sequence[str]) -> list[str]:
    """Return the names under which tools are offered: the label, two underscores, and the tool's own name.

    A name of another form gets letters that every endpoint accepts, and a part of its digest, so that it is the same
    each time and differs from all others.
    """
    offered = []
    for name in names:
        safe = _UNSAFE.sub("_", name)
        plain = f"{label}{_SEPARATOR}{safe}"
        if safe != name or len(plain) > _MAX_NAME or not safe:
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
            plain = f"{plain[: _MAX_NAME - 9]}_{digest}"
        offered.append(plain)
    return offered
