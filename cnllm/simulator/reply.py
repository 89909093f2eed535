"""Build the simulator's reply from the request alone, so that the same request always gets the same reply.

Calls change nothing, for clients whose tools act on the user's machine.

A coding agent offers a tool that runs commands, beside many others. A call of the first tool with made-up arguments
would start another agent, or run the user's words as a command.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.jsonpath import get
from cnllm.registry.flags import LEVELS, Effort, Flags, ReasoningFlags
from cnllm.simulator.request import (
    ParsedMessage,
    ParsedRequest,
    ParsedTool,
    RequestCall,
    is_cjk,
    param_path,
    shorten,
    split_pieces,
    tool_tokens,
    turn_tokens,
)
from cnllm.simulator.schema_sample import sample_match, sample_value
from cnllm.types import Usage

__all__ = [
    "SimulatedReply",
    "command_tool",
    "finish_word",
    "make_reply",
    "with_harmless_command",
    "write_calls",
]


_STEPS = {"minimal": 0, "low": 1, "medium": 2, "high": 4, "xhigh": 6, "max": 8}
"""Additional sentences for each level."""
_TOKENS_PER_STEP = 1024
"""Tokens of a budget for each additional sentence."""
_MAX_STEPS = 40
"""The most additional sentences for a budget."""
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

_NAMES = ("command", "cmd", "commands", "script")
"""The names of parameters that hold a command."""

_COMMANDS = ("ls", "pwd")
_CONTEXT = re.compile(r"\A(?:\s*<([A-Za-z][\w-]*)>.*?</\1>\s*)+", re.DOTALL)

_RESULT = re.compile(r'<tool_result(?: name="([^"]*)")?[^>]*>\n(.*?)\n</tool_result>', re.DOTALL)


class SimulatedReply(Struct, frozen=True):
    """A reply before it is encoded for a wire, under the name of its model.

    `reasoning_complete` is False if a limit cut the reasoning.
    """

    id: str
    model: str
    reasoning: str
    text: str
    calls: tuple[RequestCall, ...]
    finish: Literal["stop", "length", "tool_calls"]
    usage: Usage
    reasoning_complete: bool = True


def finish_word(flags: Flags, finish: str) -> str:
    """Return the endpoint's own word for a finish reason."""
    return next((word for word, reason in (flags.finish or {}).items() if reason == finish), finish)


def make_reply(model: str, flags: Flags, request: ParsedRequest, *, thinks: bool | None) -> SimulatedReply:
    """Build a reply: reasoning if the model thinks, then tool calls, JSON, or a sentence about the simulation.

    `model` is the model's name in the reply.
    """
    seed = hashlib.sha256(
        msgspec.json.encode([[t.wire for t in request.turns], [t.name for t in request.tools or ()]], order="sorted")
    ).hexdigest()
    texts = _TEXTS["zh" if is_cjk(request.prompt) else "en"]
    text_calls = flags.tools.supported is False and flags.tools.otherwise == "prompt"
    request = _described_tools(request) if text_calls else request
    results = _described_results(request) if text_calls else _results(request)
    tools = [] if results or request.choice == "none" else _tools_to_call(request)
    schema = _schema(request)
    values = {
        "echo": shorten(_own_words(request.prompt), 60) or texts["nothing"],
        "tool": ", ".join(n for n, _ in results) or (tools[0].name if tools else ""),
        "quote": shorten(" ".join(t for _, t in results), 200),
        "model": model,
    }
    kind = "-result" if results else "-call" if tools else ""
    reasoning = ""
    if thinks:
        start = texts["think" + kind].format(**values)
        reasoning = _reasoning_text(flags.reasoning, request.body, start, texts["step"])
    text = texts["result" if results else "say"].format(**values)
    if tools:
        text = ""
    elif schema is not None:
        text = json.dumps(sample_value(schema, values["echo"]), ensure_ascii=False)
    elif request.answer is not None:
        text = json.dumps({"simulated": True, "answer": text}, ensure_ascii=False)
    text = _after_prefill(flags, request, text)
    calls = tuple(_call(flags, tool, seed, n, values["echo"]) for n, tool in enumerate(tools))
    if text_calls and calls:
        text, calls = write_calls(calls), ()
    text = _cut_at_stop(flags, request, text)
    reply = SimulatedReply(seed[:24], model, reasoning, text, calls, finish="stop", usage=Usage())
    return _cut_to_limit(flags, request, reply)


def _after_prefill(flags: Flags, request: ParsedRequest, text: str) -> str:
    """Return the text after the beginning of the reply, if the request ends with that beginning."""
    prefill = flags.messages.prefill
    last = request.last
    if prefill is None or last is None or last.role != "assistant":
        return text
    is_prefill = all(last.wire.get(key) == value for key, value in (prefill.set or {}).items())
    return text.removeprefix(last.text) if is_prefill else text


