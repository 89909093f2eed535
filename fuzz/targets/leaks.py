"""Text that a model wrote, with calls and thinking in it: told apart the same in any pieces."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

import cnllm
from cnllm.engine.decode.reply_builder import ReplyBuilder
from cnllm.engine.encode.plan import unknown_plan
from cnllm.engine.options import read_options
from cnllm.protocols.pieces import ReasoningPiece, TextPiece
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model

from ..given import given, pack
from ..models import TOOLS, covering
from ..spent import bounded
from ..words import marks

Told = tuple[str, str, list[Any], set[Any]]


@cache
def _models() -> tuple[tuple[Model, Flags], ...]:
    """Return models with something to look for; their deltas are what is new, so that pieces mean nothing else."""
    chosen = [m for m in covering() if m.flags.leaks or m.flags.reasoning.tags]
    return tuple((m, _incremental(m.flags)) for m in chosen)


def _incremental(flags: Flags) -> Flags:
    return msgspec.structs.replace(flags, stream=msgspec.structs.replace(flags.stream, deltas="incremental"))


def told(model: Model, flags: Flags, pieces: Iterable[str], tools: Any, *, thinking: bool) -> Told:
    """Return the outcome of these pieces."""
    plan = replace(unknown_plan(model), flags=flags, callable=read_options({"tools": tools}).tools)
    fold = ReplyBuilder(plan)
    fold.collected.whole = True
    events: list[Any] = []
    for piece in pieces:
        events += fold.add([ReasoningPiece(piece, "reasoning_content") if thinking else TextPiece(piece)])
    events += fold.end(proven=True)
    reply = fold.reply([])
    assert "".join(e.text for e in events if isinstance(e, cnllm.TextDelta)) == reply.text
    assert "".join(e.text for e in events if isinstance(e, cnllm.ReasoningDelta)) == reply.reasoning
    assert all(e.name for e in events if isinstance(e, cnllm.ToolCallStart))
    assert all((call.arguments is None) == (call.problem is not None) for call in reply.tool_calls)
    offered = {tool["function"]["name"] for tool in tools or ()}
    assert {call.name for call in reply.tool_calls} <= offered, "a call of what was not offered"
    return reply.text, reply.reasoning, [*reply.tool_calls, *reply.incomplete], set(reply.notes)


def check(data: bytes) -> None:
    """Check that whole, in pieces and by `sanitize` give the same; nothing is lost unless a note says what."""
    case = given(data)
    model, flags = _models()[case.which % len(_models())]
    tools = TOOLS if case.mode % 2 else None
    thinking = case.mode % 8 >= 6
    text = case.payload.decode("utf-8", "replace")
    with bounded(len(text) * 4):
        whole = told(model, flags, [text], tools, thinking=thinking)
    assert told(model, flags, _pieces(text, case.seed, case.most), tools, thinking=thinking) == whole
    assert told(model, flags, text, tools, thinking=thinking) == whole, "character by character"
    found = cnllm.sanitize(model, text, tools)
    if not thinking:
        assert (found.text, found.reasoning) == whole[:2]
    if not any(mark in text for mark in _watched(model)):
        assert (whole[0] or whole[1]) == text, "plain text was changed"
    if case.how >= 248 and text:
        many = text * max(1, 100_000 // len(text))
        with bounded(len(many) * 10):
            told(model, flags, [many], tools, thinking=thinking)


def _pieces(text: str, seed: int, most: int) -> list[str]:
    import random

    dice, out, at = random.Random(seed), [], 0
    longest = (1, 2, 5, 17, 80, 1000)[most % 6]
    while at < len(text):
        size = dice.randint(1, longest)
        out.append(text[at : at + size])
        at += size
    return out


def _watched(model: Model) -> list[str]:
    """Return the beginnings of all that this model's filters look for: two characters, of any spelling of a bar."""
    tags = model.flags.reasoning.tags or ()
    openers = [mark for rule in model.flags.leaks or () for mark in rule.open]
    return [mark[:1] for mark in (*tags, *openers)]


def seeds() -> list[bytes]:
    """Return a block of each grammar, and pairs of marks."""
    blocks = (
        'Hm. <tool_call>\n{"name": "search", "arguments": {"q": "a < b"}}\n</tool_call> and on',
        "<tool_call>get_weather\n<arg_key>q</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>",
        "<function=search>\n<parameter=q>\n1\n</parameter>\n<parameter=n>\n2\n</parameter>\n</function>",
        '<minimax:tool_call><invoke name="search"><parameter name="q">x</parameter></invoke></minimax:tool_call>',
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>"
        '{"q":"a"}<|tool_call_end|><|tool_calls_section_end|>',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n"
        '{"q":"a"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="search">\n<｜DSML｜parameter name="q" string="true">a'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        "<think>Well, <tool_call> is a tag.</think>Use `<tool_call>` so:\n```xml\n<tool_call>{}</tool_call>\n```",
        '```tool_call\n{"name":"search","arguments":{"q":1}}\n```',
        "a < b and | c ｜ d <",
    )
    out = [
        pack(b.encode(), which=w, mode=m, how=w, most=w, seed=w) for b in blocks for w, m in ((0, 1), (5, 0), (9, 7))
    ]
    for n, (model, _) in enumerate(_models()):
        openers = [o for rule in model.flags.leaks or () for o in (rule.open[0], rule.close[0])]
        out.append(pack(" search ".join(openers).encode(), which=n, mode=1))
    return [*out, pack("".join(marks()).encode(), mode=1)]
