"""The request in a row of columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cnllm.batch.rows import Content, RowFault
from cnllm.batch.template import Template
from cnllm.errors import CnllmError

__all__ = ["check_columns", "columns_content"]


def columns_content(columns: Mapping[str, Any], template: Template | None) -> Content:
    """Return the request: the filled prompt, or the columns `prompt` or `messages`. Raises `RowFault`."""
    row_id = columns.get("id")
    if row_id == "":
        raise RowFault("id is empty")
    if row_id is not None and type(row_id) not in (str, int):
        row_id = str(row_id)
    if template is not None:
        return Content(row_id, template.fill(columns), {})
    if (prompt := columns.get("prompt")) is not None:
        if not isinstance(prompt, str) or not prompt.strip():
            raise RowFault("the prompt is empty" if isinstance(prompt, str) else "prompt is no text")
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


def check_columns(name: str, columns: tuple[str, ...], template: Template | None) -> None:
    """Raise `CnllmError` where the header of a table lacks a column that every row needs."""
    have = f"its columns: {', '.join(columns) or 'none'}"
    missing = [column for column in (template.columns if template is not None else ()) if column not in columns]
    if missing:
        raise CnllmError(f"{name} has no column {', '.join(missing)}", hint=have)
    if template is None and not {"prompt", "messages"} & set(columns):
        raise CnllmError(
            f"{name} has neither a column prompt nor a column messages",
            hint=f"fill a prompt: --prompt 'Translate: {{{columns[0] if columns else 'text'}}}'; {have}",
        )
