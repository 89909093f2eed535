"""Decode bodies and events of OpenAI Responses.

A reply is a list of items. `records` has the record of each item, `items` adds items to the sink. This module decodes
the events of a stream, and the reply as one object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cnllm.jsonpath import get, get_first
from cnllm.protocols.decode_sink import EventSink
from cnllm.protocols.reported import find_error, finish_kind, finish_word
from cnllm.protocols.responses.client_items import (
    add_annotation,
    add_call,
    add_call_piece,
    as_function_call,
    begin_part,
    complete_item,
    write_reasoning,
    write_text,
)
from cnllm.protocols.responses.client_records import (
    RecordMatcher,
    add_record,
    find_record,
    item_type,
    output_records,
)
from cnllm.protocols.usage import add_counts, merge_counts
from cnllm.registry.flags import Flags
from cnllm.types import Event
from cnllm.types.custom_tools import custom_arguments

__all__ = ["decode_chunk"]


def decode_chunk(data: dict[str, Any], flags: Flags, sink: EventSink, *, whole: bool = False) -> list[Event]:
    """Decode one event, or with `whole` one body. Return its events; the rest is stored in `sink`."""
    kind = data.get("type")
    read = _EVENTS.get(kind) if type(kind) is str and not whole else None
    if read is not None:
        return read(data, flags, sink)
    if whole or type(data.get("output")) is list:
        return _response(data, flags, sink, is_final=True)
    if sink.fault is None:
        sink.fault = _find_error(data, flags)
    return []


# ── the reply as a whole ──────────────────────────────────────────────────────


def _response(data: dict[str, Any], flags: Flags, sink: EventSink, *, is_final: bool) -> list[Event]:
    """Decode the reply as one object; `is_final`: this is its final version."""
    if sink.id is None and type(data.get("id")) is str:
        sink.id = data["id"] or None
    if sink.model is None and type(data.get("model")) is str:
        sink.model = data["model"] or None
    if sink.created is None and type(data.get("created_at")) in (int, float):
        sink.created = data["created_at"] or None
    if sink.fault is None:
        sink.fault = _find_error(data, flags)
    out: list[Event] = []
    output = data.get("output")
    if type(output) is list:
        sink.answered = True
        if is_final:
            matches = RecordMatcher(output_records(sink))
            for item in output:
                if type(item) is dict:
                    item = as_function_call(item)
                    record = matches.match(item) or add_record(item_type(item), item, sink)
                    out += complete_item(item, record, flags, sink)
    if is_final and type(tier := data.get("service_tier")) is str:
        out += sink.add_extra("service_tier", tier)
    usage = get_first(data, flags.usage.at if flags.usage else None)
    if type(usage) is dict:
        state = output_records(sink)
        merge_counts(state.usage, usage)
        out += add_counts(state.usage, flags, sink)
    if is_final and sink.report_finish(data.get("status")):
        sink.finished = True
    reason = get(data, "incomplete_details.reason")
    if is_final and finish_kind(finish_word(reason), flags) == "content_filter":
        sink.refused = True
    return out


def _response_started(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode an event with the reply at its beginning."""
    response = data.get("response")
    return _response(response, flags, sink, is_final=False) if type(response) is dict else []


