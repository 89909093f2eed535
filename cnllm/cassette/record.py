"""Record exchanges: a transport around another one that writes down its traffic without secrets."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from cnllm.cassette.parts import Answer, AsyncAnswer, Json, as_json, require_plan
from cnllm.config import redact
from cnllm.errors import CnllmError
from cnllm.system import files
from cnllm.system.closing import Closing
from cnllm.system.locks import lock_file
from cnllm.system.processes import generation
from cnllm.types import checks

__all__ = ["AsyncRecorder", "Recorder", "append", "encode_entry", "redact_chunks"]

_BLOCK = 1 << 16
_LOCK_SECONDS = 5.0  # for which another program may append to the file
_BEGIN = b'{"when": "'  # the first bytes of every exchange that a recorder writes

Inner = TypeVar("Inner")
Sink = Callable[[Json], None]
Secrets = Iterable[str] | Callable[[], Iterable[str]]
"""The secrets to hide. A function is called each time, because a key may become known later."""


class InnerTransport(Protocol):
    """The transport inside a `Recorder`."""

    def send(self, plan: Any, /) -> tuple[int, Mapping[str, str], Iterator[bytes]]:
        """Send a plan. Return status, headers and the chunks of the body."""


class AsyncInnerTransport(Protocol):
    """The transport inside an `AsyncRecorder`."""

    async def send(self, plan: Any, /) -> tuple[int, Mapping[str, str], AsyncIterator[bytes]]:
        """Send a plan. Return status, headers and the chunks of the body."""


class _Wrapper(Generic[Inner]):
    """The common part of the recorders. `inner` is the transport whose traffic is recorded."""

    def __init__(self, inner: Inner, path: str | os.PathLike[str] | Sink, secrets: Secrets = ()) -> None:
        self._inner: Any = inner
        self.needs_key: bool = getattr(inner, "needs_key", True)
        self._tape = _Tape(path, secrets)

    def interrupt(self, plan: Any) -> None:
        """End a request whose response has not begun, if the inner transport can do that."""
        getattr(self._inner, "interrupt", _do_nothing)(plan)


class Recorder(_Wrapper[InnerTransport]):
    """Passes requests to another transport and appends each exchange to a file when it has ended.

    Instead of the file it may call a function with each exchange.
    """

    def send(self, plan: Any) -> Answer:
        """Send a plan with the inner transport and record the exchange."""
        entry = self._tape.begin(plan)
        try:
            status, headers, chunks = self._inner.send(plan)
        except BaseException as error:
            entry.write_end(error)
            raise
        return status, entry.set_response(status, headers), _Recording(entry, chunks)

    def close(self) -> None:
        """Close the inner transport, if it can be closed."""
        getattr(self._inner, "close", _do_nothing)()


class AsyncRecorder(_Wrapper[AsyncInnerTransport]):
    """A `Recorder` around an async transport."""

    async def send(self, plan: Any) -> AsyncAnswer:
        """Send a plan with the inner transport and record the exchange."""
        entry = self._tape.begin(plan)
        try:
            status, headers, chunks = await self._inner.send(plan)
        except BaseException as error:
            entry.write_end(error)
            raise
        return status, entry.set_response(status, headers), _AsyncRecording(entry, chunks)

    async def aclose(self) -> None:
        """Close the inner transport, if it can be closed."""
        if hasattr(self._inner, "aclose"):
            await self._inner.aclose()


class _Tape:
    """The destination of exchanges."""

    def __init__(self, path: str | os.PathLike[str] | Sink, secrets: Secrets) -> None:
        if not callable(path):
            checks.require_path("path", path)
        if not callable(secrets):
            secrets = tuple(checks.as_list("secrets", secrets, "a list of strings, or a function that returns one,"))
            for secret in secrets:
                checks.require_type("secrets: one of them", secret, str, "a string")
        self._secrets = secrets
        self.write = path if callable(path) else _file_sink(Path(path))

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the secrets that are known now, those of the environment's proxy too."""
        return (*(self._secrets() if callable(self._secrets) else self._secrets), *redact.proxy_secrets())

    def begin(self, plan: Any) -> _Entry:
        """Return an entry for a request, without secrets."""
        require_plan(plan)
        request_secrets = redact.request_secrets(plan.url, plan.headers)
        secrets = tuple(dict.fromkeys((*self.secrets, *request_secrets)))
        request = {
            "method": plan.method,
            "url": redact.redact_url(plan.url, secrets),
            "headers": redact.redact_request_headers(plan.headers, secrets),
            "body": redact.redact_data(plan.body, secrets),
        }
        return _Entry(self, request, request_secrets, getattr(plan, "model", None))


