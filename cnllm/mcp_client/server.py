"""The description of an MCP server: a command or a URL, what it gets, and how long to wait for it.

The names of a server and of its tools are such that every endpoint accepts them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from cnllm.client.credentials import is_safe_address
from cnllm.config import keys, redact
from cnllm.errors import McpError
from cnllm.types import checks

__all__ = [
    "HEADER_NAME",
    "HEADER_VALUE",
    "VARIABLE",
    "McpServer",
    "environment_pairs",
    "label_of",
    "label_of_command",
    "label_of_url",
    "split_target",
    "tool_name",
]


VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_VALUE = re.compile(r"(?:[!-~]+(?:[ \t]+[!-~]+)*)?")
_SECRET_OPTION = re.compile(r"--?[\w.-]+")
_MAX_TEXT = 300  # characters of a command in a message
_ENVIRONMENT = "a dict of variables, or a list of their names,"

_MIN_ECHO = 8  # characters; to remove a shorter secret would damage ordinary text
_MAX_LABEL = 24
_MAX_NAME = 64
_SEPARATOR = "__"  # no label holds it, so that a name has one label only
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_LAUNCHER = re.compile(r"(uvx?|pipx|python[\d.]*|npx|node|npm|pnpm|bunx?|deno|docker|podman|env)(\.exe|\.cmd)?")
_LAUNCHER_WORDS = {"run", "exec", "tool", "x", "dlx"}
_ENDING = re.compile(r"(\.(py|js|ts|mjs|sh|exe))$|[@=<>~!].*$|:[\w.-]+$")
_COMMON = re.compile(r"^(mcp[-_]server[-_]|server[-_]|mcp[-_])|([-_]mcp[-_]server|[-_]server|[-_]mcp)$")


class McpServer(Struct, frozen=True, kw_only=True):
    """An MCP server: `command` starts it, or it is at `url`. Times are in seconds.

    `env` maps the variables that its process gets to their values; None stands for the value in this process or in the
    keys file. `headers` go with each request to a URL; `{key}` in them is the key in the variable `key_env`. `tools`
    are the names of the tools that are offered; None offers all.
    """

    label: str
    command: tuple[str, ...] = ()
    url: str | None = None
    env: tuple[tuple[str, str | None], ...] = ()
    cwd: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    key_env: str | None = None
    tools: tuple[str, ...] | None = None
    timeout: float | None = 60
    start_timeout: float | None = 60
    list_timeout: float | None = 30

    @property
    def identity(self) -> str:
        """Return the text that tells this server from others: its URL, or its command and folder."""
        return self.url if self.url is not None else "\0".join((*self.command, self.cwd or ""))

    def __str__(self) -> str:
        """Return the URL or the command without secrets, and not too long."""
        if self.url is not None:
            text = redact.redact_url(self.url)
        else:
            text = " ".join(shlex.quote(word) for word in _without_secrets(self.command))
        text = redact.redact(text, self.secrets())
        return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"

    def read_environment(self) -> dict[str, str]:
        """Return the variables that the user named, with their values. Raise `McpError` for one that has none."""
        return {name: self._value(name) if value is None else value for name, value in self.env}

    def read_headers(self) -> dict[str, str]:
        """Return the headers with the key in them. Raise `McpError` where it is not set, or would go unencrypted."""
        if self.key_env is None:
            return dict(self.headers)
        assert self.url is not None
        if not is_safe_address(self.url):
            raise McpError(
                f"{self.key_env} would go to the MCP server {self.label} unencrypted",
                server=str(self),
                hint="use https",
            )
        key = self._value(self.key_env)
        return {name: value.replace("{key}", key) for name, value in self.headers}

    def secrets(self) -> tuple[str, ...]:
        """Return the values that no message may hold: of variables, headers, the URL, and options of the command.

        Those of the proxy are among them: it may echo them.
        """
        values = [
            value if value is not None else os.environ.get(name, "") or keys.find_key([name]) or ""
            for name, value in self.env
            if value is None or redact.is_secret_name(name) or redact.looks_secret(value)
        ]
        if self.key_env is not None:
            values.append(keys.find_key([self.key_env]) or "")
        values += [old for old, new in zip(self.command, _without_secrets(self.command), strict=True) if old != new]
        if self.url is not None:
            values += [*redact.request_secrets(self.url, dict(self.headers)), *redact.proxy_secrets()]
        return tuple(dict.fromkeys(value for value in values if value))

    def echoed_secrets(self) -> tuple[str, ...]:
        """Return the secrets to remove from results and definitions, which go to the model's endpoint.

        A command runs as the user: what it says of its own environment is for the user to decide.
        """
        return () if self.url is None else tuple(value for value in self.secrets() if len(value) >= _MIN_ECHO)

    def _value(self, name: str) -> str:
        """Return the value of a variable in this process or in the keys file."""
        value = os.environ.get(name) or keys.find_key([name])
        if value is None:
            raise McpError(
                f"the MCP server {self.label} needs {name}, which is not set",
                server=str(self),
                hint=f"set {name}, or run: cnllm keys set {name}",
            )
        return value


def split_target(command_or_url: str | Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """Return a URL, or the words of a command."""
    if not isinstance(command_or_url, str):
        words = checks.as_list("command_or_url", command_or_url, "a command, its words, or a URL")
        if not words or not all(isinstance(word, str) for word in words):
            raise ValueError("command_or_url is not a list of words")
        return None, tuple(words)
    text = command_or_url.strip()
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        if urlsplit(text).scheme not in ("http", "https") or not urlsplit(text).hostname:
            raise ValueError("command_or_url is not a URL that begins with http:// or https://")
        return text, ()
    try:
        words = shlex.split(text, posix=os.sep == "/")
    except ValueError as error:
        raise ValueError(f"command_or_url is not a command: {error}") from None
    if not words:
        raise ValueError("command_or_url is empty")
    return None, tuple(words)


def environment_pairs(env: Mapping[str, str | None] | Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """Return names of variables with their values. In a list, NAME=VALUE sets one."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(env, Mapping):
        pairs += env.items()
    else:
        for index, entry in enumerate(checks.as_list("env", env, _ENVIRONMENT)):
            checks.require_type(f"env[{index}]", entry, str, "a string: NAME or NAME=VALUE")
            name, equals, value = str.__str__(entry).partition("=")
            pairs.append((name, value if equals else None))
    for name, value in pairs:
        if not isinstance(name, str) or not VARIABLE.fullmatch(name):
            raise ValueError("env: one of its names is not the name of a variable")
        checks.require_type(f"env[{name!r}]", value, (str, type(None)), "a string or None")
    return tuple(pairs)


