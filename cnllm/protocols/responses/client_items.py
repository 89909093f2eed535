"""Add the items of a reply to the sink, so that no part of one counts twice."""

from __future__ import annotations

from typing import Any, Literal

from cnllm.jsonpath import get
from cnllm.protocols.decode_sink import EventSink
from cnllm.protocols.reported import finish_kind, finish_word
from cnllm.protocols.responses.client_records import ItemRecord, output_records
from cnllm.registry.flags import Flags
from cnllm.types import Event
from cnllm.types.custom_tools import custom_arguments

__all__ = [
    "add_annotation",
    "add_call",
    "add_call_piece",
    "begin_part",
    "complete_item",
    "write_reasoning",
    "write_text",
]

_IMAGE_CALL = "image_generation_call"
_MAX_REPEATS = 8  # repetitions of a complete item that are read
_UNFINISHED = ("pending", "length", "error")  # the meanings of the status of an unfinished item
_MESSAGE_KEYS = ("id", "status", "phase")  # keys of a message that a later part needs if it goes back alone


def as_function_call(item: dict[str, Any]) -> dict[str, Any]:
    """Return the item of a call of a custom tool as one of a function; any other item as it is.

    The empty `input` stays beside the arguments: by it the call goes back in the form in which it came.
    """
    if item.get("type") != "custom_tool_call":
        return item
    input = item.get("input")
    arguments = custom_arguments(input)[1] if type(input) is str else ""
    return {**item, "type": "function_call", "arguments": arguments, "input": ""}


def complete_item(item: dict[str, Any], record: ItemRecord, flags: Flags, sink: EventSink) -> list[Event]:
    """Add the parts of a whole item that have not come, and the seal of the item.

    The version at the end of the item stays; the whole reply adds only keys that were missing there. A status counts
    in each version: a call that is unfinished in one of them is no whole call, and such a message is one cut short.
    """
    status = finish_word(item.get("status"))
    kind = finish_kind(status, flags) if status else None
    if record.kind == "function_call":
        record.unfinished = record.unfinished or kind in _UNFINISHED
        out = _add_parts(item, record, flags, sink)
        sink.end_call(record.number, not record.unfinished)
        return out
    if record.kind == "message" and kind == "length":
        sink.report_finish(status)
    return _add_parts(item, record, flags, sink)


def _add_parts(item: dict[str, Any], record: ItemRecord, flags: Flags, sink: EventSink) -> list[Event]:
    """Add the parts of a whole item that have not come, and its seal."""
    if record.done:
        record.repeats += 1
        if record.repeats > _MAX_REPEATS:
            message = f"a complete item came again more than {_MAX_REPEATS} times"
            return sink.note("item-repeated", "stream", message, "further repetitions are not read")
        item = {**item, **{key: value for key, value in record.whole.items() if value is not None}}
        if item == record.whole:
            return []
    record.whole = item
    match record.kind:
        case "message":
            return _message(item, record, sink)
        case "reasoning":
            return _reasoning_item(item, record, flags, sink)
        case "function_call":
            return add_call(item, record, sink, item.get("arguments"))
    if record.done or record.parts:
        return []
    record.parts[0] = [sink.part_count]
    output_records(sink).current_part = None
    if record.kind == _IMAGE_CALL and type(item.get("result")) is str and item["result"]:
        out = sink.add_media(f"image/{item.get('output_format') or 'png'}", data=item["result"])
        sink.add_seal({"item": {key: value for key, value in item.items() if key != "result"}})
        return out
    return sink.add_opaque(item)


def _message(item: dict[str, Any], record: ItemRecord, sink: EventSink) -> list[Event]:
    """Add the missing parts of a message, and its seals."""
    out: list[Event] = []
    content = item.get("content")
    parts = content if type(content) is list else [content]
    item_keys = {k: v for k, v in item.items() if k not in ("type", "role", "content")}
    later_keys = {k: v for k, v in item_keys.items() if k in _MESSAGE_KEYS}
    first = min((i for i, part_numbers in record.parts.items() if part_numbers), default=None)
    for index, part in enumerate(parts):
        if type(part) is str:
            part = {"type": "output_text", "text": part}
        if type(part) is not dict:
            continue
        is_refusal = part.get("type") == "refusal"
        key = "refusal" if is_refusal else "text"
        text = part.get(key)
        if type(text) is not str:
            if index not in record.parts:  # unknown type: stored as received, as a message of its own
                record.parts[index] = []
                output_records(sink).current_part = None
                out += sink.add_opaque({**item, "content": [part]})
            continue
        sink.refused = sink.refused or is_refusal
        if index not in record.parts and text:
            out += write_text(record, index, text, sink)
        if index not in record.logprobs and type(tokens := part.get("logprobs")) is list and tokens:
            record.logprobs.add(index)
            out += sink.add_extra("logprobs", tokens)
        annotations = part.get("annotations")
        for annotation in annotations if type(annotations) is list else ():
            out += add_annotation(record, index, annotation, sink)
        if len(part_numbers := record.parts.get(index, [])) == 1:
            part_keys = {k: v for k, v in part.items() if k != key and (k != "type" or v != "output_text")}
            first = index if first is None else min(first, index)
            if first < index:  # the item's own keys go back with its first part
                sink.add_seal({"item": later_keys, "part": part_keys, "at": index}, part_numbers[0])
            else:
                sink.add_seal({"item": item_keys, "part": part_keys}, part_numbers[0])
    return out


