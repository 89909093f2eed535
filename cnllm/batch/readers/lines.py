"""Read plain lines: each is a prompt, or the column `text` of one."""

from __future__ import annotations

from collections.abc import Iterator

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
        if self._encoding.startswith("utf-16"):
            import io

            text = io.TextIOWrapper(self._data.open(), self._encoding, errors="surrogateescape", newline="\n")
            lines: Iterator[bytes] = (line.encode(self._encoding, "surrogateescape") for line in text)
        else:
            lines = iter(self._data.open())
        for number, line in enumerate(lines, 1):
            data = line.strip(b"\r\n")
            if number == 1 and data.startswith(_BOM):
                data = data[3:]
            if data.strip():
                yield Row(number, row_key(data), data)

    def content(self, row: Row) -> Content:
        """Return the request of a row. Raises `RowFault`."""
        try:
            text = row.data.decode(self._encoding)
        except UnicodeDecodeError as error:
            raise RowFault(f"byte {error.start + 1} is not {self._encoding}") from None
        return Content(None, text if self._template is None else self._template.fill({"text": text}), {})

    def keep(self) -> None:
        """Make sure that the rows can be read more than once."""
        self._data.keep()

    def count(self) -> int | None:
        """Return the number of lines; None for a pipe."""
        return self._data.count_lines()
