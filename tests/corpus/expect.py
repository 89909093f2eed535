"""What the corpus expects, in the contract's words, and how a reply differs from it.

The two say some things differently. In the contract a refusal is text with finish `content_filter`; a call
whose arguments were cut off by a length limit is in `incomplete`; arguments that are empty or null are
`{}`; a leading `<think>` block is reasoning and not text; and `output` includes reasoning, although some
endpoints count that apart.
"""

from __future__ import annotations

import json
from typing import Any

from cnllm import Reply

from . import gemini, messages, responses
from .corpus import Exchange
from .oracle import hear, split_think

FINISH = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",
    **messages.FINISH,
    **gemini.FINISH,
    **responses.FINISH,
}
"""The wire's words that occur in the corpus."""


def refusal(exchange: Exchange) -> str:
    """The refusal in an answer, or "". Only openai-chat has one beside the text."""
    if exchange.protocol != "openai-chat":
        return ""
    if exchange.stream:
        heard = hear(exchange.protocol, exchange.content)
        return heard.text if heard.refused else ""
    if exchange.protocol == "openai-responses":
        return responses.refusal(json.loads(exchange.body))
    [choice, *_] = json.loads(exchange.body).get("choices") or [{}]
    message = choice.get("message") or {}
    return message.get("refusal") or ""


def is_empty(exchange: Exchange) -> bool:
    """Did nothing come that the contract counts as something?"""
    expected = exchange.expected or {}
    came = expected["text"] or expected["reasoning"] or expected["tool_calls"] or expected.get("stream_error")
    explained = FINISH.get(expected["finish_reason"]) in ("length", "content_filter", "error")
    return not (came or explained or refusal(exchange))


def differences(exchange: Exchange, reply: Reply) -> list[str]:
    """One line for each thing that is not as the corpus has it."""
    expected = exchange.expected or {}
    text, reasoning = expected["text"] or "", expected["reasoning"] or ""
    found_reasoning = reply.reasoning
    if expected.get("think_tags"):
        text, reasoning = split_think(text)[0], reasoning.strip()
        found_reasoning = found_reasoning.strip()
    refused = refusal(exchange)
    text = text or refused
    found: list[str] = []
    _compare(found, "text", text, reply.text)
    _compare(found, "reasoning", reasoning, found_reasoning)
    _calls(found, expected, reply)
    _compare(found, "raw_finish", expected["finish_reason"], reply.raw_finish)
    if expected.get("stream_error"):
        _compare(found, "finish", "error", reply.finish)
    elif refused:
        _compare(found, "finish", "content_filter", reply.finish)
    elif not is_empty(exchange):
        _compare(found, "finish", _finish(expected), reply.finish)
    _usage(found, exchange, reply)
    return found


def _compare(found: list[str], what: str, expected: Any, got: Any) -> None:
    if expected != got:
        found.append(f"{what}: expected {_short(expected)}, got {_short(got)}")


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 400 else f"{shown[:200]} … {shown[-200:]} ({len(shown)} characters)"


def _finish(expected: dict[str, Any]) -> str:
    word = FINISH[expected["finish_reason"]]
    return "tool_calls" if word == "stop" and expected["tool_calls"] else word


def _calls(found: list[str], expected: dict[str, Any], reply: Reply) -> None:
    whole, cut = [], []
    for call in expected["tool_calls"]:
        arguments = call["arguments"]
        if isinstance(arguments, str) and FINISH.get(expected["finish_reason"]) == "length":
            cut.append((call["id"], call["name"], arguments))
        else:
            blank = isinstance(arguments, str) and arguments.strip() in ("", "null")
            whole.append((call["id"], call["name"], {} if blank else arguments))
    got_whole = [(call.id, call.name, call.arguments) for call in reply.tool_calls]
    got_cut = [(call.id, call.name, call.raw) for call in reply.incomplete]
    if [ident for ident, _, _ in whole if not ident]:  # where the wire named no id, any will do
        whole = [("", name, arguments) for _, name, arguments in whole]
        got_whole = [("", name, arguments) for _, name, arguments in got_whole]
    _compare(found, "tool_calls", whole, got_whole)
    _compare(found, "incomplete", cut, got_cut)
    for call in reply.tool_calls:
        _compare(found, f"problem of {call.name}", None, call.problem)


def _usage(found: list[str], exchange: Exchange, reply: Reply) -> None:
    expected = (exchange.expected or {})["usage"]
    wire = wire_usage(exchange)
    pairs = [("input", "input_tokens"), ("cached", "cached_tokens"), ("reasoning", "reasoning_tokens")]
    for ours, theirs in pairs:
        got = getattr(reply.usage, ours, None)
        if expected and theirs in expected:
            more = _apart(exchange, wire) if ours == "input" else 0
            _compare(found, f"usage.{ours}", expected[theirs] + more, got)
        elif not mentions(wire, "cache" if ours == "cached" else ours):
            _compare(found, f"usage.{ours}", None, got)
    output = getattr(reply.usage, "output", None)
    if expected is None:
        _compare(found, "usage.output", None, output)
    elif output not in outputs(expected, wire):
        _compare(found, "usage.output", expected["output_tokens"], output)


def _apart(exchange: Exchange, wire: dict[str, Any]) -> int:
    """Input that the wire counts apart."""
    return sum(wire.get(key) or 0 for key in messages.APART) if exchange.protocol == messages.PROTOCOL else 0


def outputs(expected: dict[str, Any], wire: dict[str, Any]) -> set[int]:
    """The right values of `output`; by the wire's own total, reasoning may come on top."""
    output, reasoning = expected["output_tokens"], expected.get("reasoning_tokens") or 0
    apart = expected["input_tokens"] + output + reasoning == wire.get("total_tokens")
    return {output, output + reasoning} if apart else {output}


def wire_usage(exchange: Exchange) -> dict[str, Any]:
    """The last usage object of an answer."""
    if exchange.stream:
        return hear(exchange.protocol, exchange.content).usage or {}
    body = json.loads(exchange.body)
    return body.get("usage") or body.get("usageMetadata") or {}


def mentions(value: Any, word: str) -> bool:
    """Is there a key anywhere in a JSON value that holds this word?"""
    if isinstance(value, dict):
        return any(word in key or mentions(inner, word) for key, inner in value.items())
    return isinstance(value, list) and any(mentions(inner, word) for inner in value)