# ── the content ──────────────────────────────────────────────────────────────
def _results(request: ParsedRequest) -> list[tuple[str, str]]:
    """Return (tool, text) for each result at the end of the history.

    Where a result takes no pictures, they follow the results in a message of the user.
    """
    out: list[tuple[str, str]] = []
    names = {c.id: str(c.name) for t in request.turns for c in t.calls or () if isinstance(c.id, str)}
    last = request.last
    has_pictures = last is not None and last.role == "user" and last.media
    for turn in reversed(request.turns[:-1] if has_pictures else request.turns):
        if turn.role != "tool":
            break
        out.append((names.get(str(turn.result_of), str(turn.result_of)), turn.text))
    return out[::-1]


def _tools_to_call(request: ParsedRequest) -> list[ParsedTool]:
    """Return the tools to call, and a second one if the user wants parallel calls.

    It is the named tool, or the one that runs commands, or the first.
    """
    last: ParsedMessage | None = request.last
    functions = request.functions
    if not functions or last is None or last.role == "assistant":
        return []
    target = next((t for t in functions if t.name == request.named), None)
    commands = command_tool(functions) if target is None else None
    tool = target or commands or functions[0]
    parallel_calls = request.parallel and any(w in request.prompt.casefold() for w in _PARALLEL)
    others = [t for t in functions if t is not tool] if request.choice != "named" and commands is None else []
    return [tool, (others or [tool])[0]] if parallel_calls else [tool]


def _call(flags: Flags, tool: ParsedTool, seed: str, number: int, text: str) -> RequestCall:
    arguments = sample_value(tool.parameters, text, number) if tool.parameters else {}
    arguments = with_harmless_command(tool, arguments, number)
    return RequestCall(
        id=_call_id(flags, seed, number),
        name=tool.name,
        arguments=json.dumps(arguments if isinstance(arguments, dict) else {}, ensure_ascii=False),
    )


def _call_id(flags: Flags, seed: str, number: int) -> str:
    default = f"call_{number}_{hashlib.sha256(f'{seed}{number}'.encode()).hexdigest()[:20]}"
    pattern = flags.tools.call_id_pattern
    return default if pattern is None else sample_match(pattern, f"{seed}{number}")[0] or default


def _schema(request: ParsedRequest) -> Any:
    """Return the schema of the answer: the request's, or if the prompt asks for JSON, the one in the prompt."""
    if request.schema is not None:
        return request.schema
    texts = [t.text for t in request.turns if t.role != "assistant" and "{" in t.text]
    if request.answer is None and not any("json" in t.casefold() for t in texts):
        return None
    return next((schema for t in reversed(texts) if (schema := _schema_in_text(t)) is not None), None)


