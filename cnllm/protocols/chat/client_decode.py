"""OpenAI chat completions, reading: bodies and chunks → what they mean.

One function for both: a message is read like a delta that holds everything. The endpoint's dialect (which fields hold
the thinking, where usage and errors are) comes from the flags.
"""

from __future__ import annotations

from typing import Any

from cnllm.jsonpath import get, get_first
from cnllm.protocols import Quick
from cnllm.protocols.decode_sink import REPEATABLE, EventSink
from cnllm.protocols.fast_decode import chat_chunk_decoder as decoder
from cnllm.protocols.reported import has_error_status, find_error
from cnllm.protocols.usage import read_counts
from cnllm.registry.flags import Flags
from cnllm.types import Event

__all__ = ["decode_chunk", "fast_decoder"]


def decode_chunk(data: dict[str, Any], flags: Flags, sink: EventSink, *, whole: bool = False) -> list[Event]:
    """One decoded chunk, or with `whole` one body: its events, and what it leaves in `sink`."""
    if sink.id is None and type(data.get("id")) is str:
        sink.id = data["id"] or None
    if sink.model is None and type(data.get("model")) is str:
        sink.model = data["model"] or None
    if sink.created is None and type(data.get("created")) in (int, float):
        sink.created = data["created"] or None
    fault = _fault(data, flags)
    if fault is not None and sink.fault is None:
        sink.fault = fault
    out: list[Event] = []
    usage = get_first(data, flags.usage.at if flags.usage else None)
    if type(usage) is dict:
        out += sink.add_usage(read_counts(usage, flags))
    choices = data.get("choices")
    if type(choices) is not list:
        return out
    for place, choice in enumerate(choices):
        if type(choice) is dict and choice.get("index") in ((None, 0) if place == 0 else (0,)):
            out += _choice(choice, flags, sink, whole)
        elif type(choice) is dict:
            said = f"choice {choice.get('index', place)!r}"
            out += sink.note("choice-dropped", "n", said, "left out: the first choice is the reply")
    return out


def _choice(choice: dict[str, Any], flags: Flags, sink: EventSink, whole: bool) -> list[Event]:
    out: list[Event] = []
    sink.answered = True
    for key in ("delta", "message") if not whole else ("message", "delta"):
        said = choice.get(key)
        if type(said) is dict:
            # Some endpoints repeat the whole message beside the last delta.
            if key == "message" and not whole and (sink.has_text or sink.has_calls):
                continue
            again = key == "message" and not whole
            out += _delta(said, flags, sink, whole or again, again)
            if whole:
                break
    if type(choice.get("text")) is str and choice["text"]:
        out += _legacy(choice, flags, sink)
    if sink.fault is None and type(broken := choice.get("error")) is dict and broken:
        sink.fault = broken
    reason = choice.get("finish_reason")
    if type(reason) is str and reason:
        sink.raw_finish = reason
        sink.finished = True
    return out


