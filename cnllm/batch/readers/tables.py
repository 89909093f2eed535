"""Read tables: CSV and TSV, Parquet with the extra `parquet`, and plain lines, which have the column `text`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from cnllm.batch.readers.bytes_input import BytesInput, name_damage, text_of
from cnllm.batch.rows import Content, InputRow, PromptTemplate, Reader, RowFault, faults_of, row_key
from cnllm.config.distribution import install_command
from cnllm.errors import CnllmError
from cnllm.types.checks import plural

__all__ = ["columns_content", "delimited_reader", "line_reader", "parquet_reader"]

_MOST = 1 << 26  # characters of a field, more than any endpoint takes; csv's own limit is 128 KB
_TEXTS = re.compile(r"text|prompt|question|query|input|content|message|body|sentence|review|文|内容|问", re.IGNORECASE)
_NO_TEXTS = re.compile(
    r"(^|[\W_])(|ids?|key|no|nr|num|number|index|idx|row|date|time|uuid|guid|label|lang|score)($|[\W_])|号|日期",
    re.IGNORECASE,
)
_BLOCK = 1 << 20
_BATCH_ROWS = 4096  # of Parquet that are read at once


def columns_content(columns: Mapping[str, Any], template: PromptTemplate | None) -> Content:
    """Return the request: the filled prompt, or the columns `prompt` or `messages`. Raises `RowFault`."""
    row_id = columns.get("id")
    if row_id is not None and type(row_id) not in (str, int):
        row_id = str(row_id)
    with faults_of(row_id):
        if template is not None:
            return Content(row_id, template.fill(columns), {})
        if (prompt := columns.get("prompt")) is not None:
            if not isinstance(prompt, str) or not prompt.strip():
                raise RowFault("the prompt is empty" if isinstance(prompt, str) else "prompt is not text")
            return Content(row_id, prompt, {})
        messages = columns.get("messages")
        if isinstance(messages, str):
            try:
                messages = msgspec.json.decode(messages)
            except msgspec.DecodeError as error:
                raise RowFault(f"messages is not valid JSON: {error}") from None
        if not messages:
            raise RowFault("neither messages nor prompt")
        return Content(row_id, messages, {})


def check_columns(name: str, columns: tuple[str, ...], template: PromptTemplate | None) -> None:
    """Raise `CnllmError` where the header of a table lacks a column that every row needs."""
    have = f"its columns: {', '.join(columns) or 'none'}"
    missing = [column for column in (template.columns if template is not None else ()) if column not in columns]
    if missing:
        raise CnllmError(f"{name} has no column {', '.join(missing)}", hint=have)
    if template is None and not {"prompt", "messages"} & set(columns):
        raise CnllmError(
            f"{name} has neither a column prompt nor a column messages",
            hint=f"fill a prompt: --prompt 'Translate: {{{_text_column(columns)}}}'; {have}",
        )


def _text_column(columns: Sequence[str]) -> str:
    """Return the column that most likely holds the text of a row, by its name: not the first one if that is an id."""
    likely = [name for name in columns if _TEXTS.search(name)]
    others = [name for name in columns if not _NO_TEXTS.search(name)]
    return next(iter([*likely, *others, *columns]), "text")


# ── CSV and TSV ──────────────────────────────────────────────────────────────


def delimited_reader(data: BytesInput, template: PromptTemplate | None, *, tab: bool) -> Reader:
    """Return the reader of a table with a header, in UTF-8, UTF-16 or GB18030.

    A field may hold lines; a row is named by the line on which it ends.
    """
    encoding = data.encoding()
    start = data.start().decode(encoding, "replace").lstrip("\ufeff")
    delimiter = "\t" if tab else max(",;\t", key=_header_text(start).count)
    csv.field_size_limit(_MOST)
    if not data.is_pipe:
        _check_quotes(data, encoding, delimiter)
    names = _column_names(data.name, start, delimiter)
    check_columns(data.name, names, template)

    def rows() -> Iterator[InputRow]:
        records = _records(data, encoding, delimiter)
        next(records, None)
        for line, fields in records:
            if isinstance(fields, QuoteFault):
                yield InputRow(line, row_key(str(fields).encode()), fields)
            elif fields:
                yield InputRow(line, row_key("\x1f".join(fields).encode("utf-8", "surrogatepass")), fields)

    def content(row: InputRow) -> Content:
        if isinstance(row.data, RowFault):
            raise row.data
        fields: list[str] = row.data
        if len(fields) != len(names):
            raise RowFault(
                f"{len(fields)} field{plural(len(fields))}, but the header has {len(names)} column{plural(len(names))}"
            )
        if any("\udc80" <= character <= "\udcff" for field in fields if not field.isascii() for character in field):
            raise RowFault(f"a byte is not {encoding}")
        return columns_content(dict(zip(names, fields, strict=True)), template)

    def count() -> int | None:
        lines = data.count_lines()
        return None if lines is None else max(0, lines - 1)

    return Reader(name=data.name, rows=rows, content=content, count=count, keep=data.keep, close=data.close)


def _records(data: BytesInput, encoding: str, delimiter: str) -> Iterator[tuple[int, list[str] | QuoteFault]]:
    """Yield the fields of each row with the line on which it ends, or what is wrong with its quotes."""
    with data.open() as file, text_of(file, encoding, "") as text, name_damage(data.name):
        first = next(text, "").removeprefix("\ufeff")  # before a quote it would make the quote a part of the text
        reader = csv.reader(chain([first], text), delimiter=delimiter, strict=True)
        while True:
            begin = reader.line_num + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield reader.line_num, QuoteFault(error, begin, reader.line_num)
            else:
                yield reader.line_num, fields


class QuoteFault(RowFault):
    """A row whose quotes do not match. `swallows`: other rows may stand in it, as it goes on over several lines."""

    def __init__(self, error: csv.Error, begin: int, end: int) -> None:
        is_open = "unexpected" in str(error)  # end of data: other errors expect something
        self.swallows = is_open or end > begin
        words = f"not valid CSV: {error}"
        if is_open:
            words = f"the row of line {begin} has a quote that is never closed"
        elif self.swallows:
            words = f"the row of line {begin} has a quote that is not closed before line {end}"
        super().__init__(words)


def _check_quotes(data: BytesInput, encoding: str, delimiter: str) -> None:
    """Raise `CnllmError` for a quote that makes one row of several. A file without quotes is not parsed for it."""
    with data.open() as file, name_damage(data.name):
        if not any(b'"' in block for block in iter(lambda: file.read(_BLOCK), b"")):
            return
    for _, fields in _records(data, encoding, delimiter):
        if isinstance(fields, QuoteFault) and fields.swallows:
            raise CnllmError(
                f"{data.name}: {fields}",
                hint="close the quote, or write a quote that belongs to the text twice",
            )


def _column_names(name: str, start: str, delimiter: str) -> tuple[str, ...]:
    """Return the columns of a table by its first characters. Raises `CnllmError` where they cannot be used."""
    try:
        header = next(csv.reader(io.StringIO(start, newline=""), delimiter=delimiter), [])
    except csv.Error as error:
        raise CnllmError(f"{name}: its header is not valid CSV: {error}") from error
    names = tuple(column.strip() for column in header)
    if not names:
        raise CnllmError(f"{name} is empty", hint="its first line names the columns")
    if doubled := [column for column in names if names.count(column) > 1]:
        raise CnllmError(f"{name} has two columns {doubled[0]!r}", hint="rename one of them")
    return names


def _header_text(start: str) -> str:
    """Return the header without its quoted fields: what separates the columns stands outside of quotes."""
    return next(iter(_QUOTED.sub("", start).splitlines()), "")


_QUOTED = re.compile(r'(?:^|(?<=[,;\t]))"(?:[^"]|"")*"?')


# ── Parquet ──────────────────────────────────────────────────────────────────


def parquet_reader(path: str, template: PromptTemplate | None) -> Reader:
    """Return the reader of a Parquet file. A row is named by its position, counted from 1."""
    if path == "-":
        raise CnllmError("Parquet cannot be read from a pipe", hint="save it as a file, and name the file")
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise CnllmError(
            f"{path}: pyarrow reads Parquet, and is not installed", hint=install_command("parquet")
        ) from error
    try:
        names = list(ParquetFile(path).schema_arrow.names)
    except (OSError, ArrowException) as error:
        raise CnllmError(f"{path}: {error}", hint="name a Parquet file that can be read") from error
    check_columns(path, tuple(names), template)
    needed = {"id", "prompt", "messages"} if template is None else {"id", *template.columns}
    columns = [name for name in names if name in needed]

    def rows() -> Iterator[InputRow]:
        number = 0
        with ParquetFile(path) as file:
            batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=columns)
            while True:
                try:
                    batch = next(batches, None)
                    values = () if batch is None else batch.to_pylist()
                except (OSError, ArrowException, UnicodeDecodeError) as error:
                    raise CnllmError(
                        f"{path}: row {number + 1} or one behind it: {error}", hint="is it whole?"
                    ) from error
                if batch is None:
                    return
                for row in values:
                    number += 1
                    yield InputRow(number, row_key(msgspec.json.encode(row, enc_hook=str)), row)

    def count() -> int:
        with ParquetFile(path) as file:
            return int(file.metadata.num_rows)

    return Reader(name=path, rows=rows, content=lambda row: columns_content(row.data, template), count=count)


# ── plain lines ──────────────────────────────────────────────────────────────


def line_reader(data: BytesInput, template: PromptTemplate | None) -> Reader:
    """Return the reader of a file with one prompt a line, or the column `text` of one. Empty lines are no rows."""
    if template is not None:
        check_columns(data.name, ("text",), template)

    def rows() -> Iterator[InputRow]:
        for number, line in data.lines():
            yield InputRow(number, row_key(line), line)

    def content(row: InputRow) -> Content:
        try:
            text = row.data.decode()
        except UnicodeDecodeError as error:
            raise RowFault(f"byte {error.start + 1} is not {data.encoding()}") from None
        return Content(None, text if template is None else template.fill({"text": text}), {})

    return Reader(name=data.name, rows=rows, content=content, count=data.count_lines, keep=data.keep, close=data.close)
