"""What a model wrote → its answer, its thinking and its calls: a text as a whole, or as it comes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

from cnllm.engine.decode.parser import text_reply_builder
from cnllm.leaks.script import language_script
from cnllm.registry import Registry
from cnllm.registry.model import Model
from cnllm.types import Event, Note, TextDelta, ToolCall, checks

__all__ = ["Sanitized", "Sanitizer", "resolve_model", "sanitize"]

_RULES = ("recover", "strip", "keep")


class Sanitized(Struct, frozen=True):
    """What a text that a model wrote comes to: the answer, the thinking, and the calls that were in it.

    From a `Sanitizer`, `rest` is the last piece of `text`, which `feed` has not given yet.
    """

    text: str
    reasoning: str
    tool_calls: list[ToolCall]
    notes: list[Note]
    rest: str = ""


class Sanitizer:
    """A filter for the text of a model that comes in pieces: thinking and the markup of calls are not shown.

    Calls are recovered among `tools`, the functions that were offered; without any, their markup is taken out. What
    `feed` returns, and `rest` at the end, is together `text`, however the text is cut. `lang` is the language of a
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
        found = resolve_model(model)
        if recover_text_calls is not None and recover_text_calls not in _RULES:
            raise checks.wrong_value("recover_text_calls", recover_text_calls, f"one of {', '.join(_RULES)}")
        if lang is not None:
            checks.require_type("lang", lang, str, 'the tag of a language, like "zh",')
        script = None if lang is None else language_script(lang)
        self._fold = text_reply_builder(found, tools, recover_text_calls, script)
        self._result: Sanitized | None = None

    def feed(self, text: str) -> str:
        """Return what may be shown now, after a further piece of the text."""
        checks.require_text("text", text)
        if self._result is not None:
            raise ValueError("this Sanitizer is closed: make another one for the next text")
        return _shown(self._fold.add_piece(text))

    def close(self) -> Sanitized:
        """Return all that the text came to; it is over."""
        if self._result is None:
            rest = _shown(self._fold.end(proven=True))
            reply = self._fold.reply([])
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
    """Return what a text comes to, thinking tags and calls told apart as the model's registry entry says.

    The arguments are those of a `Sanitizer`. The prompt is not known here: whether a block is quoted is judged by the
    text alone.
    """
    checks.require_text("text", text)
    whole = Sanitizer(model, tools, lang, recover_text_calls=recover_text_calls)
    whole.feed(text)
    return whole.close()


def resolve_model(given: str | Model) -> Model:
    """Return the model, by its name or itself."""
    if isinstance(given, str):
        return Registry.load().resolve(given)
    checks.require_type("model", given, Model, "a name or a cnllm.Model")
    return given


def _shown(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if type(event) is TextDelta)