def _without_secrets(command: tuple[str, ...]) -> list[str]:
    """Return the words of a command, with a mark for each value that is named like a secret or looks like one."""
    words: list[str] = []
    for index, word in enumerate(command):
        option, equals, value = word.partition("=")
        previous = command[index - 1] if index else ""
        if "://" in word:
            words.append(redact.redact_url(word))
        elif equals and (redact.is_secret_name(option) or redact.looks_secret(value)):
            words.append(f"{option}={redact.MARK}")
        elif not equals and _SECRET_OPTION.fullmatch(previous) and redact.is_secret_name(previous):
            words.append(redact.MARK)
        else:
            words.append(redact.MARK if _is_key(word) else word)
    return words


def _is_key(word: str) -> bool:
    """Whether a word of a command is a key: it looks like one, and is no path, option or package."""
    return redact.looks_secret(word) and not re.search(r"[/\\.@]|^-", word) and len(word) >= 24


# ── names ────────────────────────────────────────────────────────────────────


def label_of(text: str) -> str:
    """Return a text as a label: letters, digits and single underscores or dashes, with a letter first."""
    label = re.sub(r"_{2,}", "_", _UNSAFE.sub("_", text)).strip("_-")[:_MAX_LABEL].strip("_-")
    return label if label[:1].isalpha() else f"mcp{f'_{label}' if label else ''}"[:_MAX_LABEL]


def label_of_command(command: Sequence[str]) -> str:
    """Return a label for a command: of the program, or of what a launcher such as `uvx` or `python` starts."""
    first = _base_name(command[0])
    if _LAUNCHER.fullmatch(first.lower()):
        words = [word for word in command[1:] if not word.startswith("-") and word not in _LAUNCHER_WORDS]
        targets = [word for word in words if "=" not in word[1:].partition("==")[0] and not re.search(r"\s", word)]
        first = _base_name(targets[0]) if targets else first
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


def tool_name(label: str, name: str) -> str:
    """Return the name under which a tool is offered: the label, two underscores, and the tool's own name.

    A name of another form gets letters that every endpoint accepts, and a part of its digest, so that it is the same
    each time and differs from all others.
    """
    safe = _UNSAFE.sub("_", name)
    plain = f"{label}{_SEPARATOR}{safe}"
    if safe == name and len(plain) <= _MAX_NAME and safe:
        return plain
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain[: _MAX_NAME - 9]}_{digest}"
