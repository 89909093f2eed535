"""Read the values of a Python iterable: texts, lists of messages, or dicts as in JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

import msgspec

from cnllm.batch.readers.json_lines import object_content
from cnllm.batch.readers.table import columns_content
from cnllm.batch.rows import Content, Row, RowFault, row_key
from cnllm.batch.template import Template
from cnllm.types import Message

__all__ = ["ObjectReader"]


class ObjectReader:
    """An iterable. A row is named by its position, counted from 1."""

    name = "requests"
    columns: tuple[str, ...] | None = None

    def __init__(self, requests: Iterable[Any], template: Template | None) -> None:
        self._requests = requests
        self._template = template

    def rows(self) -> Iterator[Row]:
        """Yield the rows from the start."""
        for number, value in enumerate(self._requests, 1):
            yield Row(number, row_key(_bytes_of(value)), value)

    def content(self, row: Row) -> Content:
        """Return the request of a row. Raises `RowFault`."""
        value = row.data
        if isinstance(value, str):
            if self._template is not None:
                return columns_content({"text": value}, self._template)
            return Content(None, value, {})
        if isinstance(value, Mapping) and not isinstance(value.get("role"), str):
            return object_content(value, self._template)
        if isinstance(value, list | tuple | Message | Mapping):
            return Content(None, [value] if isinstance(value, Message | Mapping) else list(value), {})
        raise RowFault(f"{type(value).__name__} is no request; a text, messages or a dict is expected")

    def keep(self) -> None:
        """Make sure that the rows can be read more than once: what can be read only once is kept as a list."""
        if iter(self._requests) is self._requests:
            self._requests = list(self._requests)

    def close(self) -> None:
        """Do nothing: no file is open."""

    def count(self) -> int | None:
        """Return the number of requests; None where the iterable does not know it."""
        return len(self._requests) if isinstance(self._requests, Sized) else None


def _bytes_of(value: Any) -> bytes:
    """Return bytes that are the same for the same value."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except (TypeError, UnicodeEncodeError):
        return repr(value).encode("utf-8", "surrogatepass")


def _plain(value: Any) -> Any:
    return value.to_dict() if hasattr(value, "to_dict") else repr(value)
