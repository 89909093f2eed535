"""Read a chat completion of the usual form: one choice, one message, text, reasoning in a field, complete calls."""

from __future__ import annotations

from typing import Any

from cnllm.jsonpath import get_first
from cnllm.protocols import UsualMessage, UsualReader
from cnllm.protocols.chat.client_decode import EXTRA_KEYS, find_fault
from cnllm.protocols.chat.client_paths import chunk_reader
from cnllm.protocols.reported import counts_reader, known_keys, other_counts
from cnllm.registry.flags import Flags
from cnllm.types import Usage

__all__ = ["usual_reader"]

_CALL_KEYS = frozenset({"id", "index", "type", "function"})
_RARE_KEYS = ("refusal", "function_call", "annotations", "images", "audio")
_NO_USAGE = Usage()


def usual_reader(flags: Flags) -> UsualReader | None:
    """Return the reader of usual bodies for these flags; None where the endpoint has paths of its own."""
    if chunk_reader(flags) is not None:
        return None
    fields = tuple((flags.reasoning.fields if flags.reasoning else None) or ())
    usage_at = (flags.usage.at if flags.usage else None) or ()
    read_usage = counts_reader(flags)
    citations_at = (flags.citations.at if flags.citations else None) or ()
    known = known_keys(flags)
    plain_keys = frozenset(["role", "content", "tool_calls", *fields])
    fault_keys = tuple({path.partition(".")[0] for path in (flags.error.at if flags.error else None) or ()})

    def read(data: dict[str, Any]) -> UsualMessage | None:
        choices = data.get("choices")
        if type(choices) is not list or len(choices) != 1 or type(choice := choices[0]) is not dict:
            return None
        message, finish = choice.get("message"), choice.get("finish_reason")
        if type(message) is not dict or type(finish) is not str or not finish:
            return None
        if choice.get("index") not in (None, 0) or "text" in choice or choice.get("error") or choice.get("logprobs"):
            return None
        content = message.get("content")
        if type(content) is not str:
            if content is not None:
                return None
            content = ""
        if not plain_keys.issuperset(message) and any(map(message.get, _RARE_KEYS)):
            return None
        if citations_at and get_first(data, citations_at):
            return None
        reasoning = ""
        for field in fields:
            if value := message.get(field):
                if type(value) is not str:
                    return None
                reasoning = reasoning or value
        items = message.get("tool_calls")
        calls = [] if not items else _calls(items)
        if calls is None:
            return None
        for key in fault_keys:
            if (not key or data.get(key)) and find_fault(data, flags) is not None:
                return None
        usage = get_first(data, usage_at)
        invalid = set[str]()
        counts = read_usage(usage, invalid) if type(usage) is dict else _NO_USAGE
        if invalid:
            return None
        extra: dict[str, Any] = {}
        for key in EXTRA_KEYS:
            if key in data and type(value := data[key]) in (str, dict) and value:
                extra[key] = value
        if type(usage) is dict and (rest := other_counts(usage, known)):
            extra["usage"] = rest
        created = data.get("created")
        return UsualMessage(
            content,
            reasoning,
            calls,
            finish,
            counts,
            _text(data.get("id")),
            _text(data.get("model")),
            (created or None) if type(created) in (int, float) else None,
            extra,
        )

    return read


def _calls(items: Any) -> list[tuple[str, str, str]] | None:
    """Return the calls of a message; None where one is not complete, or has more keys than usual."""
    if type(items) is not list:
        return None
    calls: list[tuple[str, str, str]] = []
    for item in items:
        if type(item) is not dict or not _CALL_KEYS.issuperset(item) or type(item.get("index")) in (list, dict):
            return None
        id, function = item.get("id"), item.get("function")
        if type(id) is not str or not id or type(function) is not dict:
            return None
        name, arguments = function.get("name"), function.get("arguments")
        if type(name) is not str or not name or type(arguments) is not str or not arguments:
            return None
        calls.append((id, name, arguments))
    return calls


def _text(value: Any) -> str | None:
    """Return a text; None for anything else, and where it is empty."""
    return value or None if type(value) is str else None
