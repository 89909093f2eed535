"""What the simulator says: made from the request alone, so that the same request is always answered alike."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

import msgspec
from msgspec import Struct

from cnllm.registry.flags import Flags
from cnllm.simulator.effort import reasoning_text
from cnllm.simulator.jsonpath import at
from cnllm.simulator.prompted_tools import described_results, described_tools, write_calls, writes_calls_as_text
from cnllm.simulator.regex_sample import sample_match
from cnllm.simulator.request import (
    ParsedCall,
    ParsedMessage,
    ParsedRequest,
    ParsedTool,
    param_path,
    tool_tokens,
    turn_tokens,
)
from cnllm.simulator.schema_sample import sample_value
from cnllm.simulator.tokenize import is_cjk, shorten, split_pieces
from cnllm.types import Usage

__all__ = ["SimulatedReply", "make_reply"]

_PARALLEL = ("parallel", "并行")
_TEXTS = {
    "zh": {
        "think": "用户说的是“{echo}”。我是模拟器，没有真正的模型参与。先复述要点，再说明这是模拟的回答。",
        "think-call": "用户说的是“{echo}”。手边有工具 {tool}，先调用它，再根据结果回答。",
        "think-result": "工具 {tool} 已经返回结果。把结果转述给用户，并说明这是模拟的回答。",
        "say": "（模拟回答）这段文字由内置模拟器生成，没有调用真正的 {model}。您说的是：“{echo}”。",
        "result": "（模拟回答）工具 {tool} 返回：“{quote}”。这段文字由内置模拟器生成，没有调用真正的 {model}。",
        "step": "第 {n} 步：再核对一遍，没有发现矛盾。",
        "nothing": "（没有文字）",
    },
    "en": {
        "think": 'The user says "{echo}". I am a simulator and no real model is involved. '
        "I repeat the point first, then say that the answer is simulated.",
        "think-call": 'The user says "{echo}". The tool {tool} is at hand. I call it first and answer from its result.',
        "think-result": "The tool {tool} has returned. I pass its result on and say that the answer is simulated.",
        "say": "(Simulated answer) This text comes from the built-in simulator; "
        "the real {model} was not called. "
        'You said: "{echo}".',
        "result": '(Simulated answer) The tool {tool} returned: "{quote}". '
        "This text comes from the built-in simulator; the real {model} was not called.",
        "step": " Step {n}: I check it once more and find no contradiction.",
        "nothing": "(no text)",
    },
}


class SimulatedReply(Struct, frozen=True):
    """An answer before it is written in any dialect, by the model of that name.

    `whole` is False where a limit cut the reasoning.
    """

    id: str
    model: str
    reasoning: str
    text: str
    calls: tuple[ParsedCall, ...]
    finish: Literal["stop", "length", "tool_calls"]
    usage: Usage
    whole: bool = True


def make_reply(model: str, flags: Flags, asked: ParsedRequest, thinks: bool | None) -> SimulatedReply:
    """Reasoning where the model thinks, then calls, JSON, or a sentence that says it is simulated.

    `model` is the name under which it answers.
    """
    seed = hashlib.sha256(
        msgspec.json.encode([[t.wire for t in asked.turns], [t.name for t in asked.tools or ()]], order="sorted")
    ).hexdigest()
    texts = _TEXTS["zh" if is_cjk(asked.prompt) else "en"]
    in_words = writes_calls_as_text(flags)
    asked = described_tools(asked) if in_words else asked
    results = described_results(asked) if in_words else _results(asked)
    tools = [] if results or asked.choice == "none" else _wanted(asked)
    schema = _schema(asked)
    fill = {
        "echo": shorten(asked.prompt, 60) or texts["nothing"],
        "tool": ", ".join(n for n, _ in results) or (tools[0].name if tools else ""),
        "quote": shorten(" ".join(t for _, t in results), 200),
        "model": model,
    }
    kind = "-result" if results else "-call" if tools else ""
    reasoning = ""
    if thinks:
        reasoning = reasoning_text(flags.reasoning, asked.body, texts["think" + kind].format(**fill), texts["step"])
    text = texts["result" if results else "say"].format(**fill)
    if tools:
        text = ""
    elif schema is not None:
        text = json.dumps(sample_value(schema, fill["echo"]), ensure_ascii=False)
    elif asked.answer is not None:
        text = json.dumps({"simulated": True, "answer": text}, ensure_ascii=False)
    text = _rest(flags, asked, text)
    calls = tuple(_call(flags, tool, seed, n, fill["echo"]) for n, tool in enumerate(tools))
    if in_words and calls:
        text, calls = write_calls(calls), ()
    return _limited(model, flags, asked, seed, reasoning, _stopped(flags, asked, text), calls)


def _rest(flags: Flags, asked: ParsedRequest, text: str) -> str:
    """What follows the beginning of the reply, where the request ends with one."""
    how = flags.messages.prefill if flags.messages is not None else None
    last = asked.last
    if how is None or last is None or last.role != "assistant":
        return text
    marked = all(last.wire.get(key) == value for key, value in (how.set or {}).items())
    return text.removeprefix(last.text) if marked else text


# ── what it is about ─────────────────────────────────────────────────────────
def _results(asked: ParsedRequest) -> list[tuple[str, str]]:
    """(tool, text) of the results that end the history."""
    out: list[tuple[str, str]] = []
    names = {c.id: str(c.name) for t in asked.turns for c in t.calls or () if isinstance(c.id, str)}
    for turn in reversed(asked.turns):
        if turn.role != "tool":
            break
        out.append((names.get(str(turn.result_of), str(turn.result_of)), turn.text))
    return out[::-1]


def _wanted(asked: ParsedRequest) -> list[ParsedTool]:
    """The tools to call: the named one or the first, and a second where the user asks for parallel calls."""
    last: ParsedMessage | None = asked.last
    offered = asked.functions
    if not offered or last is None or last.role == "assistant":
        return []
    chosen = next((t for t in offered if t.name == asked.named), offered[0])
    twice = asked.parallel and any(w in asked.prompt.casefold() for w in _PARALLEL)
    others = [t for t in offered if t is not chosen] if asked.choice != "named" else []
    return [chosen, (others or [chosen])[0]] if twice else [chosen]


def _call(flags: Flags, tool: ParsedTool, seed: str, nth: int, words: str) -> ParsedCall:
    arguments = sample_value(tool.parameters, words, nth) if tool.parameters else {}
    return ParsedCall(
        id=_call_id(flags, seed, nth),
        name=tool.name,
        arguments=json.dumps(arguments if isinstance(arguments, dict) else {}, ensure_ascii=False),
    )


def _call_id(flags: Flags, seed: str, nth: int) -> str:
    plain = f"call_{nth}_{hashlib.sha256(f'{seed}{nth}'.encode()).hexdigest()[:20]}"
    rule = flags.tools.call_id_pattern if flags.tools is not None else None
    return plain if rule is None else sample_match(rule, f"{seed}{nth}") or plain


def _schema(asked: ParsedRequest) -> Any:
    """The schema of the answer: the one sent, or where JSON is asked for in words, the one in the prompt."""
    if asked.schema is not None:
        return asked.schema
    texts = [t.text for t in asked.turns if t.role != "assistant" and "{" in t.text]
    if asked.answer is None and not any("json" in t.casefold() for t in texts):
        return None
    return next((found for t in reversed(texts) if (found := _embedded(t)) is not None), None)


def _embedded(text: str) -> dict[str, Any] | None:
    """The first JSON Schema of an object that stands in a text."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    for _ in range(20):  # a text full of braces is not worth more looks than this
        if start < 0:
            return None
        try:
            found, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            if found.get("type") == "object" and isinstance(found.get("properties"), dict):
                schema: dict[str, Any] = found
                return schema
        start = text.find("{", end)
    return None


