"""Read `clients.toml`: what each client needs to use a gateway."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

import msgspec
from msgspec import Struct, field

__all__ = ["Argument", "Client", "File", "Variable", "clients", "find_client"]

ANY = "any"
"""The entry for commands that have none of their own."""

_ENDINGS = (".exe", ".cmd", ".bat", ".ps1")


class Variable(Struct, frozen=True, forbid_unknown_fields=True):
    """A variable of the environment: a text, or a table that becomes JSON. Without either it is removed.

    `source` says where the client documents it. With `separator` the text stands behind the user's own.
    """

    source: str
    value: str | None = None
    separator: str | None = None
    json: dict[str, Any] | None = None


class File(Struct, frozen=True, forbid_unknown_fields=True):
    """A file in the client's folder. With `once` it is written only where there is none: the client changes it, too."""

    source: str
    content: str
    once: bool = False


class Argument(Struct, frozen=True, forbid_unknown_fields=True):
    """Words that come before the user's arguments, unless one of `unless` is among these."""

    source: str
    words: list[str]
    unless: list[str] = field(default_factory=list)


class Client(Struct, frozen=True, forbid_unknown_fields=True):
    """A client. `models` are the names and patterns under which it asks for the chosen model."""

    title: str
    install: str
    source: str
    models: list[str]
    variables: dict[str, Variable] = field(default_factory=dict)
    files: dict[str, File] = field(default_factory=dict)
    arguments: list[Argument] = field(default_factory=list)


class _Document(Struct, frozen=True, forbid_unknown_fields=True):
    clients: dict[str, Client]


@lru_cache(maxsize=1)
def clients() -> dict[str, Client]:
    """Return all clients by their names."""
    content = Path(__file__).with_name("clients.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(content), _Document).clients


def find_client(command: str) -> tuple[str, Client]:
    """Return the name and the entry of a command, which may be a path; for an unknown command the entry of any."""
    name = PurePath(command).name.lower()
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    entries = clients()
    return (name, entries[name]) if name in entries else (ANY, entries[ANY])
