"""Recording and replaying of exchanges, as transports around or in place of another.

A cassette is a text file of one JSON object a line, each a request with what came back:

    {"when": …, "request": {"method", "url", "headers", "body"},
     "response": {"status", "headers", "chunks"}, "ended": …}

`chunks` are the pieces as they arrived, so that a replay is split as the original was: text, or {"base64": …}
where a piece is not UTF-8 by itself. `ended` is "whole", "abandoned" (nobody read on) or "failed", then with
`error`. No secret is in it: the values known to the recorder are taken out, those that the request carried, and
whatever stands under an auth-like name.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import re
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from cnllm import errors, redact
from cnllm.errors import CnllmError, TransportError

__all__ = ["AsyncPlayer", "AsyncRecorder", "Player", "Recorder"]

Answer = tuple[int, dict[str, str], Iterator[bytes]]
AsyncAnswer = tuple[int, dict[str, str], AsyncIterator[bytes]]
Json = dict[str, Any]
Sink = Callable[[Json], None]
Secrets = Iterable[str] | Callable[[], Iterable[str]]
"""What is to be hidden; a function is asked each time, for keys may become known later."""


class Request(Protocol):
    """What a transport is told to send; `cnllm.Plan` is one."""

    @property
    def method(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def headers(self) -> dict[str, str]: ...
    @property
    def body(self) -> Any: ...


class Transport(Protocol):
    """What a `Recorder` wraps."""

    def send(self, plan: Any) -> Answer: ...


class AsyncTransport(Protocol):
    """What an `AsyncRecorder` wraps."""

    async def send(self, plan: Any) -> AsyncAnswer: ...


# ── recording ────────────────────────────────────────────────────────────────
class Recorder:
    """Passes requests on to another transport and appends each exchange to a file, once it ended.

    In place of the file a function may take each exchange.
    """

    def __init__(self, inner: Transport, path: str | os.PathLike[str] | Sink, secrets: Secrets = ()) -> None:
        self._inner = inner
        self._tape = _tape(path, secrets)

    def send(self, plan: Any) -> Answer:
        entry = self._tape.begin(plan)
        try:
            status, headers, chunks = self._inner.send(plan)
        except BaseException as error:
            entry.failed(error)
            raise
        entry.answered(status, headers)
        return status, headers, _Recording(entry, chunks)

    def close(self) -> None:
        """Closes the transport inside, if it can be closed."""
        _close(self._inner)


class AsyncRecorder:
    """The same around an async transport."""

    def __init__(self, inner: AsyncTransport, path: str | os.PathLike[str] | Sink, secrets: Secrets = ()) -> None:
        self._inner = inner
        self._tape = _tape(path, secrets)

    async def send(self, plan: Any) -> AsyncAnswer:
        entry = self._tape.begin(plan)
        try:
            status, headers, chunks = await self._inner.send(plan)
        except BaseException as error:
            entry.failed(error)
            raise
        entry.answered(status, headers)
        return status, headers, _AsyncRecording(entry, chunks)

    async def aclose(self) -> None:
        """Closes the transport inside, if it can be closed."""
        await _aclose(self._inner)


class _Tape:
    """Where exchanges go."""

    def __init__(self, write: Sink, secrets: Secrets) -> None:
        self.write = write
        self._secrets = secrets if callable(secrets) else tuple(secrets)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What is known by now."""
        return tuple(self._secrets()) if callable(self._secrets) else self._secrets

    def begin(self, plan: Request) -> _Entry:
        carried = redact.carried(plan.url, plan.headers)
        secrets = tuple(dict.fromkeys((*self.secrets, *carried)))
        request = {
            "method": plan.method,
            "url": redact.url(plan.url, secrets),
            "headers": redact.sent_headers(plan.headers, secrets),
            "body": redact.data(plan.body, secrets),
        }
        return _Entry(self, request, carried)