# ── what cuts it ─────────────────────────────────────────────────────────────
def _stopped(flags: Flags, asked: ParsedRequest, text: str) -> str:
    path = param_path(flags, "stop")
    stops = at(asked.body, path) if path else None
    for stop in [stops] if isinstance(stops, str) else stops if isinstance(stops, list) else []:
        if isinstance(stop, str) and stop:
            text = text.partition(stop)[0]
    return text


def _limited(
    model: str, flags: Flags, asked: ParsedRequest, seed: str, reasoning: str, text: str, calls: tuple[ParsedCall, ...]
) -> SimulatedReply:
    """Cut to the tokens the request allows; reasoning spends them first, then text, then calls."""
    path = param_path(flags, "max_tokens")
    room = at(asked.body, path) if path else None
    left = room if type(room) is int and room > 0 else 1 << 30
    thought, left, whole = _spent(reasoning, left)
    said, left, complete = _spent(text, left)
    complete = complete and whole
    made: list[ParsedCall] = []
    for call in calls:
        if left < 1:  # not even the name fits
            complete = False
            break
        arguments, left, fits = _spent(call.arguments, left - 1)
        complete = complete and fits
        made.append(ParsedCall(id=call.id, name=call.name, arguments=arguments))
    return SimulatedReply(
        id=seed[:24],
        model=model,
        reasoning=thought,
        text=said,
        calls=tuple(made),
        finish="length" if not complete else "tool_calls" if made else "stop",
        usage=_usage(asked, thought, said, made),
        whole=whole,
    )


def _spent(text: str, left: int) -> tuple[str, int, bool]:
    """As much of a text as fits, the tokens left after it, and whether all of it fitted."""
    parts = split_pieces(text)
    return "".join(parts[:left]), max(0, left - len(parts)), len(parts) <= left


def _usage(asked: ParsedRequest, thought: str, said: str, calls: list[ParsedCall]) -> Usage:
    """A token is a piece. What was said before the last assistant turn counts as read from the cache."""
    costs = turn_tokens(asked)
    answered = max((i for i, t in enumerate(asked.turns) if t.role == "assistant"), default=0)
    reasoning = len(split_pieces(thought))
    output = reasoning + len(split_pieces(said)) + sum(1 + len(split_pieces(c.arguments)) for c in calls)
    given = sum(costs) + tool_tokens(asked)
    return Usage(input=given, output=output, total=given + output, reasoning=reasoning, cached=sum(costs[:answered]))
