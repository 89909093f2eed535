"""The output file: one JSON line a request, appended in groups that are on the disk when `append` returns.

The outcome of a request says its line, and whether another run asks again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from cnllm.batch.state import DONE, FAILED, RETRYABLE
from cnllm.errors import CnllmError, EndpointError
from cnllm.system import files
from cnllm.system.files import open_private, other_names, sync_folder
from cnllm.system.locks import hold_file
from cnllm.types import Reply
from cnllm.types.endings import is_paused

__all__ = [
    "FAULT",
    "INVALID",
    "LINE_BEGIN",
    "Line",
    "LineCost",
    "LineError",
    "LineReply",
    "Outcome",
    "Output",
    "fault_outcome",
    "is_line",
    "outcome_of_error",
    "outcome_of_reply",
]


LINE_BEGIN = b'{"id":'
"""The beginning of every line; what begins otherwise is another program's."""
_TAIL = 256

INVALID = "InvalidAnswer"
"""The type of an answer that does not follow the schema, after its corrections."""
FAULT = "BadRow"
"""The type of a line that is no request."""


class LineCost(Struct, frozen=True):
    """The cost in a line. Of one that is not `complete`, `at_most` is the bound, None where nothing bounds it."""

    amount: str
    currency: str
    complete: bool = True
    at_most: str | None = None


class LineReply(Struct, frozen=True):
    """The fields of the reply in a line that are read again."""

    cost: LineCost | None = None


class LineError(Struct, frozen=True):
    """The error in a line. `retryable`: the same request may succeed in another run."""

    type: str
    message: str
    status: int | None = None
    retryable: bool = False


class Line(Struct, frozen=True):
    """The fields of a line that are read again. `line` is the line in the input of a row that has no id."""

    id: str | int | None
    identity: str | None
    attempts: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    error: LineError | None = None
    reply: LineReply | None = None
    line: int | None = None
    from_cache: bool = False


_decode_whole = msgspec.json.Decoder(Line).decode


def _decode_line(data: bytes) -> Line:
    """Return the fields of a line. An id may hold half of a character, as the name of a file does that is no UTF-8."""
    try:
        return _decode_whole(data)
    except msgspec.DecodeError:
        if b"\\ud" not in data:
            raise
    return msgspec.convert(json.loads(data), Line)


