"""Read the input of a batch row by row: JSON lines, plain lines, CSV, Parquet, or the values of a Python iterable.

Every reader streams: it holds a block of the input and no more. Its rows can be read again from the start, so that a
run can compare finished rows before it sends anything. What can be read only once (stdin, a generator) is copied to a
file without a name where that is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from cnllm.batch.readers.bytes_input import BytesInput
from cnllm.batch.rows import Content, Row
from cnllm.batch.template import Template
from cnllm.errors import CnllmError

__all__ = ["FORMATS", "Reader", "open_reader"]

FORMATS = ("jsonl", "lines", "csv", "tsv", "parquet")
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".txt": "lines",
    ".text": "lines",
}


class Reader(Protocol):
    """An input. `name` is for messages, `columns` are known where a header names them."""

    name: str
    columns: tuple[str, ...] | None

    def rows(self) -> Iterator[Row]:
        """Yield the rows from the start."""

    def content(self, row: Row) -> Content:
        """Return the request of a row. Raises `RowFault`."""

    def keep(self) -> None:
        """Make sure that the rows can be read more than once."""

    def close(self) -> None:
        """Give up what `keep` made."""

    def count(self) -> int | None:
        """Return about how many rows there are; None where that is not known before the end."""


def open_reader(
    source: Any, template: Template | None = None, *, format: str | None = None, encoding: str | None = None
) -> Reader:
    """Return the reader of a file, of stdin (`-`), or of an iterable. Raises `CnllmError` where it cannot be read."""
    if not isinstance(source, str | Path):
        if not isinstance(source, Iterable):
            raise TypeError(f"requests is {type(source).__name__}; a path, or an iterable of requests, is expected")
        from cnllm.batch.readers.objects import ObjectReader

        return ObjectReader(source, template)
    data = BytesInput(str(source), encoding)
    kind = format or _format_of(data)
    if kind == "parquet":
        from cnllm.batch.readers.parquet import ParquetReader

        return ParquetReader(str(source), template)
    if kind in ("csv", "tsv"):
        from cnllm.batch.readers.delimited import DelimitedReader

        return DelimitedReader(data, template, tab=kind == "tsv")
    if kind == "lines":
        from cnllm.batch.readers.lines import LineReader

        return LineReader(data, template)
    if kind != "jsonl":
        raise CnllmError(f"there is no format {kind!r}", hint=f"it is one of {', '.join(FORMATS)}")
    from cnllm.batch.readers.json_lines import JsonLineReader

    return JsonLineReader(data, template)


def _format_of(data: BytesInput) -> str:
    """Return the format by the name of the file, else by its first bytes."""
    path = Path(data.name)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    if suffixes and suffixes[-1] in _SUFFIXES:
        return _SUFFIXES[suffixes[-1]]
    start = data.start()
    if start.startswith(b"PAR1"):
        return "parquet"
    first = start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if first == b"[":
        raise CnllmError(
            f"{data.name} holds one JSON array; a batch reads one object a line",
            hint=f"jq -c '.[]' {data.name} > requests.jsonl",
        )
    return "jsonl" if first == b"{" else "lines"