def _legacy(choice: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """The text field of the older API. It counts only while no message has content: hosts send both."""
    if _CONTENT in sink.state:
        return []
    text: str = choice["text"]
    for key in ("delta", "message"):
        said = choice.get(key)
        fields = (flags.reasoning.fields if flags.reasoning else None) or ()
        if type(said) is dict and any(said.get(field) == text for field in fields):
            return []  # it repeats the thinking
    sink.state.setdefault(REPEATABLE, []).append(text)
    return sink.add_text(text)


def _answer(text: str, sink: EventSink) -> list[Event]:
    """Content of a message, without what the older field has said already."""
    sink.state[_CONTENT] = True
    if REPEATABLE in sink.state:
        rest = "".join(sink.state.pop(REPEATABLE))
        if len(rest) > len(text) and rest.startswith(text):
            sink.state[REPEATABLE] = [rest[len(text) :]]
        text = text.removeprefix(rest) if len(text) >= len(rest) else "" if rest.startswith(text) else text
    return sink.add_text(text) if text else []


_CONTENT = "content"
"""What is remembered: content has come."""


def _delta(said: dict[str, Any], flags: Flags, sink: EventSink, whole: bool, again: bool = False) -> list[Event]:
    """A delta or a message; `again`: a message beside a delta, which may repeat what came."""
    out: list[Event] = []
    reasoning = flags.reasoning
    thought = ""
    for field in (reasoning.fields if reasoning else None) or ():
        value = said.get(field)
        if not value:
            continue
        if type(value) is list:
            sink.add_details(value)
            value = "".join(_detail_text(item) for item in value)
        if not thought and type(value) is str and value:  # mirrored fields count once
            thought = value
            out += sink.add_reasoning(value, f"message.{field}" if again else field)
    content = said.get("content")
    if type(content) is str:
        if content:
            out += _answer(content, sink)
    elif type(content) is list:
        out += _parts(content, flags, sink)
    elif type(content) is dict:
        out += sink.add_opaque(content)
    refusal = said.get("refusal")
    if type(refusal) is str and refusal:
        sink.refused = True
        out += _answer(refusal, sink)
    if calls := said.get("tool_calls"):
        out += sink.add_call_pieces(calls, whole)
    elif type(old := said.get("function_call")) is dict and (old.get("name") or old.get("arguments")):
        out += sink.add_call_pieces([{"index": 0, "function": old}], whole)
    return out


def _parts(parts: list[Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Content as a list: text parts, parts that hold reasoning, and others, kept whole."""
    out: list[Event] = []
    thinks = flags.reasoning.part if flags.reasoning else None
    for part in parts:
        if type(part) is str:
            out += _answer(part, sink) if part else []
        elif type(part) is not dict:
            continue
        elif thinks is not None and part.get("type") == thinks:
            inner = part.get(thinks)
            inner = [inner] if type(inner) is not list else inner
            text = "".join(_detail_text(p) for p in inner)
            sink.add_details([part])
            out += sink.add_reasoning(text, "content") if text else []
        elif type(part.get("text")) is str:
            out += _answer(part["text"], sink) if part["text"] else []
        else:
            out += sink.add_opaque(part)
    return out


def _detail_text(item: Any) -> str:
    if type(item) is str:
        return item
    if type(item) is not dict:
        return ""
    for key in ("text", "summary"):
        if type(item.get(key)) is str:
            return str(item[key])
    return ""


def _fault(data: dict[str, Any], flags: Flags) -> Any:
    """The error that hides in a body or chunk, or None. An object that gives 0 as its code reports success."""
    paths = flags.error
    for path in (paths.at if paths else None) or ():
        found = get(data, path)
        if not found:
            continue
        if type(found) is dict:
            code = get_first(found, paths.code if paths else None)
            said = get_first(found, paths.message if paths else None)
            if code not in (0, "0") and (said or code or has_error_status(found)):
                return found
        elif not data.get("choices"):  # a plain sentence; beside an answer it is no failure
            return data
    if not data.get("choices") and paths is not None:  # the error object may be the body itself
        code = get_first(data, paths.code)
        if code not in (None, 0, "0") and type(get_first(data, paths.message)) is str:
            return data
    return None if data.get("choices") else find_error(data)


def fast_decoder(flags: Flags) -> Quick:
    """The fast way: it heeds the fields of thinking, and falls back for what is rare in a delta, a choice, a chunk."""
    thoughts = tuple((flags.reasoning.fields if flags.reasoning else None) or ())
    at = [
        *((flags.usage.at if flags.usage else None) or ()),
        *((flags.error.at if flags.error else None) or ()),
    ]
    choice = {p.split(".")[2] for p in at if p.startswith("choices.") and p.count(".") >= 2}
    top = {p.split(".")[0] for p in at} - {"choices"}
    rare_choice = {"finish_reason", "message", "text"} | choice
    return decoder(
        thoughts,
        ("tool_calls", "function_call", "refusal"),
        tuple(sorted(rare_choice)),
        tuple(sorted(top)),
    )
