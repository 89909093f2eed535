"""What the tests of the wires share: a bare endpoint over each of them, and conversations made up at random."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from builtin import BUILTIN
from hypothesis import strategies as st

from cnllm import Message, Model, Reasoning, Reply, Seal, Text, ToolCall, ToolResult, Usage, engine
from cnllm.errors import EndpointError, StreamCut
from cnllm.protocols import PROTOCOLS
from cnllm.types import Finish

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Looks it up.",
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
        },
    }
    for name in ("search", "weather")
]
SPOKEN = [p for p in PROTOCOLS if p in BUILTIN._layers.names("protocols")]


def read_anything(model: Model, chunks: list[Any], *, whole: bool) -> list[Reply]:
    """What a parser makes of chunks, as one stream or each as a whole body: replies, also those of its errors."""
    bodies = [json.dumps(chunk).encode() for chunk in chunks]
    inputs = bodies if whole else [b"".join(b"data: %b\n\n" % body for body in bodies)]
    out: list[Reply] = []
    for data in inputs:
        parser = engine.StreamParser(model)
        parser.feed(data)
        try:
            out.append(parser.close())
        except (StreamCut, EndpointError) as error:
            out += [error.reply] if isinstance(error, StreamCut) and error.reply is not None else []
    return out


@cache
def bare(protocol: str) -> Model:
    """An endpoint that nobody described, over one wire."""
    return BUILTIN.resolve("openai-compatible/m", protocol=protocol, base_url="http://127.0.0.1:9/v1")


def thought(model: Model, text: str) -> Reasoning:
    """A thought as each wire wants it back."""
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": text}]}
    data = {
        "openai-chat": None,
        "anthropic-messages": {"signature": "c2ln"},
        "gemini": {"thoughtSignature": "c2ln"},
        "openai-responses": {**item, "encrypted_content": "c2ln"},
    }[model.protocol]
    return Reasoning(text, None if data is None else Seal(model.protocol, model.provider, model.id, data))


words = st.sampled_from(["hi", "为什么？", "It is 20 °C.", 'say "yes"', "a\nb", "😀"])


@st.composite
def conversations(draw: Any, model: Model) -> list[Message]:
    """A legal history: each call answered, the user first and last."""
    out = [Message("system", [Text("Be brief.")])] if draw(st.booleans()) else []
    out.append(Message("user", [Text(draw(words))]))
    called = 0
    for _ in range(draw(st.integers(0, 3))):
        parts: list[Any] = []
        if draw(st.booleans()) and model.protocol != "openai-chat":
            parts.append(thought(model, draw(words)))
        count = draw(st.integers(0, 2))
        if not count or draw(st.booleans()):
            parts.append(Text(draw(words)))
        calls = []
        for _ in range(count):
            arguments = draw(st.sampled_from([{}, {"q": "雨"}, {"q": 'a"b', "n": [1, None, 1.5]}]))
            calls.append(
                ToolCall(
                    f"call_{called}", draw(st.sampled_from(["search", "weather"])), arguments, json.dumps(arguments)
                )
            )
            called += 1
        out.append(Message("assistant", [*parts, *calls], model.name))
        if calls:
            out += [Message("tool", [ToolResult(c.id, draw(words), c.name)]) for c in calls]
            continue
        out.append(Message("user", [Text(draw(words))]))
    return out


def signed(seal: Seal | None) -> str | None:
    """What an endpoint looks at in what it gets back: ids are given anew by every server."""
    for key in ("signature", "thoughtSignature", "encrypted_content"):
        if seal is not None and key in seal.data:
            return str(seal.data[key])
    return None


def essence(messages: list[Message]) -> list[Any]:
    """What was said, whichever way it was cut into messages; a seal that came by itself is that of what came before."""
    out: list[Any] = []
    for message in messages:
        for part in message.parts:
            match part:
                case Text() if part.text:
                    said: Any = ("text", part.text)
                case Reasoning(text="") if out and out[-1][1] == "thought" and out[-1][3] is None and part.seal:
                    out[-1] = (*out[-1][:3], signed(part.seal))
                    continue
                case Reasoning():
                    said = ("thought", part.text, signed(part.seal))
                case ToolCall():
                    said = ("call", part.id, part.name, part.arguments)
                case ToolResult():
                    said = ("result", part.id, part.text)
                case _:
                    continue
            out.append((message.role, *said))
    return out


@st.composite
def replies(draw: Any, model: Model) -> Reply:
    """A whole reply with anything in it."""
    parts: list[Any] = []
    thoughts = draw(st.sampled_from(["", "Let me see.", "想一想"]))
    text = draw(st.sampled_from(["", "It rains.", "在下雨。"]))
    if thoughts:
        parts.append(thought(model, thoughts))
    if text:
        parts.append(Text(text))
    calls = [
        ToolCall(f"c{i}", name, {"q": "雨", "i": i}, json.dumps({"q": "雨", "i": i}))
        for i, name in enumerate(draw(st.lists(st.sampled_from(["search", "weather"]), max_size=2)))
    ]
    if not (text or calls):
        parts.append(Text("Yes."))
        text = "Yes."
    ends: list[Finish] = ["tool_calls"] if calls else ["stop", "length", "content_filter"]
    finish = draw(st.sampled_from(ends))
    usage = Usage(input=20, output=9, total=29, reasoning=4, cached=5)
    return Reply(
        text=text,
        reasoning=thoughts,
        tool_calls=calls,
        finish=finish,
        raw_finish=None,
        usage=usage,
        cost=None,
        model="m",
        id="id-1",
        notes=[],
        message=Message("assistant", [*parts, *calls], model.name),
        incomplete=[],
    )
