"""Read CSV and TSV, in UTF-8, UTF-16 or GB18030."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import chain

from cnllm.batch.readers.bytes_input import BytesInput
from cnllm.batch.readers.table import check_columns, columns_content
from cnllm.batch.rows import Content, Row, RowFault, row_key
from cnllm.batch.template import Template
from cnllm.errors import CnllmError

__all__ = ["DelimitedReader"]

_MOST = (1 << 31) - 1  # characters of a field; csv's own limit is 128 KB


class DelimitedReader:
    """A table with a header. A field may hold lines; a row is named by the line on which it ends."""

    def __init__(self, data: BytesInput, template: Template | None, *, tab: bool) -> None:
        self.name = data.name
        self._data = data
        self._template = template
        self._encoding = data.encoding()
        start = data.start().decode(self._encoding, "replace").lstrip("\ufeff")
        self._delimiter = "\t" if tab else max(",;\t", key=_header_text(start).count)
        csv.field_size_limit(_MOST)
        try:
            header = next(csv.reader(io.StringIO(start, newline=""), delimiter=self._delimiter), [])
        except csv.Error as error:
            raise CnllmError(f"{self.name}: its header is not valid CSV: {error}") from error
        names = tuple(name.strip() for name in header)
        if not names:
            raise CnllmError(f"{self.name} is empty", hint="its first line names the columns")
        doubled = [name for name in names if names.count(name) > 1]
        if doubled:
            raise CnllmError(f"{self.name} has two columns {doubled[0]!r}", hint="rename one of them")
        check_columns(self.name, names, template)
        self._names = names
        self.columns: tuple[str, ...] | None = names

    def rows(self) -> Iterator[Row]:
        """Yield the rows from the start, without the header."""
        with io.TextIOWrapper(self._data.open(), self._encoding, errors="surrogateescape", newline="") as text:
            first = next(text, "").removeprefix("\ufeff")  # before a quote it would make the quote a part of the text
            reader = csv.reader(chain([first], text), delimiter=self._delimiter)
            next(reader, None)
            while True:
                try:
                    fields = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    yield Row(reader.line_num, row_key(str(error).encode()), RowFault(f"not valid CSV: {error}"))
                    continue
                if fields:
                    key = row_key("\x1f".join(fields).encode("utf-8", "surrogatepass"))
                    yield Row(reader.line_num, key, fields)

    def content(self, row: Row) -> Content:
        """Return the request of a row. Raises `RowFault`."""
        if isinstance(row.data, RowFault):
            raise row.data
        fields: list[str] = row.data
        if len(fields) != len(self._names):
            raise RowFault(f"{len(fields)} fields, but the header has {len(self._names)} columns")
        if any("\udc80" <= character <= "\udcff" for field in fields if not field.isascii() for character in field):
            raise RowFault(f"a byte is not {self._encoding}")
        return columns_content(dict(zip(self._names, fields, strict=True)), self._template)

    def keep(self) -> None:
        """Make sure that the rows can be read more than once."""
        self._data.keep()

    def close(self) -> None:
        """Give up what `keep` made."""
        self._data.close()

    def count(self) -> int | None:
        """Return the number of lines; None for a pipe."""
        lines = self._data.count_lines()
        return None if lines is None else max(0, lines - 1)


def _header_text(start: str) -> str:
    """Return the header without its quoted fields: what separates the columns stands outside of quotes."""
    return next(iter(_QUOTED.sub("", start).splitlines()), "")


_QUOTED = re.compile(r'(?:^|(?<=[,;\t]))"(?:[^"]|"")*"?')
