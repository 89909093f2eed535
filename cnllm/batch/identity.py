"""The identity of a request, and what it depends on beside the row: model, prompt, options, registry, version.

The identity is a digest of the URL, the model's id on the wire, the bytes of the body, and the schema of the answer
where the body does not hold it as it is; no key is in it. To know it the request has to be built. A finished row of
which neither the bytes nor the setting changed has the same identity, so a run that goes on builds no request for it.
Several runs share answers by their identities, in an SQLite file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from cnllm.config.redact import redact_url
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError
from cnllm.registry.model import Model
from cnllm.system import files
from cnllm.system.sqlite import try_again
from cnllm.types.json_form import encode_json

__all__ = [
    "AnswerCache",
    "RunSetting",
    "changed_parts",
    "describe_setting",
    "open_answers",
    "plan_identity",
    "readable_errors",
    "writing",
]


_NO_PART_OF_A_REQUEST = ("title", "price", "status", "keys", "errors", "error", "usage", "finish", "simulator", "batch")
"""Flags that no request depends on."""
_UNNAMED = ("tools", "api_key", "extra_headers", "timeout", "limits", "fallback", "params")

_TABLE = "CREATE TABLE IF NOT EXISTS answers (identity BLOB PRIMARY KEY, reply BLOB NOT NULL) STRICT, WITHOUT ROWID"
_BUSY_SECONDS = 10.0
_HINT = "leave --cache out, or move that file away"


class RunSetting(Struct, frozen=True):
    """The settings that the requests of a run depend on beside the rows. `parts` name each with a value or a digest."""

    fingerprint: bytes
    parts: dict[str, Any]


def plan_identity(plan: Plan) -> bytes:
    """Return the identity of a request."""
    head = f"{_plain_url(plan.url)}\0{plan.model.id}\0".encode("utf-8", "surrogatepass")
    return blake2b(head + plan.content + _rules(plan), digest_size=16).digest()


def _rules(plan: Plan) -> bytes:
    """Return the schema of the answer where the body does not hold it as it is; nothing otherwise."""
    answer = plan.answer
    if answer is None:
        return b""
    schema = encode_json(answer.schema)
    return b"" if schema in plan.content and not answer.wrapped else b"\0" + schema


_plain_url = lru_cache(maxsize=64)(redact_url)


def describe_setting(
    model: Model, probe: Plan, options: Mapping[str, Any], prompt: str | None, version: str, *, tools: bool
) -> RunSetting:
    """Return the setting of a run. `probe` is the request of a fixed text with the options of the run."""
    flags = {
        name: getattr(model.flags, name)
        for name in model.flags.__struct_fields__
        if name not in _NO_PART_OF_A_REQUEST and getattr(model.flags, name) is not None
    }
    values: dict[str, Any] = {name: value for name, value in options.items() if name not in _UNNAMED}
    values |= options.get("params") or {}
    parts: dict[str, Any] = {
        "model": f"{model.name} over {model.protocol}",
        "url": _plain_url(probe.url),
        "prompt": prompt,
        "options": {name: _short(value) for name, value in values.items() if value is not None},
        "registry": _digest(flags),
        "request": blake2b(probe.content, digest_size=8).hexdigest(),
        "tools": tools,
        "cnllm": version,
    }
    return RunSetting(blake2b(msgspec.json.encode(parts, order="sorted"), digest_size=16).digest(), parts)


def changed_parts(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> list[str]:
    """Name what differs between two settings, in words."""
    if before is None:
        return ["the setting of an earlier run, which is not known"]
    out = []
    if before.get("model") != now["model"] or before.get("url") != now["url"]:
        old, new = (f"{parts.get('model')} at {parts.get('url')}" for parts in (before, now))
        out.append(f"the model: {old} → {new}")
    if before.get("prompt") != now["prompt"]:
        out.append(f"the prompt: {_quote(before.get('prompt'))} → {_quote(now['prompt'])}")
    old_options, new_options = before.get("options") or {}, now["options"]
    for name in sorted({*old_options, *new_options}):
        if old_options.get(name) != new_options.get(name):
            old, new = (str(options.get(name, "not set")) for options in (old_options, new_options))
            out.append(f"the option {name}: {old} → {new}")
    if before.get("tools") != now["tools"]:
        out.append("whether tools run")
    rest = {
        "registry": "the registry's entry of the model",
        "cnllm": f"the version of cnllm: {before.get('cnllm')} → {now['cnllm']}",
        "request": "the requests that are built from the same options",
    }
    return out or [text for part, text in rest.items() if before.get(part) != now[part]][:1]


def _quote(text: Any) -> str:
    return "none" if text is None else repr(text if len(str(text)) <= 60 else f"{str(text)[:60]}…")


def _short(value: Any) -> Any:
    """Return a value that is short enough to be stored and shown; of a long one a digest."""
    try:
        text = msgspec.json.encode(value, enc_hook=_kind, order="sorted").decode()
    except (TypeError, ValueError):
        text = _kind(value)
    if len(text) <= 200:
        return msgspec.json.decode(text) if text[:1] in '"[{0123456789-tfn' else text
    return f"digest {blake2b(text.encode(), digest_size=8).hexdigest()}"


def _kind(value: Any) -> str:
    """Return a value that JSON cannot hold by its type: a repr may differ in each process."""
    return type(value).__name__


def _digest(value: Any) -> str:
    return blake2b(msgspec.json.encode(value, enc_hook=str, order="sorted"), digest_size=8).hexdigest()


# ── answers that several runs share ──────────────────────────────────────────


def open_answers(path: Path, hint: str, tables: Sequence[str], *, is_exclusive: bool = False) -> sqlite3.Connection:
    """Open a file of answers, and create it if there is none. Raises `CnllmError` for one of another program.

    `is_exclusive`: this process alone may have it open.
    """
    files.make_private_folder(path.parent, narrow=False)
    files.create_private_file(path)
    database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if names and "answers" not in names:
            raise CnllmError(f"{path} is a database of another program", hint=hint)
        if is_exclusive:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
        try_again(lambda: _create_tables(database, tables), _BUSY_SECONDS)
        database.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        database.close()
        raise
    return database


def _create_tables(database: sqlite3.Connection, tables: Sequence[str]) -> None:
    """Create the tables that the file lacks: all of them, or none. Where it has all, no writer is in the way."""
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("BEGIN")
    with database:
        for statement in tables:
            database.execute(statement)


@contextmanager
def writing(database: sqlite3.Connection) -> Iterator[None]:
    """Run one transaction: all of it is stored, or nothing."""
    database.execute("BEGIN IMMEDIATE")
    with database:  # which commits, or rolls back
        yield


@contextmanager
def readable_errors(path: Path, hint: str, file_hint: str | None = None) -> Iterator[None]:
    """Raise `CnllmError` for an error of SQLite, or of the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise CnllmError(f"{path}: {error}", hint=hint) from error
    except OSError as error:
        raise CnllmError(f"{error.filename or path}: {error.strerror}", hint=file_hint) from error


class AnswerCache:
    """An open cache. Each method may be called in any thread, one at a time. Raises `CnllmError` for a bad file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with readable_errors(path, _HINT):
            self._db = open_answers(path, _HINT, [_TABLE])

    def find(self, identity: bytes) -> bytes | None:
        """Return the reply of a request as JSON; None where no run has one."""
        with readable_errors(self.path, _HINT):
            row = self._db.execute("SELECT reply FROM answers WHERE identity = ?", (identity,)).fetchone()
            return None if row is None else bytes(row[0])

    def store(self, answers: Sequence[tuple[bytes, bytes]]) -> None:
        """Store replies as JSON. One that is there stays."""
        with readable_errors(self.path, _HINT), writing(self._db):
            self._db.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?)", answers)

    def close(self) -> None:
        """Close the file."""
        self._db.close()
