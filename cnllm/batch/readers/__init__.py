"""Read the input of a batch row by row: JSON lines, plain lines, CSV, Parquet, or the values of a Python iterable.

Every reader streams: it holds a block of the input and no more. Its rows can be read again from the start, so that a
run can compare finished rows before it sends anything. What can be read only once (a pipe, a generator) is copied to a
file without a name where that is needed.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sized
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from cnllm.batch.readers.bytes_input import BytesInput
from cnllm.batch.readers.tables import columns_content, delimited_reader, line_reader, parquet_reader
from cnllm.batch.rows import (
    Content,
    InputRow,
    PromptTemplate,
    Reader,
    RowFault,
    faults_of,
    json_kind,
    row_key,
    value_bytes,
)
from cnllm.errors import CnllmError
from cnllm.protocols import PROTOCOLS, server_codec
from cnllm.protocols.server import decode_request
from cnllm.types import Message, Note
from cnllm.types.json_form import mend_halves

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
    try:
        return _reader_of(data, str(source), template, format)
    except BaseException:
        data.close()
        raise


def _reader_of(data: BytesInput, path: str, template: PromptTemplate | None, format: str | None) -> Reader:
    kind = format or _format_of(data)
    if kind == "parquet":
        return parquet_reader("-" if data.is_pipe else path, template)
    if kind in ("csv", "tsv"):
        return delimited_reader(data, template, tab=kind == "tsv")
    if kind == "lines":
        return line_reader(data, template)
    if kind != "jsonl":
        raise CnllmError(f"there is no format {kind!r}", hint=f"it is one of {', '.join(FORMATS)}")
    return json_line_reader(data, template)


def _format_of(data: BytesInput) -> str:
    """Return the format by the name of the file, else by its first bytes."""
    suffix = Path(Path(data.name).name.lower().removesuffix(".gz")).suffix
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
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


# ── JSON lines ───────────────────────────────────────────────────────────────


_MENDED = Note("text-mended", "messages", "half of a character in the line", "replaced by U+FFFD")
_DEFAULT_URL = "/v1/chat/completions"


def json_line_reader(data: BytesInput, template: PromptTemplate | None) -> Reader:
    """Return the reader of a file with one JSON object a line. Empty lines are no rows."""

    def rows() -> Iterator[InputRow]:
        for number, line in data.lines():
            yield InputRow(number, row_key(content := line.strip()), content)

    def content(row: InputRow) -> Content:
        notes: tuple[Note, ...] = ()
        try:
            try:
                value = msgspec.json.decode(row.data)
            except msgspec.DecodeError:
                if (mended := mend_halves(row.data)) == row.data:
                    raise
                value, notes = msgspec.json.decode(mended), (_MENDED,)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RowFault(f"not valid JSON: {error}") from None
        except RecursionError:
            raise RowFault("not valid JSON: it is nested too deeply") from None
        if type(value) is not dict:
            raise RowFault(f"a JSON object is expected, this is {json_kind(value)}")
        found = _object_content(value, template)
        return replace(found, notes=(*notes, *found.notes)) if notes else found

    return Reader(name=data.name, rows=rows, content=content, count=data.count_lines, keep=data.keep, close=data.close)


def _object_content(value: Mapping[str, Any], template: PromptTemplate | None) -> Content:
    """Return the request of an object. Raises `RowFault`."""
    if "custom_id" in value and "body" in value:
        return _batch_content(value)
    if template is not None:
        return columns_content(value, template)
    row_id = value.get("id", value.get("custom_id"))
    with faults_of(row_id):
        has_messages, has_prompt = value.get("messages") is not None, value.get("prompt") is not None
        if has_messages == has_prompt:
            raise RowFault("both messages and prompt" if has_messages else "neither messages nor prompt")
        options = {name: item for name, item in value.items() if name not in ("id", "custom_id", "messages", "prompt")}
        model = options.pop("model", None)
        if options.pop("stream", None):
            raise RowFault("a batch does not stream: leave `stream` out")
        messages = value["messages"] if has_messages else value["prompt"]
        if has_prompt and not isinstance(messages, str):
            raise RowFault(f"prompt is {json_kind(messages)}; a text is expected")
        return Content(row_id, messages, options, model if isinstance(model, str) else None)


# ── OpenAI's batch format ────────────────────────────────────────────────────


@cache
def _protocols() -> dict[str, str]:
    """Return the protocol of each path that names no model."""
    return {path: protocol for protocol in PROTOCOLS for path in server_codec(protocol).paths if "{" not in path}


def _batch_content(value: Mapping[str, Any]) -> Content:
    """Return the request of a line. The model of its body is not used. Raises `RowFault`."""
    row_id, body, url = value["custom_id"], value["body"], value.get("url", _DEFAULT_URL)
    with faults_of(row_id):
        protocol = _protocols().get(url) if isinstance(url, str) else None
        if protocol is None:
            raise RowFault(f"url {url!r} is not a path of a conversation; it is one of {', '.join(_protocols())}")
        if type(body) is not dict:
            raise RowFault(f"body is {json_kind(body)}; a JSON object is expected")
        body = {name: item for name, item in body.items() if name not in ("stream", "stream_options")}
        try:
            request = decode_request(protocol, body, path=url)
        except (ValueError, TypeError) as error:
            raise RowFault(f"body: {error}") from None
        model = body.get("model")
        model_name = model if isinstance(model, str) else None
        return Content(row_id, request.messages, dict(request.options), model_name, tuple(request.notes))


# ── values of Python ─────────────────────────────────────────────────────────


def object_reader(requests: Iterable[Any], template: PromptTemplate | None) -> Reader:
    """Return the reader of an iterable of texts, lists of messages, or dicts as in JSON lines.

    A row is named by its position, counted from 1. What can be read only once is kept as a list.
    """
    source = requests

    def rows() -> Iterator[InputRow]:
        for number, value in enumerate(source, 1):
            yield InputRow(number, row_key(value_bytes(value)), value)

    def keep() -> None:
        nonlocal source
        if iter(source) is source:
            source = list(source)

    def count() -> int | None:
        return len(source) if isinstance(source, Sized) else None

    return Reader(
        name="requests", rows=rows, content=lambda row: _value_content(row.data, template), count=count, keep=keep
    )


def _value_content(value: Any, template: PromptTemplate | None) -> Content:
    """Return the request of a value. Raises `RowFault`."""
    if isinstance(value, str):
        return Content(None, value, {}) if template is None else columns_content({"text": value}, template)
    if isinstance(value, Mapping) and not isinstance(value.get("role"), str):
        return _object_content(value, template)
    if isinstance(value, list | tuple | Message | Mapping):
        return Content(None, [value] if isinstance(value, Message | Mapping) else list(value), {})
    raise RowFault(f"{type(value).__name__} is not a request; a text, messages or a dict is expected")