def _file_sink(path: Path) -> Sink:
    """Return a function that appends an exchange to a private file, as one whole line.

    Where that fails a warning says so: the answer is there, and may have been paid for.
    """
    append(path, b"")  # raises before any request where the file is not writable

    def write(entry: Json) -> None:
        try:
            append(path, encode_entry(entry))
        except CnllmError as error:
            import logging

            logging.getLogger("cnllm.cassette").warning("%s; this exchange is not recorded, the call goes on", error)

    return write


def encode_entry(entry: Json) -> bytes:
    """Return the line of an exchange."""
    return json.dumps(entry, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def append(path: Path, line: bytes) -> None:
    """Append a whole line to a file that only its owner can read, or nothing. Raise `CnllmError` where that fails."""
    try:
        descriptor = files.open_private(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                files.restrict_mode(descriptor)  # asked for: the user named it as the file of recordings
                with _lock(descriptor):
                    _append_whole(descriptor, line)
            else:
                _write(descriptor, line)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise CnllmError(f"cannot record to {path}: {error.strerror}", hint="use a writable file") from error


def _append_whole(descriptor: int, line: bytes) -> None:
    """Append a line behind the last whole one, or nothing."""
    size = os.fstat(descriptor).st_size
    if line and size and files.read_at(descriptor, 1, size - 1) != b"\n":
        size, end = _end_of_lines(descriptor, size)
        line = end + line
    try:
        _write(descriptor, line)
    except OSError:
        os.ftruncate(descriptor, size)  # ours: what this write added
        raise


def _end_of_lines(descriptor: int, size: int) -> tuple[int, bytes]:
    """Cut off the half exchange at the end of a file. Return the size, and the line break that another line lacks.

    A crash leaves half an exchange; an editor may leave a whole one without its line break. Any other text stays: the
    user may have named a file that is no cassette.
    """
    start = _line_start(descriptor, size)
    if _BEGIN.startswith(files.read_at(descriptor, len(_BEGIN), start)):
        try:
            json.loads(files.read_at(descriptor, size - start, start))
        except (ValueError, RecursionError):
            os.ftruncate(descriptor, start)  # ours: an exchange that a recorder left unfinished
            return start, b""
    return size, b"\n"


def _line_start(descriptor: int, end: int) -> int:
    """Return where the line begins that has no line break before this end."""
    while end:
        start = max(0, end - _BLOCK)
        if (found := files.read_at(descriptor, end - start, start).rfind(b"\n")) >= 0:
            return start + found + 1
        end = start
    return 0


def _write(descriptor: int, line: bytes) -> None:
    while line:
        line = line[os.write(descriptor, line) :]


@contextlib.contextmanager
def _lock(descriptor: int) -> Iterator[None]:
    """Lock a file where the system can: another program may append to it, too. Raise `OSError` where it never ends."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock_file(descriptor, _LOCK_SECONDS))
        except TimeoutError:
            raise
        except OSError:
            pass  # some file systems have no locks
        yield


class _Entry:
    """One exchange in progress, written once, by what ends it first."""

    def __init__(self, tape: _Tape, request: Json, request_secrets: tuple[str, ...], model: Any) -> None:
        self._tape: _Tape | None = tape
        self._generation = generation()
        self._model = model
        self._request_secrets = request_secrets
        self._when = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        self._request = request
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._sent_at = time.monotonic()
        self._times: list[float] = []
        self.chunks: list[bytes] = []

    def add_chunk(self, chunk: bytes) -> None:
        """Add a chunk, with the time since the request was sent."""
        self.chunks.append(chunk)
        self._times.append(round(time.monotonic() - self._sent_at, 4))

    def set_response(self, status: int, headers: Mapping[str, str]) -> dict[str, str]:
        """Store status and headers. Return a copy of the headers."""
        self._status, self._headers = status, dict(headers)
        return dict(headers)

    def write_end(self, error: BaseException) -> None:
        """Write the exchange that an error ended: whole after the last chunk, abandoned after an interrupt."""
        if isinstance(error, StopIteration | StopAsyncIteration):
            self.write("whole")
        elif isinstance(error, Exception):
            self.write("failed", {"type": type(error).__name__, "message": str(error)})
        else:
            self.write_abandoned()  # Ctrl-C, a cancelled task

    def write_abandoned(self) -> None:
        """Write the exchange as abandoned, unless all of it had arrived."""
        self.write("whole" if self._is_complete() else "abandoned")

    def _is_complete(self) -> bool:
        """Whether all bytes had arrived, although the reader did not wait for the end of the connection."""
        if self._status is None:
            return False
        fields = {name.lower(): value for name, value in self._headers.items()}
        length = fields.get("content-length", "")
        if length.isdigit() and "content-encoding" not in fields:
            return sum(map(len, self.chunks)) >= int(length)
        return b"".join(self.chunks).rstrip().endswith(b"[DONE]")

    def write(self, ended: str, error: Json | None = None) -> None:
        """Write the exchange, unless that was done before."""
        tape, self._tape = self._tape, None
        if tape is None or self._generation != generation():  # a forked child forgets what its parent writes
            return
        secrets = tuple(dict.fromkeys((*tape.secrets, *self._request_secrets)))
        entry: Json = {"when": self._when, "request": self._request}
        if self._status is not None:
            entry["response"] = {
                "status": self._status,
                "headers": redact.redact_headers(self._headers, secrets),
                "chunks": [as_json(chunk) for chunk in redact_chunks(self.chunks, secrets)],
                "times": self._times,
            }
        entry["ended"] = ended
        if version := getattr(self._model, "data_version", ""):  # a request of another program has no model
            entry["registry"] = version
        if error is not None:
            entry["error"] = redact.redact_data(error, secrets)
        tape.write(entry)


class _RecordedBody:
    """The chunks of a reply, recorded when they are read."""

    def __init__(self, entry: _Entry, chunks: Any) -> None:
        self._entry = entry
        self._chunks = chunks

    def set_read_deadline(self, seconds: float | None) -> None:
        """End the body after this many seconds of reading, if the inner transport can do that."""
        getattr(self._chunks, "set_read_deadline", _do_nothing)(seconds)

    def __del__(self) -> None:
        self._entry.write_abandoned()


class _Recording(_RecordedBody, Iterator[bytes], Closing):
    """The chunks, for a blocking reader."""

    def __init__(self, entry: _Entry, chunks: Iterator[bytes]) -> None:
        super().__init__(entry, iter(chunks))

    def __next__(self) -> bytes:
        try:
            chunk: bytes = next(self._chunks)
        except BaseException as error:
            self._entry.write_end(error)
            raise
        self._entry.add_chunk(chunk)
        return chunk

    def drain(self) -> None:
        """Read the end of a complete reply, if the inner transport can do that."""
        self._entry.write("whole")
        getattr(self._chunks, "drain", _do_nothing)()

    def close(self) -> None:
        """Stop reading."""
        try:
            getattr(self._chunks, "close", _do_nothing)()
        finally:
            self._entry.write_abandoned()


class _AsyncRecording(_RecordedBody, AsyncIterator[bytes]):
    """The chunks, for an async reader."""

    def __init__(self, entry: _Entry, chunks: AsyncIterator[bytes]) -> None:
        super().__init__(entry, aiter(chunks))

    async def __anext__(self) -> bytes:
        try:
            chunk: bytes = await anext(self._chunks)
        except BaseException as error:
            self._entry.write_end(error)
            raise
        self._entry.add_chunk(chunk)
        return chunk

    async def drain(self) -> None:
        """Read the end of a complete reply, if the inner transport can do that."""
        self._entry.write("whole")
        if hasattr(self._chunks, "drain"):
            await self._chunks.drain()

    async def aclose(self) -> None:
        """Stop reading."""
        try:
            if hasattr(self._chunks, "aclose"):
                await self._chunks.aclose()
        finally:
            self._entry.write_abandoned()


def _do_nothing(*arguments: Any) -> None:
    """Replace a method that an inner transport does not have."""


# ── secrets in a reply ───────────────────────────────────────────────────────


_DATA = re.compile(rb"^data:[ \t]*(\{.*\})[ \t]*\r?$", re.MULTILINE)


def redact_chunks(chunks: list[bytes], secrets: tuple[str, ...]) -> list[bytes]:
    """Return the chunks without secrets, also where chunks and events split them. Other bytes stay in their chunk."""
    if not secrets:
        return chunks
    # bytes as latin-1, so that an index in the text is an index in the bytes
    text = b"".join(chunks).decode("latin-1")
    spans = redact.secret_spans(text, [secret.encode("utf-8", "surrogatepass").decode("latin-1") for secret in secrets])
    chunks = _replace(chunks, [(start, end, redact.MARK.encode()) for start, end in spans])
    return _replace(chunks, _split_secrets(b"".join(chunks), secrets))


def _replace(chunks: list[bytes], edits: list[tuple[int, int, bytes]]) -> list[bytes]:
    """Return the chunks with other bytes at some places. The new bytes go into the chunk where the place begins."""
    if not edits:
        return chunks
    out: list[bytes] = []
    begin = index = 0
    for chunk in chunks:
        end, position, piece = begin + len(chunk), begin, b""
        while index < len(edits) and edits[index][0] < end:
            start, stop, new = edits[index]
            piece += chunk[position - begin : max(start, position) - begin]
            if start >= begin:
                piece += new
            position = min(stop, end)
            if stop > end:
                break
            index += 1
        out.append(piece + chunk[position - begin :])
        begin = end
    return out


def _split_secrets(body: bytes, secrets: tuple[str, ...]) -> list[tuple[int, int, bytes]]:
    """Return the events to replace because consecutive strings of several events form a secret."""
    places = [match.span(1) for match in _DATA.finditer(body)] or [(0, len(body))]
    events = [_decode(body[start:end]) for start, end in places]
    dirty: set[int] = set()
    for strings in _strings_by_path(events):
        texts = [holder[key] for _, holder, key in strings]
        whole = "".join(texts)
        edits = [
            (_size(whole[:start]), _size(whole[:end]), redact.MARK.encode())
            for start, end in redact.secret_spans(whole, secrets)
        ]
        if not edits:
            continue
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        for (index, holder, key), old, new in zip(strings, encoded, _replace(encoded, edits), strict=True):
            if old != new:
                holder[key] = new.decode("utf-8", "surrogatepass")
                dirty.add(index)
    return [(*places[index], json.dumps(events[index]).encode()) for index in sorted(dirty)]


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _decode(event: bytes) -> Any:
    """Return the data of an event; None where it is not JSON."""
    for decode in (msgspec.json.decode, json.loads):  # the slow one also reads NaN, and half of a surrogate pair
        with contextlib.suppress(ValueError, RecursionError):
            return decode(event)
    return None


def _strings_by_path(events: list[Any]) -> list[list[tuple[int, Any, Any]]]:
    """Return the strings of some events that have one path of keys, each as (event, container, key in it), by path."""
    fields: list[list[tuple[int, Any, Any]]] = []
    root: dict[str, Any] = {}  # by key: the strings there, and the same for the keys of containers there
    for index, event in enumerate(events):
        queue = [(event, root)] if type(event) in (dict, list) else []
        for container, paths in queue:
            is_object = type(container) is dict
            items: Iterable[tuple[Any, Any]] = container.items() if is_object else enumerate(container)
            for key, item in items:
                kind = type(item)
                if kind is not str and kind is not dict and kind is not list:
                    continue
                name = key if is_object else "*"
                if name not in paths:
                    paths[name] = ([], {})
                    fields.append(paths[name][0])
                strings, inner = paths[name]
                if kind is str:
                    strings.append((index, container, key))
                else:
                    queue.append((item, inner))
    return fields
