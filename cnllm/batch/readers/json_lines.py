"""Read JSON lines: our own rows, rows of columns for a prompt, and OpenAI's batch format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cnllm.batch.readers.bytes_input import BytesInput
from cnllm.batch.readers.table import columns_content
from cnllm.batch.rows import Content, Row, RowFault, check_id, json_kind, row_key
from cnllm.batch.template import Template

__all__ = ["JsonLineReader", "object_content"]

_BOM = b"\xef\xbb\xbf"


class JsonLineReader:
    """A file with one JSON object a line."""

    columns: tuple[str, ...] | None = None

    def __init__(self, data: BytesInput, template: Template | None) -> None:
        self.name = data.name
        self._data = data
        self._template = template
        encoding = data.encoding()
        self._encoding = None if encoding.replace("_", "-").lower() in ("utf-8", "utf8", "ascii") else encoding

    def rows(self) -> Iterator[Row]:
        """Yield the rows from the start. Empty lines are none."""
        if self._encoding is not None:
            yield from self._decoded_rows(self._encoding)
            return
        with self._data.open() as file:
            for number, line in enumerate(file, 1):
                data = line.strip()
                if number == 1 and data.startswith(_BOM):
                    data = data[3:]
                if data:
                    yield Row(number, row_key(data), data)

    def _decoded_rows(self, encoding: str) -> Iterator[Row]:
        import io

        with io.TextIOWrapper(self._data.open(), encoding, errors="surrogateescape", newline="\n") as text:
            for number, line in enumerate(text, 1):
                data = line.strip().encode("utf-8", "surrogatepass")
                if data:
                    yield Row(number, row_key(data), data)

    def content(self, row: Row) -> Content:
        """Return the request of a row. Raises `RowFault`."""
        try:
            value = msgspec.json.decode(row.data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RowFault(f"not valid JSON: {error}") from None
        except RecursionError:
            raise RowFault("not valid JSON: it is nested too deeply") from None
        if type(value) is not dict:
            raise RowFault(f"a JSON object is expected, this is {json_kind(value)}")
        return object_content(value, self._template)

    def keep(self) -> None:
        """Make sure that the rows can be read more than once."""
        self._data.keep()

    def close(self) -> None:
        """Give up what `keep` made."""
        self._data.close()

    def count(self) -> int | None:
        """Return the number of lines; None for a pipe."""
        return self._data.count_lines()


def object_content(value: Mapping[str, Any], template: Template | None) -> Content:
    """Return the request of an object. Raises `RowFault`."""
    if "custom_id" in value and "body" in value:
        from cnllm.batch.readers.batch_lines import batch_content

        return batch_content(value)
    if template is not None:
        return columns_content(value, template)
    row_id = value.get("id", value.get("custom_id"))
    check_id(row_id)
    has_messages, has_prompt = value.get("messages") is not None, value.get("prompt") is not None
    if has_messages == has_prompt:
        raise RowFault("both messages and prompt" if has_messages else "neither messages nor prompt")
    options = {name: item for name, item in value.items() if name not in ("id", "custom_id", "messages", "prompt")}
    options.pop("model", None)
    if options.pop("stream", None):
        raise RowFault("a batch does not stream: leave `stream` out")
    messages = value["messages"] if has_messages else value["prompt"]
    if has_prompt and not isinstance(messages, str):
        raise RowFault(f"prompt is {json_kind(messages)}; a text is expected")
    return Content(row_id, messages, options)
