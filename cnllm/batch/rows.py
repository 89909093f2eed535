"""The rows of an input: one request each. Their columns fill in a prompt, and they may be put in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from cnllm.types import Note

__all__ = [
    "Content",
    "Id",
    "InputRow",
    "PromptTemplate",
    "Reader",
    "RowFault",
    "faults_of",
    "group_rows",
    "id_digest",
    "json_kind",
    "line_digest",
    "row_key",
    "value_bytes",
]

Id = str | int
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}\n]*)\}")
_NAME = re.compile(r"\w[\w .-]*")
_WINDOW = 10_000  # rows that are sorted together; memory does not grow with the input
_BEGINNING = 4096  # bytes that are compared


class RowFault(Exception):
    """A row that cannot be a request: what is wrong with it, without its line number; `id` where it can be read."""

    id: Id | None = None


class Content(Struct, frozen=True):
    """The request of a row: its messages and its own options. `model` is the one that it names, which is not used.

    `notes` say what of the row is in no request.
    """

    id: Id | None
    messages: Any
    options: dict[str, Any]
    model: str | None = None
    notes: tuple[Note, ...] = ()


class InputRow(Struct, frozen=True):
    """A row as it was read. `number` is its line, `key` a digest of its own bytes; `data` is decoded when needed."""

    number: int
    key: bytes
    data: Any


class Reader(Struct, frozen=True, kw_only=True):
    """An input, by functions. `name` is for messages.

    `rows` yields the rows from the start; `content` returns the request of one, or raises `RowFault`. `keep` makes sure
    that the rows can be read more than once, and `close` gives up what it made. `count` returns about how many rows
    there are; None where that is not known before the end.
    """

    name: str
    rows: Callable[[], Iterator[InputRow]]
    content: Callable[[InputRow], Content]
    count: Callable[[], int | None]
    keep: Callable[[], None] = lambda: None
    close: Callable[[], None] = lambda: None


def row_key(data: bytes) -> bytes:
    """Return a digest of a row's own bytes. It is compared with that of one row, so that eight bytes are enough."""
    return blake2b(data, digest_size=8).digest()


def id_digest(id: Id) -> bytes:
    """Return the digest of an id. 7 and "7" are the same id."""
    return blake2b(str(id).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def line_digest(number: int) -> bytes:
    """Return what stands for the id of a line that has none, because it cannot be read."""
    return blake2b(b"\0line %d" % number, digest_size=16).digest()


@contextmanager
def faults_of(id: Any) -> Iterator[None]:
    """Give the faults of a row its id. Raises `RowFault` for an id that is neither a text nor a whole number."""
    if id is not None and type(id) not in (str, int):
        raise RowFault(f"id is {json_kind(id)}; a text or a whole number is expected")
    if id == "":
        raise RowFault("id is empty")
    try:
        yield
    except RowFault as fault:
        fault.id = id
        raise


def json_kind(value: Any) -> str:
    """Return the kind of a JSON value in words."""
    names = {dict: "an object", list: "a list", str: "a text", type(None): "null", bool: "true or false"}
    return names.get(type(value), "a number")


# ── prompts ──────────────────────────────────────────────────────────────────


class PromptTemplate:
    """A prompt with places for columns. `{{` and `}}` stand for braces. Braces around other text stay as they are.

    `columns` are the names of the places. A place is a name of letters, digits, `_`, `-`, `.` or spaces, so that the
    braces of JSON in a prompt need not be doubled.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        names = [name for name in _FIELD.findall(text) if _NAME.fullmatch(name)]
        self.columns = tuple(dict.fromkeys(name.strip() for name in names))

    def fill(self, columns: Mapping[str, Any]) -> str:
        """Return the prompt for a row. Raises `RowFault` for a column that the row does not have."""

        def fill(match: re.Match[str]) -> str:
            if match[1] is None:
                return match[0][0]
            if not _NAME.fullmatch(match[1]):
                return match[0]
            name = match[1].strip()
            value = columns.get(name)
            if value is None:
                have = ", ".join(str(name) for name in columns) or "none"
                raise RowFault(f"there is no column {name!r} for the prompt; the row has: {have}")
            return value if type(value) is str else msgspec.json.encode(value, enc_hook=str).decode()

        return _FIELD.sub(fill, self.text)


# ── order ────────────────────────────────────────────────────────────────────


def group_rows(rows: Iterable[InputRow], reader: Reader) -> Iterator[InputRow]:
    """Yield the rows, those of each ten thousand in the order of their messages."""
    rows = iter(rows)
    while window := list(islice(rows, _WINDOW)):
        yield from sorted(window, key=lambda row: (_beginning(reader, row), row.number))


def _beginning(reader: Reader, row: InputRow) -> bytes:
    """Return the beginning of a row's messages."""
    try:
        messages = reader.content(row).messages
    except RowFault:
        return b""
    return value_bytes(messages)[:_BEGINNING]


def value_bytes(value: Any) -> bytes:
    """Return bytes that are the same for the same value."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except (TypeError, UnicodeEncodeError):
        return repr(value).encode("utf-8", "surrogatepass")


def _plain(value: Any) -> Any:
    return value.to_dict() if hasattr(value, "to_dict") else repr(value)
