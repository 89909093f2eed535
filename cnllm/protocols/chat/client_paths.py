"""Translate between the usual places of a chat completion and those that an endpoint's flags declare.

A chunk becomes one with the usual keys before it is decoded, and a message gets the endpoint's paths after it is
encoded. Where an endpoint has no paths of its own, there is nothing to translate, and no function for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.json import encode as encode_json

from cnllm.jsonpath import get, merge_patch, nest, remove
from cnllm.registry.flags import CallPaths, Flags, ReasoningFlags
from cnllm.types.lenient_json import decode_arguments

__all__ = ["chunk_reader", "turn_writer"]

_SAID = ("content", "tool_calls", "refusal", "function_call", "annotations", "images", "audio")
_NO_CALL = CallPaths()


class _Paths(Struct, frozen=True):
    """The endpoint's paths; the usual ones by default.

    `thoughts` are the dotted ones of reasoning, under which a message has it as a key, too.
    """

    choices: str = "choices"
    message: str = "message"
    delta: str = "delta"
    finish: str = "finish_reason"
    answer: str = "content"
    thoughts: tuple[str, ...] = ()
    calls: str = "tool_calls"
    id: str = "id"
    name: str = "function.name"
    arguments: str = "function.arguments"
    as_object: bool = False
    result_role: str = "tool"
    result_id: str = "tool_call_id"
    result_text: str = "content"


_USUAL = _Paths()


def _paths(flags: Flags) -> _Paths | None:
    """Return the endpoint's paths; None where all are the usual ones."""
    reply, messages, tools = flags.reply, flags.messages, flags.tools
    call = tools.call_paths or _NO_CALL
    declared: dict[str, Any] = {
        "choices": reply.choices,
        "message": reply.message,
        "delta": reply.delta,
        "finish": reply.finish,
        "answer": messages.answer_field,
        "thoughts": _dotted_fields(flags.reasoning),
        "calls": tools.calls_field,
        "id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "as_object": tools.arguments == "object",
        "result_role": tools.result_role,
        "result_id": tools.result_id,
        "result_text": tools.result_field,
    }
    paths = _Paths(**{name: path for name, path in declared.items() if path})
    return None if paths == _USUAL else paths


def _dotted_fields(reasoning: ReasoningFlags) -> tuple[str, ...]:
    """Return the fields of reasoning that are paths of several keys."""
    return tuple([field for field in (*(reasoning.fields or ()), reasoning.replay_field or "") if "." in field])


# ── replies ──────────────────────────────────────────────────────────────────


@lru_cache(maxsize=256)
def chunk_reader(flags: Flags) -> Callable[[dict[str, Any], bool], dict[str, Any]] | None:
    """Return the translation of a chunk, or of a whole body, into the usual keys; None where it has them already."""
    paths = _paths(flags)
    if paths is None:
        return None
    fields = flags.reasoning.fields or ()
    keys = (*_SAID, *fields, *paths.thoughts)

    def read(data: dict[str, Any], whole: bool) -> dict[str, Any]:
        """Translate a chunk, or with `whole` a body. Nothing in it is changed."""
        found = get(data, paths.choices)
        if type(found) is list:
            return {**data, "choices": [_choice(choice, data, paths, whole=whole) for choice in found]}
        choice = _choice(found, data, paths, whole=whole)
        body = {key: value for key, value in data.items() if key != "choices"}
        return {**body, "choices": [choice]} if type(choice) is dict and _is_answer(choice, keys) else body

    return read


def _is_answer(choice: dict[str, Any], keys: tuple[str, ...]) -> bool:
    """Whether an object that may be the only choice says anything: a chunk of usage or an error is an object, too.

    `keys` are the keys of messages that hold something of an answer.
    """
    if choice.get("finish_reason") is not None:
        return True
    messages = [choice[key] for key in ("delta", "message") if key in choice]
    return any(message.get(key) is not None for message in messages for key in keys)


