"""Replay exchanges: a transport that answers from a file."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from cnllm.cassette.parts import (
    Answer,
    AsyncAnswer,
    RecordedExchange,
    read_exchange,
    require_plan,
    url_path,
)
from cnllm.config import redact
from cnllm.errors import ERRORS, CnllmError, TransportError
from cnllm.system.files import CASSETTE_BYTES, read_bounded
from cnllm.types import checks

__all__ = ["AsyncPlayer", "Player"]


class _Cassette:
    """The exchanges of a cassette, and which of them have answered. `needs_key`: a client needs no key to ask it."""

    needs_key = False

    def __init__(self, path: str | os.PathLike[str], secrets: Iterable[str] = ()) -> None:
        checks.require_path("path", path)
        self._path = Path(path)
        self._secrets = tuple(checks.as_list("secrets", secrets, "a list of strings"))
        for secret in self._secrets:
            checks.require_type("secrets: one of them", secret, str, "a string")
        self._rows: list[tuple[int, RecordedExchange] | None] = list(self._load())  # None: this one has answered
        self._by_request: dict[int, deque[int]] = {}
        for index, row in enumerate(self._rows):
            if row is not None:
                self._by_request.setdefault(_digest(row[1].key), deque()).append(index)
        self._lock = threading.Lock()  # a client may be used by several threads

    def _answer(self, plan: Any) -> Answer:
        """Return the recorded response to a plan."""
        entry = self._take(plan)
        if entry.response is None:
            raise _error(entry)
        return entry.response.status, dict(entry.response.headers), _chunks(entry)

    def _take(self, plan: Any) -> RecordedExchange:
        """Return the first unused exchange with the method, URL path and body of the plan."""
        require_plan(plan)
        secrets = (*self._secrets, *redact.request_secrets(plan.url, plan.headers))
        request = (
            plan.method,
            url_path(redact.redact_url(plan.url, secrets)),
            redact.redact_data(json.loads(json.dumps(plan.body)), secrets),
        )
        with self._lock:
            indexes = self._by_request.get(_digest(request), deque())
            for index in indexes:  # the first one, unless different requests have the same digest
                row = self._rows[index]
                if row is not None and row[1].key == request:
                    indexes.remove(index)
                    self._rows[index] = None
                    return row[1]
            raise CnllmError(f"{self._path} holds no answer to this request: {self._mismatch(request)}", hint=_RECORD)

    def _mismatch(self, request: tuple[str, str, Any]) -> str:
        unused = [row for row in self._rows if row is not None]
        if not unused:
            return f"all {len(self._rows)} were used" if self._rows else "it is empty"
        line, entry = next((row for row in unused if row[1].key[:2] == request[:2]), unused[0])
        recorded = entry.key
        for name, recorded_value, requested_value in zip(("method", "path"), recorded, request, strict=False):
            if recorded_value != requested_value:
                return f"{name} is {_short(requested_value)}, recorded (line {line}) is {_short(recorded_value)}"
        key, recorded_value, requested_value = _difference(recorded[2], request[2])
        return f"{key} is {_short(requested_value)}, recorded (line {line}) is {_short(recorded_value)}"

    def _load(self) -> Iterator[tuple[int, RecordedExchange]]:
        try:
            lines = read_bounded(self._path, CASSETTE_BYTES).split(b"\n")
        except OSError as error:
            raise CnllmError(f"cannot replay {self._path}: {error.strerror}", hint=_RECORD) from error
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                exchange = read_exchange(line)
                _digest(exchange.key)  # a body of a thousand levels has none
            except (ValueError, RecursionError):
                raise CnllmError(f"{self._path}:{number}: this line is not a recorded exchange", hint=_RECORD) from None
            if exchange.response is not None or exchange.error is not None:
                yield number, exchange


class Player(_Cassette):
    """Answers from a cassette, never from the network. Each exchange answers once, in the file's order."""

    def send(self, plan: Any) -> Answer:
        """Return the recorded response to a plan."""
        return self._answer(plan)

    def close(self) -> None:
        """Do nothing: no connection is open."""


class AsyncPlayer(_Cassette):
    """A `Player` for an async client."""

    async def send(self, plan: Any) -> AsyncAnswer:
        """Return the recorded response to a plan."""
        status, headers, chunks = self._answer(plan)
        return status, headers, _as_async(chunks)

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""


_RECORD = "record the call first: cnllm call … --record FILE"
_MISSING = object()


def _digest(value: Any) -> int:
    """Return a number that is equal for equal values. The order of an object's keys does not count."""
    if isinstance(value, dict):
        return hash(frozenset([(key, _digest(item)) for key, item in value.items()]))
    if isinstance(value, (list, tuple)):
        return hash(tuple([_digest(item) for item in value]))
    return hash(value)


def _difference(recorded: Any, requested: Any, path: str = "") -> tuple[str, Any, Any]:
    """Return the path of the first difference between two bodies, in recorded order, and both values."""
    pairs: list[tuple[Any, Any, Any]] = []
    if isinstance(recorded, dict) and isinstance(requested, dict):
        pairs = [(key, recorded.get(key, _MISSING), requested.get(key, _MISSING)) for key in {**recorded, **requested}]
    elif isinstance(recorded, list) and isinstance(requested, list):
        items = enumerate(zip_longest(recorded, requested, fillvalue=_MISSING))
        pairs = [(index, *values) for index, values in items]
    for key, recorded_item, requested_item in pairs:
        if recorded_item != requested_item or type(recorded_item) is not type(requested_item):
            return _difference(recorded_item, requested_item, f"{path}.{key}" if path else str(key))
    return path or "body", recorded, requested


def _short(value: Any) -> str:
    if value is _MISSING:
        return "absent"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _chunks(entry: RecordedExchange) -> Iterator[bytes]:
    yield from entry.chunks
    if entry.error is not None:
        raise _error(entry)


async def _as_async(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def _error(entry: RecordedExchange) -> CnllmError:
    """Return the recorded failure, in its class if that is a `TransportError`."""
    kind, message = ("", "") if entry.error is None else (entry.error.type, entry.error.message)
    error_class = ERRORS.get(kind)
    return error_class(message) if error_class and issubclass(error_class, TransportError) else TransportError(message)
