"""Write calls and results as text, for a model without tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history.repair import Turn
from cnllm.types import Message, Part, Text, ToolCall, ToolResult
from cnllm.types.checks import plural
from cnllm.types.convert import text_with_error
from cnllm.types.lenient_json import replace_surrogates

if TYPE_CHECKING:
    from cnllm.types.note_codes import NoteCode

__all__ = ["IN_WORDS", "TextForm", "calls_to_text"]


class TextForm(Struct, frozen=True):
    """The text form of calls and results for a model without tools, and the note on it."""

    call: Callable[[ToolCall], str]
    result: Callable[[ToolResult], str]
    code: NoteCode
    flag: str
    did: str


def _call_text(call: ToolCall) -> str:
    """Return a call as text."""
    raw = call.raw.strip() or msgspec.json.encode(replace_surrogates(call.arguments or {})).decode()
    return f"[called {call.name} with {raw}]"


def _result_text(result: ToolResult) -> str:
    """Return a result as text."""
    return f"[result{f' of {result.name}' if result.name else ''}: {text_with_error(result)}]"


IN_WORDS = TextForm(_call_text, _result_text, "tools-as-text", "tools.supported", "told in words")
"""For a model without tools, where the prompt describes none."""


def calls_to_text(turns: Sequence[Turn], form: TextForm, ledger: Ledger) -> list[Turn]:
    """Return the turns with calls as text of their turn, and neighbouring results as one message of the user."""
    out: list[Turn] = []
    indexes: list[int] = []
    for role, group in groupby(turns, lambda turn: turn[1].role):
        if role == "tool":
            results = [(index, part) for index, message in group for part in message.parts if type(part) is ToolResult]
            parts: list[Part] = []
            for _, result in results:
                parts += [*([Text("\n")] if parts else []), Text(form.result(result)), *result.media, *result.blocks]
            indexes += [index for index, _ in results]
            out.append((results[0][0], Message("user", tuple(parts))))
            continue
        for index, message in group:
            if any(type(part) is ToolCall for part in message.parts):
                indexes.append(index)
                message = replace(message, parts=tuple(_parts_with_text_calls(message.parts, form)))
            out.append((index, message))
    if indexes:
        subject = f"calls and results in {len(indexes)} message{plural(len(indexes))}, the first messages[{indexes[0]}]"
        ledger.note(form.code, form.flag, subject, form.did)
    return out


def _parts_with_text_calls(parts: Sequence[Part], form: TextForm) -> list[Part]:
    """Return an assistant's parts, with each call as text on a line of its own."""
    out: list[Part] = []
    for part in parts:
        if type(part) is ToolCall:
            before = next((other.text for other in reversed(out) if type(other) is Text and other.text), "\n")
            part = Text(form.call(part) if before.endswith("\n") else "\n" + form.call(part))
        out.append(part)
    return out
