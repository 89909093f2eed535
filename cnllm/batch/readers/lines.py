"""Read plain lines: each is a prompt, or the column `text` of one."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO

from cnllm.batch.readers.bytes_input import BytesInput
from cnllm.batch.readers.table import check_columns
from cnllm.batch.rows import Content, Row, RowFault, row_key
from cnllm.batch.template import Template

__all__ = ["LineReader"]

_BOM = b"\xef\xbb\xbf"


class LineReader:
    """A file with one prompt a line. Empty lines are none."""

    columns: tuple[str, ...] | None = ("text",)

    def __init__(self, data: BytesInput, template: Template | None) -> None:
        self.name = data.name
        self._data = data
        self._encoding = data.encoding()
        self._template = template
        if template is not None:
            check_columns(data.name, ("text",), template)

    def rows(self) -> Iterator[Row]:
        """Yield the rows from the start."""
        with self._data.open() as file:
            for number, line in enumerate(self._lines(file), 1):
                data = line.strip(b"\r\n")
                if number == 1 and data.startswith(_BOM):
                    data = data[3:]
                if data.strip():
                    yield Row(number, row_key(data), data)

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the lines as bytes in the encoding; in UTF-16 a newline has two bytes."""
        if not self._encoding.startswith("utf-16"):
            yield from file
            return
        text = io.TextIOWrapper(file, self._encoding, errors="surrogateescape", newline="\n")
        try:
            for line in text:
                yield line.encode("utf-8", "surrogateescape")
        finally:
            text.detach()  # it would close the file, which has an owner

    def content(self, row: Row) -> Content:
        """Return the request of a row. Raises `RowFault`."""
        try:
            text = row.data.decode("utf-8" if self._encoding.startswith("utf-16") else self._encoding)
        except UnicodeDecodeError as error:
            raise RowFault(f"byte {error.start + 1} is not {self._encoding}") from None
        return Content(None, text if self._template is None else self._template.fill({"text": text}), {})

    def keep(self) -> None:
        """Make sure that the rows can be read more than once."""
        self._data.keep()

    def close(self) -> None:
        """Give up what `keep` made."""
        self._data.close()

    def count(self) -> int | None:
        """Return the number of lines; None for a pipe."""
        return self._data.count_lines()
