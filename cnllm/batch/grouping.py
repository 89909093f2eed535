"""Put rows with the same beginning one after the other, so that an endpoint finds the beginning in its cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from cnllm.batch.readers import Reader
from cnllm.batch.rows import Row, RowFault

__all__ = ["grouped"]

_WINDOW = 10_000  # rows that are sorted together; memory does not grow with the input
_BEGINNING = 4096  # bytes that are compared


def grouped(rows: Iterable[Row], reader: Reader) -> Iterator[Row]:
    """Yield the rows, those of each ten thousand in the order of their messages."""
    window: list[tuple[bytes, int, Row]] = []
    for row in rows:
        window.append((_beginning(reader, row), row.number, row))
        if len(window) >= _WINDOW:
            yield from _sorted(window)
            window.clear()
    yield from _sorted(window)


def _sorted(window: list[tuple[bytes, int, Row]]) -> Iterator[Row]:
    window.sort(key=lambda item: item[:2])
    for _, _, row in window:
        yield row


def _beginning(reader: Reader, row: Row) -> bytes:
    """Return the beginning of a row's messages."""
    try:
        messages = reader.content(row).messages
    except RowFault:
        return b""
    if isinstance(messages, str):
        return messages.encode("utf-8", "surrogatepass")[:_BEGINNING]
    try:
        return msgspec.json.encode(messages)[:_BEGINNING]
    except (TypeError, UnicodeEncodeError):
        return repr(messages).encode("utf-8", "surrogatepass")[:_BEGINNING]