def _response_ended(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode an event with the reply at its end. A status that says that the reply goes on outranks its name."""
    response = data.get("response")
    out: list[Event] = []
    status = ""
    if type(response) is dict:
        out = _response(response, flags, sink, is_final=True)
        status = finish_word(response.get("status"))
    word = str(data["type"]).rpartition(".")[2]
    word = "completed" if word == "done" else word
    if (not status or word != "completed") and sink.report_finish(word):
        sink.finished = True
    return out


def _error_event(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode an error event: the error is an object of its own, or stands in the event's own keys."""
    if sink.fault is None:
        inner = data.get("error")
        sink.fault = inner if inner else {k: v for k, v in data.items() if k not in ("type", "sequence_number")}
    return []


def _find_error(data: dict[str, Any], flags: Flags) -> Any:
    """Return the error in an object, or None."""
    paths = flags.error
    for path in (paths.at if paths else None) or ():
        error = get(data, path)
        if type(error) is dict and error:
            return error
        if error and type(data.get("output")) is not list:  # a plain sentence, or a list of them, without a reply
            return data
    return None if type(data.get("output")) is list else find_error(data)


# ── items ─────────────────────────────────────────────────────────────────────


def _item_added(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Begin an item. Of a call the known keys are reported; all other items are reported by their pieces."""
    item = data.get("item")
    if type(item) is not dict:
        return []
    sink.answered = True
    item = as_function_call(item)
    record = add_record(item_type(item), item, sink, data.get("output_index"))
    if record.kind != "function_call":
        return []
    out = add_call(item, record, sink, "")
    sink.end_call(record.number, False)  # until its end comes
    return out


def _item_done(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """End an item, which comes as a whole."""
    item = data.get("item")
    if type(item) is not dict:
        return []
    sink.answered = True
    item = as_function_call(item)
    event_keys = {"output_index": data.get("output_index"), "item_id": item.get("id")}
    record = find_record(item_type(item), event_keys, sink)
    out = complete_item(item, record, flags, sink)
    record.done = True
    state = output_records(sink)
    if state.current_part is None or state.current_part[0] is record:
        state.current_part = None
        out += sink.end_block()
    return out


# ── pieces ────────────────────────────────────────────────────────────────────


def _index(data: dict[str, Any]) -> int:
    """Return the index of a part in its item."""
    index = data.get("content_index")
    return index if type(index) is int and index > 0 else 0


def _text_delta(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode a piece of a message."""
    text = data.get("delta")
    if type(text) is not str or not text:
        return []
    sink.answered = True
    record, index = find_record("message", data, sink), _index(data)
    out = write_text(record, index, text, sink)
    if tokens := data.get("logprobs"):
        record.logprobs.add(index)
        out += sink.add_extra("logprobs", tokens) if type(tokens) is list else []
    return out


def _refusal_delta(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode a piece of a refusal."""
    sink.refused = True
    return _text_delta(data, flags, sink)


def _text_done(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode a whole part of a message. It counts only if it did not come in pieces."""
    part = data.get("part")
    part_data = part if type(part) is dict else data
    if part_data.get("type") == "reasoning_text":
        return _reasoning_done({**data, "text": part_data.get("text")}, flags, sink, "content")
    is_refusal = type(part_data.get("refusal")) is str
    text = part_data.get("refusal" if is_refusal else "text")
    if type(text) is not str or not text:
        return []
    sink.answered = True
    sink.refused = sink.refused or is_refusal
    record, index = find_record("message", data, sink), _index(data)
    return [] if index in record.parts else write_text(record, index, text, sink)


def _annotation_added(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode a source of a part of a message."""
    return add_annotation(find_record("message", data, sink), _index(data), data.get("annotation"), sink)


def _reasoning_delta(data: dict[str, Any], flags: Flags, sink: EventSink, reasoning_field: str) -> list[Event]:
    """Decode a piece of reasoning."""
    text = data.get("delta")
    if type(text) is not str or not text:
        return []
    sink.answered = True
    record = find_record("reasoning", data, sink)
    record.reasoning_field = record.reasoning_field or reasoning_field
    return (
        [*begin_part(record, 0, "thought", sink), *write_reasoning(text, reasoning_field, sink)]
        if record.reasoning_field == reasoning_field
        else []
    )


def _reasoning_done(data: dict[str, Any], flags: Flags, sink: EventSink, reasoning_field: str) -> list[Event]:
    """Decode whole reasoning. It counts only if none came in pieces; there may be several such parts."""
    record = find_record("reasoning", data, sink)
    if record.reasoning_field is None and 0 not in record.parts:
        record.reasoning_field = f"{reasoning_field}.done"
    if record.reasoning_field != f"{reasoning_field}.done":
        return []
    part = data.get("part")
    text = data.get("text") if type(part) is not dict else part.get("text")
    index = data.get("summary_index", data.get("content_index"))
    is_known = f"{index}" in record.whole_parts  # two events report the same text
    if type(text) is not str or not text or is_known:
        return []
    record.whole_parts.add(f"{index}")
    sink.answered = True
    return [*begin_part(record, 0, "thought", sink), *write_reasoning(text, reasoning_field, sink)]


def _arguments_delta(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode a piece of a call's arguments."""
    piece = data.get("delta")
    if type(piece) is not str or not piece:
        return []
    sink.answered = True
    record = find_record("function_call", data, sink)
    record.raw.append(piece)
    record.size += len(piece)
    return add_call_piece(record, piece, sink)


def _arguments_done(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode the whole arguments of a call."""
    if type(data.get("arguments")) is not str:
        return []
    sink.answered = True
    call: dict[str, Any] = {key: data[key] for key in ("name", "call_id") if key in data}
    record = find_record("function_call", data, sink)
    out = add_call(call, record, sink, data["arguments"])
    sink.end_call(record.number, not record.unfinished)
    return out


def _input_delta(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode a piece of a custom tool's input as one of the arguments of its function."""
    piece = data.get("delta")
    if type(piece) is not str or not piece:
        return []
    record = find_record("function_call", data, sink)
    before, _, after = custom_arguments(piece)[1].partition(":")
    text = after[1:-2]
    return _arguments_delta({**data, "delta": text if record.size else f'{before}:"{text}'}, flags, sink)


def _input_done(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode the whole input of a custom tool."""
    if type(data.get("input")) is not str:
        return []
    return _arguments_done({**data, "arguments": custom_arguments(data["input"])[1]}, flags, sink)


def _for_field(reasoning_field: str, handler: Callable[..., list[Event]]) -> Callable[..., list[Event]]:
    """Return a handler for a field of reasoning."""
    return lambda data, flags, sink: handler(data, flags, sink, reasoning_field)


_EVENTS: dict[str, Callable[[dict[str, Any], Flags, EventSink], list[Event]]] = {
    "error": _error_event,
    "response.created": _response_started,
    "response.queued": _response_started,
    "response.in_progress": _response_started,
    "response.completed": _response_ended,
    "response.done": _response_ended,
    "response.incomplete": _response_ended,
    "response.failed": _response_ended,
    "response.cancelled": _response_ended,
    "response.output_item.added": _item_added,
    "response.output_item.done": _item_done,
    "response.content_part.done": _text_done,
    "response.output_text.delta": _text_delta,
    "response.output_text.done": _text_done,
    "response.output_text.annotation.added": _annotation_added,
    "response.refusal.delta": _refusal_delta,
    "response.refusal.done": _text_done,
    "response.function_call_arguments.delta": _arguments_delta,
    "response.function_call_arguments.done": _arguments_done,
    "response.custom_tool_call_input.delta": _input_delta,
    "response.custom_tool_call_input.done": _input_done,
    "response.reasoning_summary_text.delta": _for_field("summary", _reasoning_delta),
    "response.reasoning_summary_text.done": _for_field("summary", _reasoning_done),
    "response.reasoning_summary_part.done": _for_field("summary", _reasoning_done),
    "response.reasoning_text.delta": _for_field("content", _reasoning_delta),
    "response.reasoning_text.done": _for_field("content", _reasoning_done),
}
"""The events with content; all others only announce one of these."""
