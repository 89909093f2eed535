"""A conversation of anybody's: fitted to any model and sent, or refused in words; the caller's objects as they were."""

from __future__ import annotations

import copy
import json
import re
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import msgspec

import cnllm
from cnllm import CannotSend, engine
from cnllm.simulator.respond import Endpoints
from cnllm.types.messages import as_messages

from ..given import given, pack
from ..models import TOOLS
from ..spent import bounded
from .stream import chosen

_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"tools": TOOLS},
    {"reasoning": "high"},
    {"tools": TOOLS, "reasoning": "off", "tool_choice": "required"},
    {"max_tokens": 100, "temperature": 1.5, "stop": ["x"]},
    {"tools": TOOLS, "tool_choice": "search", "parallel_tool_calls": False},
)


def check(data: bytes) -> None:
    """Check that readable messages can be sent to any model, are taken by it, and do not change for the caller.

    A content part that nobody here knows is the caller's own, and goes as it is, as does a picture that is nowhere:
    whether that is taken is not tried.
    """
    case = given(data)
    try:
        value = json.loads(case.payload)
    except (ValueError, RecursionError):
        return
    messages = value if isinstance(value, list) else [value]
    try:
        before = copy.deepcopy(messages)
    except RecursionError:
        return
    try:
        read = as_messages(messages)
    except (TypeError, ValueError):
        assert _same(messages, before)
        return  # the caller learns what is no message
    model, options = chosen(case.which), _OPTIONS[case.mode % len(_OPTIONS)]
    stream = bool(case.how % 2)
    policies: tuple[Literal["adjust", "error", "send"], ...] = ("adjust", "adjust", "adjust", "error", "send")
    policy = policies[case.how // 2 % 5]
    with bounded(len(case.payload) * 5):
        try:
            plan = engine.build_request(model, messages, stream=stream, on_unsupported=policy, **options)
        except CannotSend as error:
            assert error.note.code, error
            return
        except (TypeError, ValueError) as error:
            assert not messages or _named(error), error
            return
    assert _same(messages, before), "the caller's objects were changed"
    msgspec.json.decode(plan.content)
    assert engine.build_request(model, messages, stream=stream, on_unsupported=policy, **options).content == (
        plan.content
    ), "the same messages give another request"
    typed = engine.build_request(model, read, stream=stream, on_unsupported=policy, **options)
    assert typed.content == plan.content, "as dicts and as messages they differ"
    for message in read:
        again = cnllm.Message.from_dict(json.loads(json.dumps(message.to_dict())))
        assert _same(again, message), "a message does not survive being written down"
    if policy == "adjust" and not any(_callers_own(part) for message in read for part in message.parts):
        answered = Endpoints().respond(plan.model, plan.headers, plan.content, unquote(urlsplit(plan.url).path))
        assert answered.status == 200, b"".join(answered.pieces).decode()


def _callers_own(part: Any) -> bool:
    nowhere = isinstance(part, cnllm.Media) and not _somewhere(part)
    inside = isinstance(part, cnllm.ToolResult) and any(map(_callers_own, part.media))
    return isinstance(part, cnllm.Opaque) or nowhere or inside


def _somewhere(media: cnllm.Media) -> bool:
    if media.data is None:
        return re.match(r"https?://[a-z]", media.url or "") is not None
    return re.fullmatch(r"(image|audio|video|application)/[\w.+-]+", media.type) is not None


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal, where NaN is NaN."""
    return bool(one == other) or repr(one) == repr(other)


def _named(error: Exception) -> bool:
    """Whether the words say which message or option is meant."""
    return "messages" in str(error) or "=" in str(error)


def seeds() -> list[bytes]:
    """Return turns of every shape that the contract knows."""
    call = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"q": "a"}'}}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    turns: list[list[Any]] = [
        [{"role": "user", "content": "hi"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "hm", "by": "zai/glm-4.7"},
            {"role": "tool", "tool_call_id": "call_1", "name": "search", "content": "20 °C"},
            {"role": "assistant", "content": "It is 20 °C.", "reasoning_content": "well"},
            {"role": "user", "content": [picture, {"type": "text", "text": "and here?"}]},
        ],
        [{"role": "tool", "tool_call_id": "gone", "content": "x"}, {"role": "developer", "content": "d"}, "and a text"],
        [{"role": "assistant", "content": "a", "refusal": "no"}, {"role": "assistant", "tool_calls": [call, call]}],
        [
            {
                "role": "assistant",
                "content": "a",
                "parts": [
                    {"kind": "reasoning", "text": "r", "seal": {"protocol": "p", "provider": "q", "model": "m"}},
                    {"kind": "text", "text": "a", "extra": {"cache_control": {"type": "ephemeral"}}},
                    {"kind": "opaque", "data": {"type": "x"}},
                    {"kind": "tool_call", "id": "i", "name": "search", "arguments": {"q": "a"}, "raw": '{"q":"a"}'},
                ],
            },
            {"role": "tool", "content": [picture], "parts": [{"kind": "tool_result", "id": "i", "text": "t"}]},
            {"role": "user", "content": "go on", "name": "bob", "cache_control": {"type": "ephemeral"}},
        ],
        [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}]}],
        [{"role": "user", "content": [{"type": "file", "file": {"file_data": "data:application/pdf;base64,AA=="}}]}],
    ]
    packed = [json.dumps(turn, ensure_ascii=False).encode() for turn in turns]
    packed.append(json.dumps([m for turn in turns for m in turn]).encode())
    return [pack(body, which=n * 11 + k, mode=k, how=k) for n, body in enumerate(packed) for k in range(6)]
