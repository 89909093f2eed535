"""Replaying: a transport that answers out of a file."""

from __future__ import annotations

import json
import os
import re
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

from cnllm import errors
from cnllm.cassette.parts import Answer, AsyncAnswer, Json, Request, as_bytes, require_plan
from cnllm.config import redact
from cnllm.errors import CnllmError, TransportError
from cnllm.types import checks

__all__ = ["AsyncPlayer", "Player"]


class Player:
    """Answers from a cassette, never from the network; each exchange answers once, in the file's order."""

    def __init__(self, path: str | os.PathLike[str], secrets: Iterable[str] = ()) -> None:
        self._shelf = _Shelf(path, secrets)

    def send(self, plan: Any) -> Answer:
        entry = self._shelf.take(plan)
        status, headers = _head(entry)
        return status, headers, _chunks(entry)

    def close(self) -> None:
        """Nothing is open."""


class AsyncPlayer:
    """The same for an async client."""

    def __init__(self, path: str | os.PathLike[str], secrets: Iterable[str] = ()) -> None:
        self._shelf = _Shelf(path, secrets)

    async def send(self, plan: Any) -> AsyncAnswer:
        entry = self._shelf.take(plan)
        status, headers = _head(entry)
        return status, headers, _achunks(entry)

    async def aclose(self) -> None:
        """Nothing is open."""


class _Shelf:
    """The exchanges of a cassette, and which of them answered already."""

    def __init__(self, path: str | os.PathLike[str], secrets: Iterable[str]) -> None:
        checks.require_path("path", path)
        self._path = Path(path)
        self._secrets = tuple(checks.as_list("secrets", secrets, "a list of strings"))
        for secret in self._secrets:
            checks.require_type("secrets: one of them", secret, str, "a string")
        self._rows: list[tuple[int, Json] | None] = list(self._load())  # None: it answered
        self._by_request: dict[int, deque[int]] = {}
        self._by_address: dict[tuple[str, str], deque[int]] = {}
        for index, row in enumerate(self._rows):
            if row is not None:
                request = _asked(row[1])
                self._by_request.setdefault(_digest(request), deque()).append(index)
                self._by_address.setdefault(request[:2], deque()).append(index)
        self._in_order = deque(range(len(self._rows)))
        self._lock = threading.Lock()  # a client may be used by several threads

    def take(self, plan: Request) -> Json:
        """Return the first exchange left whose method, URL path and body are those of the plan."""
        require_plan(plan)
        secrets = (*self._secrets, *redact.request_secrets(plan.url, plan.headers))
        asked = (
            plan.method,
            _path(redact.redact_url(plan.url, secrets)),
            redact.redact_data(_plain(plan.body), secrets),
        )
        with self._lock:
            alike = self._by_request.get(_digest(asked), deque())
            for index in alike:  # the first one, unless two digests are the same by chance
                row = self._rows[index]
                if row is not None and _asked(row[1]) == asked:
                    alike.remove(index)
                    self._rows[index] = None
                    return row[1]
            raise CnllmError(f"{self._path} holds no answer to this request: {self._why(asked)}", hint=_RECORD)

    def _why(self, asked: tuple[str, str, Any]) -> str:
        row = self._first(self._by_address.get(asked[:2], deque())) or self._first(self._in_order)
        if row is None:
            return f"all {len(self._rows)} were used" if self._rows else "it is empty"
        line, entry = row
        recorded = _asked(entry)
        for name, was, wants in zip(("method", "path"), recorded, asked, strict=False):
            if was != wants:
                return f"{name} is {_short(wants)}, recorded (line {line}) is {_short(was)}"
        key, was, wants = _difference(recorded[2], asked[2])
        return f"{key} is {_short(wants)}, recorded (line {line}) is {_short(was)}"

    def _first(self, queue: deque[int]) -> tuple[int, Json] | None:
        """Return the first row of a queue that has not answered; drop those before it."""
        while queue:
            row = self._rows[queue[0]]
            if row is not None:
                return row
            queue.popleft()
        return None

    def _load(self) -> Iterator[tuple[int, Json]]:
        try:
            lines = self._path.read_bytes().split(b"\n")
        except OSError as error:
            raise CnllmError(f"cannot replay {self._path}: {error.strerror}", hint=_RECORD) from error
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
                request = entry["request"]
                usable = "body" in request and isinstance(request["method"] + request["url"], str)
                usable = usable and ("response" in entry or "error" in entry or entry["ended"] == "abandoned")
            except (ValueError, TypeError, KeyError, AttributeError):
                usable = False
            if not usable:
                raise CnllmError(f"{self._path}:{number}: this line is no recorded exchange", hint=_RECORD)
            if "response" in entry or "error" in entry:
                yield number, entry


_RECORD = "record the call first: cnllm call … --record FILE"
_ABSENT = object()


def _asked(entry: Json) -> tuple[str, str, Any]:
    request = entry["request"]
    return request["method"], _path(request["url"]), request["body"]


def _digest(value: Any) -> int:
    """Return a number that is the same for equal values; of an object the order of its keys does not count."""
    if isinstance(value, dict):
        return hash(frozenset([(key, _digest(item)) for key, item in value.items()]))
    if isinstance(value, (list, tuple)):
        return hash(tuple([_digest(item) for item in value]))
    return hash(value)


def _path(url: str) -> str:
    """What stands between host and query. `urlsplit` would stumble over a redacted host."""
    return re.sub(r"^[^:/?#]+://[^/?#]*|[?#].*", "", url)


def _difference(was: Any, wants: Any, at: str = "") -> tuple[str, Any, Any]:
    """The first place, in the order of what was recorded, where two bodies differ, and both values."""
    pairs: list[tuple[Any, Any, Any]] = []
    if isinstance(was, dict) and isinstance(wants, dict):
        pairs = [(key, was.get(key, _ABSENT), wants.get(key, _ABSENT)) for key in {**was, **wants}]
    elif isinstance(was, list) and isinstance(wants, list):
        longest = range(max(len(was), len(wants)))
        pairs = [(i, was[i] if i < len(was) else _ABSENT, wants[i] if i < len(wants) else _ABSENT) for i in longest]
    for key, one, other in pairs:
        if one != other or type(one) is not type(other):
            return _difference(one, other, f"{at}.{key}" if at else str(key))
    return at or "body", was, wants


def _short(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _head(entry: Json) -> tuple[int, dict[str, str]]:
    if "response" not in entry:
        raise _error(entry)
    return entry["response"]["status"], dict(entry["response"]["headers"])


def _chunks(entry: Json) -> Iterator[bytes]:
    for chunk in entry["response"]["chunks"]:
        yield as_bytes(chunk)
    if "error" in entry:
        raise _error(entry)


async def _achunks(entry: Json) -> AsyncIterator[bytes]:
    for chunk in _chunks(entry):
        yield chunk


def _error(entry: Json) -> CnllmError:
    """The failure that was recorded, as the same class where it was one of the network."""
    kind = getattr(errors, str(entry["error"].get("type")), TransportError)
    if not (isinstance(kind, type) and issubclass(kind, TransportError)):
        kind = TransportError
    return kind(str(entry["error"].get("message")))


def _plain(body: Any) -> Any:
    """A body as it looks after a journey through JSON (tuples are lists, keys are strings)."""
    return json.loads(json.dumps(body))
