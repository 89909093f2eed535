"""The log of a gateway's requests: one JSON line each, without a key and without a word of what was said."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import msgspec
from msgspec.structs import replace

from cnllm.config.redact import redact
from cnllm.errors import CnllmError
from cnllm.gateway.endpoint_addresses import EndpointAddresses, ProviderBases, bases_of
from cnllm.gateway.failures import Failure, RequestFailed
from cnllm.gateway.monitoring.entry import Entry
from cnllm.gateway.monitoring.recent import hide_secrets
from cnllm.registry.model import Model
from cnllm.store.call_log import LoggedCall
from cnllm.store.records import PrefixRecord, TurnError
from cnllm.system.files import file_id, open_log, reopen_nonblocking

__all__ = ["AccessLog", "Entry", "LineHandler", "entry_fields", "hide_keys", "logged_call", "stderr_handler"]

_LOGGER = logging.getLogger("cnllm.gateway")
_KEPT_BYTES = 3 * 1024 * 1024  # of the newest requests, whose notes a client may ask for
_PLACE_BYTES = 400  # of the place in which a request is kept, about
_MOST_NOTES = 32 * 1024  # characters of the notes of one request
_LONGEST_TEXT = 1000  # characters of a text in an entry: clients choose some of its words
_REPEAT_SECONDS = 60.0  # between two lines, or two tracebacks, about the same fault
_MOST_FAULTS = 100

_LOGGED = ("model", "key", "finish", "usage", "cost", "seconds", "notes", "registry", "reply_id", "reply_model")
"""The fields of an entry that the record of its call has, too."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


class AccessLog:
    """Writes the log, and keeps the newest entries of this process: so many bytes, by the identity of their client."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, tuple[str, bytes, Sequence[ProviderBases]]] = OrderedDict()
        self._size = 0
        self._faults: dict[tuple[str, str], float] = {}  # the time of the last traceback, by error and place

    def write(self, entry: Entry, identity: str = "", models: Sequence[Model] = ()) -> None:
        """Write an entry. It is kept for its client; that of a client without a valid key is not kept.

        `models` are those that might have answered: their addresses are hidden from the client.
        """
        _shorten(entry)
        if identity:
            content = _encode(entry)  # half of the memory that the objects take
            self._entries[entry.id] = identity, content, bases_of(models) if entry.notes else ()
            self._size += _PLACE_BYTES + len(content)
            while self._size > _KEPT_BYTES:
                _, (_, oldest, _) = self._entries.popitem(last=False)
                self._size -= _PLACE_BYTES + len(oldest)
        if _LOGGER.isEnabledFor(logging.INFO):
            codes = list(dict.fromkeys(note.code for note in entry.notes))
            _LOGGER.info("%s", _printable(msgspec.json.encode(_fields(entry, codes)).decode()))

    def warn(self, id: str, error: CnllmError) -> None:
        """Write an error that only the operator can end."""
        hint = f"; {error.hint}" if error.hint else ""
        _LOGGER.warning("%s: %s%s", id, error.message, hint)

    def crash(self, id: str, error: Exception) -> None:
        """Write an error of the gateway itself. The same fault has its traceback once a minute."""
        name, frames = type(error).__name__, traceback.extract_tb(error.__traceback__)
        fault = (name, f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "")
        now = time.monotonic()
        is_new = now - self._faults.get(fault, -_REPEAT_SECONDS) >= _REPEAT_SECONDS
        if is_new:
            if len(self._faults) >= _MOST_FAULTS:
                self._faults.clear()
            self._faults[fault] = now
        _LOGGER.error("%s failed: %s: %s", id, name, redact(str(error), ()), exc_info=error if is_new else None)

    def request(self, identity: str, id: str) -> dict[str, Any]:
        """Return an entry of a client with its notes in full, without addresses of endpoints.

        Raises `RequestFailed` for any other.
        """
        owner, content, bases = self._entries.get(id, ("", b"", ()))
        if not content or owner != identity:
            raise RequestFailed(Failure(404, f"no request {id!a} of this key is kept in this process", "not_found"))
        entry, addresses = _decode(content), EndpointAddresses(bases)
        entry.notes = [addresses.hide_in_note(note) for note in entry.notes]
        return entry_fields(entry)


def _shorten(entry: Entry) -> None:
    """Shorten the texts of an entry and of its notes, which a client may have chosen.

    Of very many notes the first ones stay.
    """
    entry.outcome = _short(entry.outcome)
    if sum([len(note.said) + len(note.did) for note in entry.notes]) <= _LONGEST_TEXT:
        return
    size, notes = 0, []
    for note in entry.notes:
        if len(note.said) > _LONGEST_TEXT or len(note.did) > _LONGEST_TEXT:
            note = replace(note, said=_short(note.said), did=_short(note.did))
        if (size := size + len(note.said) + len(note.did)) > _MOST_NOTES:
            break
        notes.append(note)
    entry.notes = notes


def _short(text: str) -> str:
    """Return a text; of a long one the beginning."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}… ({len(text):,} characters)"


def _printable(line: str) -> str:
    """Return JSON with escapes for what no terminal and no reader of lines should see: a client chooses its path."""
    if line.isprintable():
        return line
    return "".join([char if char.isprintable() else _escape(char) for char in line])


def _escape(char: str) -> str:
    """Return the escape of a character in JSON."""
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join([f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4)])