def is_line(data: bytes) -> bool:
    """Whether bytes are a whole line of a batch."""
    try:
        _decode_line(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return data.endswith(b"\n")


class Output:
    """An output file that is open for writing, and locked. Raises `CnllmError` where it cannot be written.

    The lock of the state is one on a name: a file with two names has two states.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with files.explain_errors(str(path), "choose another -o OUT"):
            is_new = not path.exists()
            self._file = self._open(os.O_CREAT)
            self.size = os.fstat(self._file).st_size
            if is_new:
                sync_folder(path.parent)

    def _open(self, flags: int = 0) -> int:
        """Open the file that has the name now, for this run alone."""
        file = open_private(self.path, os.O_RDWR | flags)
        if hold_file(file):
            return file
        os.close(file)
        others = ", ".join(sorted(map(str, other_names(self.path)))) or "another name"
        raise CnllmError(
            f"another process is writing {self.path} as {others}", hint="wait for it, or choose another -o OUT"
        )

    def append(self, lines: Sequence[bytes]) -> list[int]:
        """Write lines at the end and put them on the disk. Return the place of each.

        Where the disk is full nothing of them stays.
        """
        self.require_whole()
        *places, end = accumulate(map(len, lines), initial=self.size)
        data = b"".join(lines)
        try:
            written = 0
            while written < len(data):
                written += files.write_at(self._file, data[written:] if written else data, self.size + written)
            os.fsync(self._file)
        except OSError as error:
            self.truncate(self.size)
            raise CnllmError(
                f"{self.path}: {error.strerror}",
                hint="free disk space, then run the same command again: it goes on",
            ) from error
        self.size = end
        return places

    def require_whole(self) -> None:
        """Raise `CnllmError` where another program has cut the file off, or has put another one in its place.

        One that was removed is written anew at the end of the run.
        """
        own = os.fstat(self._file)
        try:
            is_replaced = not os.path.samestat(own, self.path.stat())
        except FileNotFoundError:
            is_replaced = False
        if is_replaced or own.st_size < self.size:
            message = f"another program has cut off {self.path} while the batch ran"
            if is_replaced:
                message = f"another program has replaced {self.path} while the batch ran"
            raise CnllmError(
                message,
                hint="put the file back, then run the same command again: it asks what is missing",
            )

    def truncate(self, size: int) -> None:
        """Cut the file off after so many bytes."""
        os.ftruncate(self._file, size)  # ours: only what this run appended, or a torn line of a batch
        self.size = size

    def tail(self, size: int) -> str:
        """Return a digest of the last bytes before a place."""
        start = max(0, size - _TAIL)
        return blake2b(files.read_at(self._file, size - start, start), digest_size=8).hexdigest()

    def read(self, place: int, length: int) -> bytes:
        """Return bytes of the file."""
        return files.read_at(self._file, length, place)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines, each with its place. The last one may lack its end."""
        start = 0
        with self.path.open("rb") as file:
            for line in file:
                yield start, line
                start += len(line)

    def entries(self, written: int | None) -> Iterator[tuple[int, int, Line]]:
        """Yield place, length and content of the lines.

        A torn last line behind other lines is cut off, and so is a damaged line behind the bytes that are known to be
        `written` here, with what follows. Raises `CnllmError` for any other line that is not one of a batch.
        """
        count = 0
        for place, data in self.lines():
            try:
                if not data.endswith(b"\n"):
                    raise ValueError("torn")
                if not data.strip():
                    continue
                line = _decode_line(data)
                bytes.fromhex(line.identity or "")
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                is_torn = not data.endswith(b"\n") and LINE_BEGIN.startswith(data[: len(LINE_BEGIN)])
                if (written is not None and place >= written) or (is_torn and count):
                    self.truncate(place)
                    return
                raise CnllmError(
                    f"{self.path} is not an output of a batch: the line at byte {place} is none of its lines ({error})",
                    hint="choose another -o OUT",
                ) from error
            count += 1
            yield place, len(data), line

    def stamp(self) -> list[int]:
        """Return numbers that another file, or one that was changed, does not have."""
        status = os.fstat(self._file)
        return [status.st_ino, status.st_mtime_ns, status.st_ctime_ns]

    def reopen(self) -> None:
        """Open the file that has the name now."""
        before, self._file = self._file, self._open()
        os.close(before)
        self.size = os.fstat(self._file).st_size

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


# ── outcomes ─────────────────────────────────────────────────────────────────


class Outcome(Struct, frozen=True):
    """A finished row: a reply, an error, or both where an answer came and is not whole or not valid.

    `cached` is the reply as JSON where it comes from the cache of another run.
    """

    state: int
    reply: Reply | None
    error: LineError | None
    cached: bytes | None = None


def outcome_of_reply(reply: Reply) -> Outcome:
    """Return the outcome of a reply. It is a failure where it does not follow the schema, or is not whole."""
    for note in reply.notes:
        if note.code == "answer-invalid":
            return Outcome(FAILED, reply, LineError(INVALID, note.said))
    if reply.finish == "cut":
        return Outcome(RETRYABLE, reply, LineError("StreamCut", "the reply is not whole", retryable=True))
    if is_paused(reply):
        message = f"the endpoint paused before the end of its answer ({reply.raw_finish})"
        return Outcome(RETRYABLE, reply, LineError("StreamCut", message, retryable=True))
    return Outcome(DONE, reply, None)


def outcome_of_error(error: CnllmError) -> Outcome:
    """Return the outcome of a request that failed."""
    status = error.status if isinstance(error, EndpointError) else None
    retryable = error.meaning.again is True
    state = RETRYABLE if retryable else FAILED
    return Outcome(state, error.reply, LineError(type(error).__name__, str(error), status, retryable))


def fault_outcome(message: str) -> Outcome:
    """Return the outcome of a row that was not sent."""
    return Outcome(FAILED, None, LineError(FAULT, message))
