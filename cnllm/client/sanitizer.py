"""Split the text of a model into answer, reasoning and tool calls, as a whole or piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

from cnllm.engine.decode.reply_builder import text_reply_builder
from cnllm.leaks.fallback_text import language_script
from cnllm.registry.model import Model
from cnllm.registry.registry import resolve_model
from cnllm.types import Event, Note, TextDelta, ToolCall, checks

__all__ = ["Sanitized", "Sanitizer", "sanitize"]

_RULES = ("recover", "strip", "keep")


class Sanitized(Struct, frozen=True):
    """The parts of a text that a model wrote: the answer, the reasoning and the calls in it.

    From a `Sanitizer`, `rest` is the last piece of `text`, which `feed` has not given yet.
    """

    text: str
    reasoning: str
    tool_calls: list[ToolCall]
    notes: list[Note]
    rest: str = ""


class Sanitizer:
    """A filter for model text that arrives in pieces. It withholds reasoning and the markup of calls.

    It recovers calls of `tools`, the functions that were offered; without any, it removes their markup. The results of
    `feed` and the final `rest` together equal `text`, at whatever points the text is cut. `lang` is the language of a
    sentence for the user ("zh", "en", …) where an answer was nothing but markup; else the text's own script decides.
    """

    def __init__(
        self,
        model: str | Model,
        tools: Sequence[Any] | None = None,
        lang: str | None = None,
        *,
        recover_text_calls: Literal["recover", "strip", "keep"] | None = None,
    ) -> None:
        resolved = resolve_model(model)
        if recover_text_calls is not None and recover_text_calls not in _RULES:
            raise checks.wrong_value("recover_text_calls", recover_text_calls, f"one of {', '.join(_RULES)}")
        if lang is not None:
            checks.require_type("lang", lang, str, 'the tag of a language, like "zh",')
        script = None if lang is None else language_script(lang)
        self._builder = text_reply_builder(resolved, tools, recover_text_calls, script)
        self._result: Sanitized | None = None

    def feed(self, text: str) -> str:
        """Return the text that may be shown after a further piece."""
        checks.require_text("text", text)
        if self._result is not None:
            raise ValueError("this Sanitizer is closed; create a new one for the next text")
        return _delta_text(self._builder.add_text(text))

    def close(self) -> Sanitized:
        """End the text and return all parts of it."""
        if self._result is None:
            rest = _delta_text(self._builder.end(proven=True))
            reply = self._builder.reply([])
            self._result = Sanitized(reply.text, reply.reasoning, reply.tool_calls, reply.notes, rest)
        return self._result


def sanitize(
    model: str | Model,
    text: str,
    tools: Sequence[Any] | None = None,
    lang: str | None = None,
    *,
    recover_text_calls: Literal["recover", "strip", "keep"] | None = None,
) -> Sanitized:
    """Return the parts of a text; the model's registry entry describes its reasoning tags and calls.

    The arguments are those of a `Sanitizer`. There is no prompt: the text alone decides whether a block is a quotation.
    """
    checks.require_text("text", text)
    sanitizer = Sanitizer(model, tools, lang, recover_text_calls=recover_text_calls)
    sanitizer._builder.add_text(text)
    return sanitizer.close()


def _delta_text(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if type(event) is TextDelta)
