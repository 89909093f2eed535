"""Recording: a transport around another that keeps what went through it."""

from __future__ import annotations

import datetime
import json
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from cnllm.cassette.hide import redact_chunks
from cnllm.cassette.parts import Answer, AsyncAnswer, Json, Request, as_json, require_plan
from cnllm.config import redact
from cnllm.errors import CnllmError
from cnllm.types import checks

__all__ = ["AsyncRecorder", "Recorder", "append"]

Sink = Callable[[Json], None]
Secrets = Iterable[str] | Callable[[], Iterable[str]]
"""What is to be hidden; a function is asked each time, for keys may become known later."""


class Transport(Protocol):
    """What a `Recorder` wraps."""

    def send(self, plan: Any) -> Answer: ...


class AsyncTransport(Protocol):
    """What an `AsyncRecorder` wraps."""

    async def send(self, plan: Any) -> AsyncAnswer: ...


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
        require_plan(plan)
        carried = redact.request_secrets(plan.url, plan.headers)
        secrets = tuple(dict.fromkeys((*self.secrets, *carried)))
        request = {
            "method": plan.method,
            "url": redact.redact_url(plan.url, secrets),
            "headers": redact.redact_request_headers(plan.headers, secrets),
            "body": redact.redact_data(plan.body, secrets),
        }
        return _Entry(self, request, carried)


def _tape(place: str | os.PathLike[str] | Sink, secrets: Secrets) -> _Tape:
    if not callable(place):
        checks.require_path("path", place)
    if not callable(secrets):
        secrets = checks.as_list("secrets", secrets, "a list of strings, or a function that returns one,")
        for secret in secrets:
            checks.require_type("secrets: one of them", secret, str, "a string")
    return _Tape(place if callable(place) else _File(place).write, secrets)


class _File:
    """A file: private, appended to one whole line at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        append(self.path, b"")  # what cannot be written to is known before anything is sent

    def write(self, entry: Json) -> None:
        """Appends an exchange."""
        append(self.path, json.dumps(entry, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")


def append(path: Path, line: bytes) -> None:
    """Append a line to a file that is its owner's alone. Raises `CnllmError` where that is not possible."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
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
            f"cannot record to {path}: {error.strerror}", hint="name a file that can be written"
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
                "headers": redact.redact_headers(self._headers, secrets),
                "chunks": [as_json(chunk) for chunk in redact_chunks(self.chunks, secrets)],
            }
        entry["ended"] = ended
        if error is not None:
            entry["error"] = redact.redact_data(error, secrets)
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

    def set_read_deadline(self, seconds: float) -> None:
        """Reading is to end after so many seconds, where the transport inside can do that."""
        if hasattr(self._chunks, "set_read_deadline"):
            self._chunks.set_read_deadline(seconds)

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

    def set_read_deadline(self, seconds: float) -> None:
        """Reading is to end after so many seconds, where the transport inside can do that."""
        if hasattr(self._chunks, "set_read_deadline"):
            self._chunks.set_read_deadline(seconds)

    async def aclose(self) -> None:
        """No more is wanted."""
        try:
            await _aclose(self._chunks)
        finally:
            self._entry.abandoned()

    def __del__(self) -> None:
        self._entry.abandoned()


def _close(thing: object) -> None:
    close = getattr(thing, "close", None)
    if close is not None:
        close()


async def _aclose(thing: object) -> None:
    close = getattr(thing, "aclose", None)
    if close is not None:
        await close()