def add_annotation(record: ItemRecord, index: int, annotation: Any, sink: EventSink) -> list[Event]:
    """Add a source of a part of a message."""
    if type(annotation) is not dict:
        return []
    title = annotation.get("title") or annotation.get("filename") or annotation.get("file_id")
    numbers = record.parts.get(index)
    start, end = annotation.get("start_index"), annotation.get("end_index")
    part = numbers[0] if numbers and len(numbers) == 1 and type(start) is int else None
    return sink.add_citation(annotation, annotation.get("url"), title, start, end, part=part)


def _reasoning_item(item: dict[str, Any], record: ItemRecord, flags: Flags, sink: EventSink) -> list[Event]:
    """Add the missing reasoning of an item, and its seal."""
    out: list[Event] = []
    if 0 not in record.parts:
        text, reasoning_field = _reasoning_text(item, flags)
        out += begin_part(record, 0, "thought", sink)
        if text:
            out += write_reasoning(text, reasoning_field, sink)
    elif len(record.parts[0]) > 1:  # its pieces were interrupted by other parts: now it is in one part
        out += begin_part(record, 0, "thought", sink, always=True)
        record.parts[0] = record.parts[0][-1:]
    sink.add_seal(item, record.parts[0][0])
    return out


def _reasoning_text(item: dict[str, Any], flags: Flags) -> tuple[str, str]:
    """Return the text of a reasoning item and its field. Only one field counts: the other repeats the text."""
    fields = (flags.reasoning.fields if flags.reasoning else None) or ()
    for reasoning_field in fields:
        parts = get(item, reasoning_field)
        parts = parts if type(parts) is list else [parts]
        texts = [part.get("text") if type(part) is dict else part for part in parts]
        if text := "".join(t for t in texts if type(t) is str):
            return text, reasoning_field
    return "", "" if not fields else fields[0]


def add_call(item: dict[str, Any], record: ItemRecord, sink: EventSink, arguments: Any) -> list[Event]:
    """Add a call that begins, continues, or is whole; `arguments` are all arguments known so far."""
    if type(arguments) is str:  # pieces are joined only if the arguments are at least as long
        continues = len(arguments) > record.size and arguments.startswith("".join(record.raw))
        piece: Any = arguments[record.size :] if continues else ""
        if continues:
            record.raw, record.size = [arguments], len(arguments)
    else:
        piece = None if record.size else arguments
    out = add_call_piece(
        record, piece, sink, None if record.has_name else item.get("name"), item.get("call_id") or item.get("id")
    )
    other_keys = {k: v for k, v in item.items() if k not in ("type", "call_id", "name", "arguments") and v is not None}
    if other_keys and 0 in record.parts:
        sink.add_seal(other_keys, record.parts[0][0])
    return out


def add_call_piece(record: ItemRecord, piece: Any, sink: EventSink, name: Any = None, id: Any = None) -> list[Event]:
    """Add a piece of a call."""
    part_count = sink.part_count
    function = {"name": name, "arguments": piece}
    out = sink.add_call_pieces([{"index": record.number, "id": id, "function": function}], False)
    record.has_name = record.has_name or (type(name) is str and bool(name))
    if sink.part_count > part_count:
        record.parts.setdefault(0, [part_count])
        output_records(sink).current_part = None
    return out


def begin_part(
    record: ItemRecord, index: int, kind: Literal["text", "thought"], sink: EventSink, *, always: bool = False
) -> list[Event]:
    """Begin a part of the reply for this part of this item, unless it is being written."""
    state = output_records(sink)
    if (
        not always
        and state.current_part is not None
        and state.current_part[0] is record
        and state.current_part[1] == index
    ):
        return []
    out = sink.begin_block(kind)
    record.parts.setdefault(index, []).append(sink.part_count - 1)
    state.current_part = (record, index)
    return out


def write_text(record: ItemRecord, index: int, text: str, sink: EventSink) -> list[Event]:
    """Add text to a part of a message."""
    return [*begin_part(record, index, "text", sink), *sink.add_text(text)]


def write_reasoning(text: str, reasoning_field: str, sink: EventSink) -> list[Event]:
    """Add reasoning of an item from the one field that counts. For another item that may be another field."""
    sink.source = reasoning_field
    return sink.add_reasoning(text, reasoning_field)
