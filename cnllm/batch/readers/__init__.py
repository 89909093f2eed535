"""Read the input of a batch row by row: JSON lines, plain lines, CSV, Parquet, or the values of a Python iterable.

Every reader streams: it holds a block of the input and no more. Its rows can be read again from the start, so that a
run can compare finished rows before it sends anything. What can be read only once (stdin, a generator) is copied to a
file without a name where that is needed.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cnllm.batch.readers.bytes_input import BytesInput
from cnllm.batch.readers.records import json_line_reader, object_reader
from cnllm.batch.readers.tables import delimited_reader, line_reader, parquet_reader
from cnllm.batch.rows import PromptTemplate, Reader
from cnllm.errors import CnllmError

__all__ = ["FORMATS", "open_reader"]

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


def open_reader(
    source: Any, template: PromptTemplate | None = None, *, format: str | None = None, encoding: str | None = None
) -> Reader:
    """Return the reader of a file, of stdin (`-`), or of an iterable. Raises `CnllmError` where it cannot be read."""
    if not isinstance(source, str | Path):
        if not isinstance(source, Iterable):
            raise TypeError(f"requests is {type(source).__name__}; a path, or an iterable of requests, is expected")
        return object_reader(source, template)
    data = BytesInput(str(source), encoding)
    kind = format or _format_of(data)
    if kind == "parquet":
        return parquet_reader(str(source), template)
    if kind in ("csv", "tsv"):
        return delimited_reader(data, template, tab=kind == "tsv")
    if kind == "lines":
        return line_reader(data, template)
    if kind != "jsonl":
        raise CnllmError(f"there is no format {kind!r}", hint=f"it is one of {', '.join(FORMATS)}")
    return json_line_reader(data, template)


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
    first = start.lstrip(BOM_UTF8 + b" \t\r\n")[:1]
    if first == b"[":
        raise CnllmError(
            f"{data.name} holds one JSON array; a batch reads one object a line",
            hint=f"jq -c '.[]' {data.name} > requests.jsonl",
        )
    return "jsonl" if first == b"{" else "lines"