def _schema_in_text(text: str) -> dict[str, Any] | None:
    """Return the first JSON Schema of an object in a text."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    for _ in range(20):  # a bound on the attempts, for a text full of braces
        if start < 0:
            return None
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            members = (value.get("properties"), value.get("additionalProperties"))  # those of a dict have no names
            if value.get("type") == "object" and any(isinstance(member, dict) for member in members):
                schema: dict[str, Any] = value
                return schema
        start = text.find("{", end)
    return None


# ── reasoning ────────────────────────────────────────────────────────────────
def _reasoning_text(reasoning: ReasoningFlags, body: dict[str, Any], start: str, step: str) -> str:
    """Return `start` and further steps: more for a higher effort or a larger budget, within the budget."""
    tokens = get(body, reasoning.budget.at) if reasoning.budget is not None and reasoning.budget.at else None
    steps = _effort_steps(reasoning.effort or Effort(), body)
    if type(tokens) is int and tokens > 0:
        steps = min(_MAX_STEPS, tokens // _TOKENS_PER_STEP)
    text = start + "".join(step.format(n=n + 1) for n in range(steps))
    return "".join(split_pieces(text)[:tokens]) if type(tokens) is int and tokens > 0 else text


def _effort_steps(effort: Effort, body: dict[str, Any]) -> int:
    word = get(body, effort.at) if effort.at else None
    if not isinstance(word, str):
        return 0
    words = {level: own for level in LEVELS if (own := getattr(effort, level)) is not None}
    levels = [level for level, own in words.items() if own == word]
    if words and not levels:
        return 0  # a word that only a switch has is no level
    level = word if word in levels or not levels else levels[-1]
    return _STEPS.get(level.lower(), 0)


# ── limits ───────────────────────────────────────────────────────────────────
def _cut_at_stop(flags: Flags, request: ParsedRequest, text: str) -> str:
    path = param_path(flags, "stop")
    stops = get(request.body, path) if path else None
    for stop in [stops] if isinstance(stops, str) else stops if isinstance(stops, list) else []:
        if isinstance(stop, str) and stop:
            text = text.partition(stop)[0]
    return text


def _cut_to_limit(flags: Flags, request: ParsedRequest, reply: SimulatedReply) -> SimulatedReply:
    """Cut the reply to the tokens that the request allows; reasoning uses them first, then text, then calls."""
    path = param_path(flags, "max_tokens")
    limit = get(request.body, path) if path else None
    budget = limit if type(limit) is int and limit > 0 else 1 << 30
    cut_reasoning, budget, whole = _take_tokens(reply.reasoning, budget)
    cut_text, budget, complete = _take_tokens(reply.text, budget)
    complete = complete and whole
    cut_calls: list[RequestCall] = []
    for call in reply.calls:
        if budget < 1:  # not even the name fits
            complete = False
            break
        arguments, budget, fits = _take_tokens(call.arguments, budget - 1)
        complete = complete and fits
        cut_calls.append(RequestCall(id=call.id, name=call.name, arguments=arguments))
    return msgspec.structs.replace(
        reply,
        reasoning=cut_reasoning,
        text=cut_text,
        calls=tuple(cut_calls),
        finish="length" if not complete else "tool_calls" if cut_calls else "stop",
        usage=_usage(request, cut_reasoning, cut_text, cut_calls),
        reasoning_complete=whole,
    )


def _take_tokens(text: str, budget: int) -> tuple[str, int, bool]:
    """Return as much of a text as fits, the tokens that remain, and whether all of the text fits."""
    parts = split_pieces(text)
    return "".join(parts[:budget]), max(0, budget - len(parts)), len(parts) <= budget


def _usage(request: ParsedRequest, reasoning_text: str, text: str, calls: list[RequestCall]) -> Usage:
    """Count usage. A token is a piece. Messages before the last assistant turn count as cached."""
    costs = turn_tokens(request)
    last_turn = max((i for i, t in enumerate(request.turns) if t.role == "assistant"), default=0)
    reasoning = len(split_pieces(reasoning_text))
    output = reasoning + len(split_pieces(text)) + sum(1 + len(split_pieces(c.arguments)) for c in calls)
    input_tokens = sum(costs) + tool_tokens(request)
    return Usage(
        input=input_tokens,
        output=output,
        total=input_tokens + output,
        reasoning=reasoning,
        cached=sum(costs[:last_turn]),
    )


# ── calls that change nothing ────────────────────────────────────────────────


def command_tool(tools: list[ParsedTool]) -> ParsedTool | None:
    """Return the first tool that requires a command, or None."""
    return next((tool for tool in tools if _command_name(tool) is not None), None)


def with_harmless_command(tool: ParsedTool, arguments: Any, number: int) -> Any:
    """Return the arguments of a call with a command that lists files, where the tool runs commands."""
    name = _command_name(tool)
    if name is None or not isinstance(arguments, dict):
        return arguments
    command = _COMMANDS[number % len(_COMMANDS)]
    value = arguments.get(name)
    return {**arguments, name: [command] if isinstance(value, list) else command}


def _own_words(prompt: str) -> str:
    """Return a prompt without the blocks in tags with which a client begins it, unless there is nothing else."""
    return _CONTEXT.sub("", prompt, count=1) or prompt


def _command_name(tool: ParsedTool) -> str | None:
    """Return the name of the required parameter that holds a command: a text, or a list of texts."""
    schema = tool.parameters
    if not isinstance(schema, dict):
        return None
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return None
    return next((name for name in _NAMES if name in required and _holds_text(properties.get(name))), None)


def _holds_text(schema: Any) -> bool:
    if not isinstance(schema, dict) or "enum" in schema or "const" in schema or "pattern" in schema:
        return False
    if schema.get("type") == "array":
        items = schema.get("items")
        return isinstance(items, dict) and items.get("type") == "string" and "enum" not in items
    return schema.get("type") == "string"


# ── tools that a prompt describes ────────────────────────────────────────────


def _described_tools(request: ParsedRequest) -> ParsedRequest:
    """Return the request with the tools of its prompt. Each tool is one JSON object on a line."""
    tools: list[ParsedTool] = []
    for turn in request.turns:
        if turn.role != "assistant" and "<tool_call>" in turn.text:
            tools += [tool for line in turn.text.splitlines() if (tool := _parse_tool(line)) is not None]
    return replace(request, tools=tuple(tools)) if tools else request


def _parse_tool(line: str) -> ParsedTool | None:
    try:
        tool = json.loads(line) if line.startswith('{"name"') else None
    except ValueError:
        return None
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        return None
    return ParsedTool("function", tool["name"], tool.get("parameters"))


def _described_results(request: ParsedRequest) -> list[tuple[str, str]]:
    """Return (tool, text) for each result in the last message."""
    last = request.last
    return _RESULT.findall(last.text) if last is not None and last.role == "user" else []


def write_calls(calls: Sequence[RequestCall]) -> str:
    """Write calls as the blocks that the prompt requests."""
    return "\n".join(
        f'<tool_call>{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}</tool_call>' for call in calls
    )