def _tape(place: str | os.PathLike[str] | Sink, secrets: Secrets) -> _Tape:
    return _Tape(place if callable(place) else _File(place).write, secrets)


class _File:
    """A file: private, appended to one whole line at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._append(b"")  # what cannot be written to is known before anything is sent

    def write(self, entry: Json) -> None:
        """Appends an exchange."""
        self._append(json.dumps(entry, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        try:
            descriptor = os.open(self.path, flags, 0o600)
            try:
                found = os.fstat(descriptor).st_mode
                if stat.S_ISREG(found) and found & 0o077 and os.name != "nt":
                    os.fchmod(descriptor, 0o600)
                while line:
                    line = line[os.write(descriptor, line) :]
            finally:
                os.close(descriptor)
        except OSError as error:
            raise CnllmError(
                f"cannot record to {self.path}: {error.strerror}", hint="name a file that can be written"
            ) from error


class _Entry:
    """One exchange while it happens, written once: by the first of `whole`, `failed` and `abandoned`."""

    def __init__(self, tape: _Tape, request: Json, carried: tuple[str, ...]) -> None:
        self._tape: _Tape | None = tape
        self._carried = carried
        self._when = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        self._request = request
        self._response: Json | None = None
        self._headers: dict[str, str] = {}
        self.chunks: list[bytes] = []

    def answered(self, status: int, headers: dict[str, str]) -> None:
        self._headers = headers
        self._response = {"status": status, "headers": headers}

    def whole(self) -> None:
        self._write("whole")

    def failed(self, error: BaseException) -> None:
        if isinstance(error, Exception):
            self._write("failed", {"type": type(error).__name__, "message": str(error)})
        else:
            self.abandoned()  # Ctrl-C, a cancelled task

    def abandoned(self) -> None:
        self._write("whole" if self._complete() else "abandoned")

    def _complete(self) -> bool:
        """Had all arrived that there was, though nobody waited for the connection to say so?"""
        if self._response is None:
            return False
        fields = {name.lower(): value for name, value in self._headers.items()}
        length = fields.get("content-length", "")
        if length.isdigit() and "content-encoding" not in fields:
            return sum(map(len, self.chunks)) >= int(length)
        return b"".join(self.chunks).rstrip().endswith(b"[DONE]")

    def _write(self, ended: str, error: Json | None = None) -> None:
        tape, self._tape = self._tape, None
        if tape is None:
            return
        secrets = tuple(dict.fromkeys((*tape.secrets, *self._carried)))
        entry: Json = {"when": self._when, "request": self._request}
        if self._response is not None:
            entry["response"] = {
                "status": self._response["status"],
                "headers": redact.headers(self._headers, secrets),
                "chunks": [_as_json(chunk) for chunk in _without(self.chunks, secrets)],
            }
        entry["ended"] = ended
        if error is not None:
            entry["error"] = redact.data(error, secrets)
        tape.write(entry)


class _Recording(Iterator[bytes]):
    """The chunks of a reply, on their way to the reader."""

    def __init__(self, entry: _Entry, chunks: Iterator[bytes]) -> None:
        self._entry = entry
        self._chunks = iter(chunks)

    def __next__(self) -> bytes:
        try:
            chunk = next(self._chunks)
        except StopIteration:
            self._entry.whole()
            raise
        except BaseException as error:
            self._entry.failed(error)
            raise
        self._entry.chunks.append(chunk)
        return chunk

    def hurry(self, seconds: float) -> None:
        """Reading is to end after so many seconds, where the transport inside can do that."""
        if hasattr(self._chunks, "hurry"):
            self._chunks.hurry(seconds)

    def close(self) -> None:
        """No more is wanted."""
        try:
            _close(self._chunks)
        finally:
            self._entry.abandoned()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._entry.abandoned()


class _AsyncRecording(AsyncIterator[bytes]):
    """The chunks of a reply, on their way to an async reader."""

    def __init__(self, entry: _Entry, chunks: AsyncIterator[bytes]) -> None:
        self._entry = entry
        self._chunks = aiter(chunks)

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._entry.whole()
            raise
        except BaseException as error:
            self._entry.failed(error)
            raise
        self._entry.chunks.append(chunk)
        return chunk

    def hurry(self, seconds: float) -> None:
        """Reading is to end after so many seconds, where the transport inside can do that."""
        if hasattr(self._chunks, "hurry"):
            self._chunks.hurry(seconds)

    async def aclose(self) -> None:
        """No more is wanted."""
        try:
            await _aclose(self._chunks)
        finally:
            self._entry.abandoned()

    def __del__(self) -> None:
        self._entry.abandoned()


# ── replaying ────────────────────────────────────────────────────────────────
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
        self._path = Path(path)
        self._secrets = tuple(secrets)
        self._left = list(self._load())
        self._all = len(self._left)

    def take(self, plan: Request) -> Json:
        """The first exchange left whose method, URL path and body are those of the plan."""
        secrets = (*self._secrets, *redact.carried(plan.url, plan.headers))
        asked = (
            plan.method,
            _path(redact.url(plan.url, secrets)),
            redact.data(_plain(plan.body), secrets),
        )
        for index, (_, entry) in enumerate(self._left):
            if _asked(entry) == asked:
                return self._left.pop(index)[1]
        raise CnllmError(f"{self._path} holds no answer to this request: {self._why(asked)}", hint=_RECORD)

    def _why(self, asked: tuple[str, str, Any]) -> str:
        if not self._left:
            return f"all {self._all} were used" if self._all else "it is empty"
        near = [row for row in self._left if _asked(row[1])[:2] == asked[:2]]
        line, entry = (near or self._left)[0]
        recorded = _asked(entry)
        for name, was, wants in zip(("method", "path"), recorded, asked, strict=False):
            if was != wants:
                return f"{name} is {_short(wants)}, recorded (line {line}) is {_short(was)}"
        key, was, wants = _difference(recorded[2], asked[2])
        return f"{key} is {_short(wants)}, recorded (line {line}) is {_short(was)}"

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
        yield _as_bytes(chunk)
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


# ── bodies and pieces ────────────────────────────────────────────────────────
def _plain(body: Any) -> Any:
    """A body as it looks after a journey through JSON (tuples are lists, keys are strings)."""
    return json.loads(json.dumps(body))


def _as_json(chunk: bytes) -> str | dict[str, str]:
    try:
        return chunk.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(chunk).decode()}


def _as_bytes(chunk: str | dict[str, str]) -> bytes:
    return chunk.encode() if isinstance(chunk, str) else base64.b64decode(chunk["base64"])


def _without(chunks: list[bytes], secrets: tuple[str, ...]) -> list[bytes]:
    """The chunks without secrets, also one that is split over several; the splits stay where they are."""
    if not secrets:
        return chunks
    # bytes as latin-1, so that places in the text are places in the bytes
    text = b"".join(chunks).decode("latin-1")
    found = redact.spans(text, [secret.encode("utf-8", "surrogatepass").decode("latin-1") for secret in secrets])
    if not found:
        return chunks
    cleaned: list[bytes] = []
    begin = 0
    for chunk in chunks:
        end, at, piece = begin + len(chunk), begin, b""
        for start, stop in found:
            if stop <= begin or start >= end:
                continue
            piece += text[at : max(start, at)].encode("latin-1")
            if start >= begin:  # the mark stands where the secret began
                piece += redact.MARK.encode()
            at = min(stop, end)
        cleaned.append(piece + text[at:end].encode("latin-1"))
        begin = end
    return cleaned


def _close(thing: object) -> None:
    close = getattr(thing, "close", None)
    if close is not None:
        close()


async def _aclose(thing: object) -> None:
    close = getattr(thing, "aclose", None)
    if close is not None:
        await close()