def _choice(choice: Any, body: dict[str, Any], paths: _Paths, *, whole: bool) -> Any:
    """Translate a choice."""
    if type(choice) is not dict:
        return choice
    usual = (paths.delta, "delta"), (paths.message, "message")
    out = {key: value for key, value in choice.items() if key not in ("delta", "message", "finish_reason")}
    if paths.answer != _USUAL.answer:
        out.pop("text", None)  # the older API's answer: this endpoint has its own
    for path, key in reversed(usual) if whole else usual:
        message = get(choice, path)
        if type(message) is str:
            message = {"content": message}
        elif type(message) is dict:
            message = _message(message, paths)
        else:
            continue
        out[key] = message
        if whole or paths.message == paths.delta:
            break
    finish = get(choice, paths.finish)
    finish = get(body, paths.finish) if finish is None else finish
    if finish is not None and finish is not False:
        out["finish_reason"] = finish if type(finish) is str else encode_json(finish).decode()
    return out


def _message(message: dict[str, Any], paths: _Paths) -> dict[str, Any]:
    """Translate a message or a delta."""
    out = dict(message)
    for path, key in ((paths.answer, "content"), (paths.calls, "tool_calls")):
        if path != key:
            out.pop(key, None)
            if (value := get(message, path)) is not None:
                out[key] = value
    for path in paths.thoughts:
        if (value := get(message, path)) is not None:
            out[path] = value
    if (paths.id, paths.name, paths.arguments) != (_USUAL.id, _USUAL.name, _USUAL.arguments):
        calls = out.get("tool_calls")
        items = calls if type(calls) is list else [] if calls is None else [calls]
        out["tool_calls"] = [_call(item, paths) if type(item) is dict else item for item in items]
    return out


def _call(call: dict[str, Any], paths: _Paths) -> dict[str, Any]:
    """Translate a call, or a piece of one. What is not named by a path stays beside it."""
    out: dict[str, Any] = {}
    merge_patch(out, call)  # a copy, from which the endpoint's own places are taken
    values = [get(call, path) for path in (paths.id, paths.name, paths.arguments)]
    for path in (paths.id, paths.name, paths.arguments):
        remove(out, path)
    function = {key: value for key, value in (("name", values[1]), ("arguments", values[2])) if value is not None}
    return {**out, **({} if values[0] is None else {"id": values[0]}), "function": function}


# ── messages ─────────────────────────────────────────────────────────────────


@lru_cache(maxsize=256)
def turn_writer(flags: Flags) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    """Return the translation of an encoded message to the endpoint's paths; None where it has the usual ones."""
    paths = _paths(flags)
    if paths is None:
        return None
    moved = {"content": paths.answer, "tool_calls": paths.calls, **{path: path for path in paths.thoughts}}

    def write(turn: dict[str, Any]) -> dict[str, Any]:
        """Translate a message."""
        if turn["role"] == "tool":
            places = {"tool_call_id": paths.result_id, "content": paths.result_text}
            return _move_keys({**turn, "role": paths.result_role}, places)
        if turn["role"] != "assistant":
            return turn
        if "tool_calls" in turn:
            turn = {**turn, "tool_calls": [_wire_call(call, paths) for call in turn["tool_calls"]]}
        return _move_keys(turn, moved)

    return write


def _move_keys(turn: dict[str, Any], places: dict[str, str]) -> dict[str, Any]:
    """Return a message with some keys at other paths, in the same order."""
    out: dict[str, Any] = {}
    for key, value in turn.items():
        merge_patch(out, nest(places.get(key, key), value) if key in places else {key: value})
    return out


def _wire_call(call: dict[str, Any], paths: _Paths) -> dict[str, Any]:
    """Translate an encoded call."""
    function = call["function"]
    arguments = function["arguments"]
    if paths.as_object and type(arguments) is str:
        arguments = decode_arguments(arguments)[0] or {}
    out: dict[str, Any] = {}
    for path, value in ((paths.id, call["id"]), (paths.name, function["name"]), (paths.arguments, arguments)):
        merge_patch(out, nest(path, value))
    rest = {key: value for key, value in call.items() if key not in ("id", "function")}
    if paths.name.partition(".")[0] != "function":
        rest.pop("type", None)  # it is the name of the usual wrapper
    merge_patch(out, rest)
    return out
