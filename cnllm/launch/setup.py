"""Read `clients.toml`, and build what a client is started with: its command, its environment and its files."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from cnllm.system import files

__all__ = ["KnownClient", "Setup", "Values", "build_setup", "clients", "find_client", "write_files"]

_PLACE = re.compile(r"\{(url|key|model|folder|context|output)\}")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_LOOPBACK = "127.0.0.1,localhost,::1"
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


class ClientFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file in the client's folder. With `once` it is written only where there is none: the client changes it, too."""

    source: str
    content: str
    once: bool = False


class Argument(Struct, frozen=True, forbid_unknown_fields=True):
    """Words that come before the user's arguments, unless one of `unless` is among these."""

    source: str
    words: list[str]
    unless: list[str] = field(default_factory=list)


class KnownClient(Struct, frozen=True, forbid_unknown_fields=True):
    """A client of `clients.toml`. `models` are the names and patterns under which it asks for the chosen model.

    `resume` are its arguments that go on with the last session. `writes` says what it writes outside of its folder.
    """

    title: str
    install: str
    source: str
    models: list[str]
    resume: str | None = None
    writes: str | None = None
    variables: dict[str, Variable] = field(default_factory=dict)
    files: dict[str, ClientFile] = field(default_factory=dict)
    arguments: list[Argument] = field(default_factory=list)


class _ClientsFile(Struct, frozen=True, forbid_unknown_fields=True):
    clients: dict[str, KnownClient]


@lru_cache(maxsize=1)
def clients() -> dict[str, KnownClient]:
    """Return all clients by their names."""
    content = Path(__file__).with_name("clients.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(content), _ClientsFile).clients


def find_client(command: str) -> tuple[str, KnownClient]:
    """Return the name and the entry of a command, which may be a path; for an unknown command the entry of any."""
    name = PurePath(command).name.lower()
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    entries = clients()
    return (name, entries[name]) if name in entries else (ANY, entries[ANY])


class Values(Struct, frozen=True):
    """The values for templates in `clients.toml`. `context` and `output`: limits of the model in tokens, if known."""

    url: str
    key: str
    model: str
    folder: str
    context: int | None = None
    output: int | None = None

    def __repr__(self) -> str:  # without the key
        return f"<Values for {self.model} at {self.url}>"


class Setup(Struct, frozen=True):
    """The start of a client. `variables` holds only what differs from the user's environment; None removes one."""

    command: tuple[str, ...]
    variables: dict[str, str | None]
    files: dict[Path, ClientFile]

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the whole environment of the client."""
        merged: dict[str, str | None] = {**base, **self.variables}
        return {name: value for name, value in merged.items() if value is not None}


def build_setup(
    client: KnownClient, command: str, args: Sequence[str], values: Values, environment: Mapping[str, str]
) -> Setup:
    """Fill the templates of an entry.

    Items that name a limit of the model are left out where the limit is unknown.
    """
    variables: dict[str, str | None] = {}
    for name, variable in client.variables.items():
        if variable.json is not None:
            variables[name] = json.dumps(_fill_table(variable.json, values), ensure_ascii=False)
        elif variable.value is None:
            if name in environment:
                variables[name] = None
        elif (value := _fill(variable.value, values)) is not None:
            own = environment.get(name) if variable.separator is not None else None
            variables[name] = f"{own}{variable.separator}{value}" if own else value
    variables |= _without_proxy(environment)
    files: dict[Path, ClientFile] = {}
    for name, file in client.files.items():
        content = _fill(file.content, values, quoted=True)
        if content is not None:
            files[Path(values.folder) / name] = replace(file, content=content)
    words: list[str] = []
    for argument in client.arguments:
        if any(_is_option(arg, option) for arg in args for option in argument.unless):
            continue
        filled = [_fill(word, values) for word in argument.words]
        if None not in filled:
            words += [word for word in filled if word is not None]
    return Setup((command, *words, *args), variables, files)


def _fill(template: str, values: Values, *, quoted: bool = False) -> str | None:
    """Return a text with the values in their places; None where a value is unknown.

    With `quoted` a value stands between double quotes of JSON, TOML or YAML.
    """

    def text(match: re.Match[str]) -> str:
        value = getattr(values, match[1])
        return json.dumps(value, ensure_ascii=False)[1:-1] if quoted and isinstance(value, str) else str(value)

    is_known = all(getattr(values, name) is not None for name in _PLACE.findall(template))
    return _PLACE.sub(text, template) if is_known else None


def _fill_table(table: Mapping[str, Any], values: Values) -> dict[str, Any] | None:
    """Return a table with the values in their places, as numbers where a number is the whole text.

    None where a value of this very table is unknown; a table within it is then left out.
    """
    out: dict[str, Any] = {}
    for name, item in table.items():
        if isinstance(item, dict):
            value: Any = _fill_table(item, values)
            if value is None:
                continue
        elif isinstance(item, str):
            value = _number(item, values) or _fill(item, values)
            if value is None:
                return None
        else:
            value = item
        out[_fill(name, values) or name] = value
    return out


def _number(template: str, values: Values) -> int | None:
    """Return the number that is the whole of a template, if one is."""
    match = _PLACE.fullmatch(template)
    value = getattr(values, match[1]) if match is not None else None
    return value if isinstance(value, int) else None


def _is_option(arg: str, option: str) -> bool:
    """Whether an argument is this option, with its value or without."""
    return arg == option or (option.startswith("--") and arg.startswith(f"{option}="))


def _without_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that keep requests to this machine away from the user's proxy."""
    if not any(environment.get(name) or environment.get(name.upper()) for name in _PROXIES):
        return {}
    before = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    value = f"{before},{_LOOPBACK}" if before else _LOOPBACK
    if before.strip() == "*":  # it means every host only where it stands alone
        value = "*"
    return {"no_proxy": value, "NO_PROXY": value}


def write_files(folder: Path, setup: Setup) -> None:
    """Write the files of a client. A reader sees the old content or the new one, never a part."""
    files.make_private_folder(folder)
    for path, file in setup.files.items():

        def change(old: bytes | None, file: ClientFile = file) -> bytes:
            return old if file.once and old is not None else file.content.encode()

        files.change_file(path, change)