class _Lines(logging.Handler):
    """Writes lines to a descriptor, and counts those that are lost."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lost = 0
        self._is_torn = False  # the last line has no end

    def _look(self) -> None:
        """Look at the end of a file: another process may have torn the last line there. A pipe tells nobody."""
        with contextlib.suppress(OSError):
            os.lseek(self._descriptor, -1, os.SEEK_END)
            self._is_torn = os.read(self._descriptor, 1) != b"\n"

    def _write(self, line: str) -> bool:
        """Write a line, whole lines of other processes before and after it. Return whether it is whole."""
        self._look()
        data = f"\n{line}\n" if self._is_torn else f"{line}\n"
        content = data.encode("utf-8", "backslashreplace")
        self._is_torn = os.write(self._descriptor, content) < len(content)
        return not self._is_torn


class LineHandler(_Lines):
    """Appends lines to the file at a path, also after the last one there was moved or deleted.

    On a full disk, and in a pipe that nobody reads, they are lost: a warning says so at once, and then each minute.
    """

    def __init__(self, path: str) -> None:
        super().__init__(open_log(path))
        self._path = path
        self._warned = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            if file_id(self._path) != file_id(self._descriptor):
                self._reopen()
            is_whole = self._write(self.format(record))
        except OSError as error:
            self._lose(error.strerror or str(error))
            return
        if not is_whole:
            self._lose("a line was cut")
        elif self._lost:
            _LOGGER.warning("%s is written again; %d lines of the log were lost", self._path, self._lost)
            self._lost = 0

    def _reopen(self) -> None:
        """Go on in the file at the path: the last one was moved or deleted. Raises `OSError`."""
        old, self._descriptor = self._descriptor, open_log(self._path)
        os.close(old)
        self._is_torn = False

    def _lose(self, reason: str) -> None:
        """Count a line that is lost."""
        self._lost += 1
        now = time.monotonic()
        if self._lost == 1 or now - self._warned >= _REPEAT_SECONDS:
            self._warned = now
            _LOGGER.warning("%s cannot be written: %s; lines of the log lost: %d", self._path, reason, self._lost)


def stderr_handler() -> logging.Handler:
    """Return a handler that writes to stderr, without waiting where it is a pipe or a terminal that nobody reads."""
    try:
        descriptor = reopen_nonblocking(sys.stderr.fileno())
    except (AttributeError, OSError):  # it is closed, or no file
        descriptor = None
    return logging.StreamHandler() if descriptor is None else _PipeHandler(descriptor)


class _PipeHandler(_Lines):
    """Writes lines to a pipe or a terminal. They are lost while nobody reads them, and counted."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, and before it how many were lost."""
        line = self.format(record)
        if self._lost:
            line = f"nobody read the log; lines lost here: {self._lost}\n{line}"
        try:
            self._lost = 0 if self._write(line) else 1
        except OSError:
            self._lost += 1


def hide_keys(entry: Entry, keys: Iterable[str]) -> None:
    """Hide the keys of a client in the texts of an entry: by mistake one may stand in a path, a name or a tag."""
    secrets = tuple(keys)
    notes = "\n".join([f"{note.said} {note.did}" for note in entry.notes])
    if [secret for secret in secrets if secret in notes]:
        entry.notes = [
            replace(note, said=hide_secrets(note.said, secrets), did=hide_secrets(note.did, secrets))
            for note in entry.notes
        ]
    # A text without a known key has a guessed one only where the request was refused: its words mean nothing here.
    is_refused = entry.status >= 400
    texts = f"{entry.path}\n{entry.outcome}\n{entry.tag}"
    for name in ("path", "outcome", "tag") if is_refused or [key for key in secrets if key in texts] else ():
        text: str = getattr(entry, name)
        if text and (is_refused or [key for key in secrets if key in text]):
            setattr(entry, name, hide_secrets(text, secrets))


def entry_fields(entry: Entry) -> dict[str, Any]:
    """Return an entry with its notes."""
    _shorten(entry)
    return _fields(entry, [msgspec.to_builtins(note) for note in entry.notes])


def _fields(entry: Entry, notes: list[Any]) -> dict[str, Any]:
    """Return the known fields of an entry."""
    data: dict[str, Any] = msgspec.to_builtins(entry, builtin_types=(Decimal,))
    del data["soft_budgets"]  # `soft_budget` says it in words
    del data["reply_id"], data["reply_model"]  # the store has them
    data["seconds"] = round(entry.seconds, 4)
    if entry.first is not None:
        data["first"] = round(entry.first, 4)
    data = {name: value for name, value in data.items() if value not in ("", None)}
    if (cost := entry.cost) is not None:
        data["cost"] = {"amount": str(cost.amount), "currency": cost.currency}
        if not cost.complete:
            most = None if cost.at_most is None else str(cost.at_most)
            data["cost"] |= {"missing": cost.missing, "at_most": most}
    return {**data, "notes": notes}


def logged_call(
    entry: Entry, conversation: str, prefix: PrefixRecord | None, price: object, *, is_simulated: bool
) -> LoggedCall:
    """Return the record of a call for the store. Without a tag of the client's it has the name of the key.

    It has no words of an endpoint's error, which may quote the prompt.
    """
    began = datetime.datetime.fromtimestamp(entry.time - entry.seconds, datetime.UTC)
    failure = entry.error or ("Interrupted" if entry.outcome and not entry.finish else "")
    message = f"HTTP {entry.status}" if entry.status >= 400 else "" if entry.error else entry.outcome
    return LoggedCall(
        conversation=conversation,
        began=began.isoformat(timespec="milliseconds"),
        protocol=entry.upstream_protocol,
        client=entry.protocol,
        origin="simulated" if is_simulated else "endpoint",
        tag=entry.tag or entry.key,
        error=TurnError(failure, message, entry.charged) if failure else None,
        prefix=prefix,
        price=price,
        **{name: getattr(entry, name) for name in _LOGGED},
    )
