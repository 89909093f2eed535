"""OpenAI Responses in the recordings: what a stream has said, read naively, and two requests compared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from cnllm import Model, engine

from .heard import Call, Heard
from .strict import without_strictness

ENDS = ("response.completed", "response.incomplete", "response.failed")
FINISH = {"completed": "stop", "incomplete": "length"}
"""The wire's words that occur in the corpus."""


def hear(parts: Iterable[dict[str, Any]]) -> Heard:
    """What the pieces say; the last event counts for its status and usage alone."""
    heard = Heard()
    calls: dict[int, Call] = {}
    thoughts = {"response.reasoning_summary_text.delta": "", "response.reasoning_text.delta": ""}
    for part in parts:
        kind = part.get("type")
        if kind == "response.output_item.added" and part["item"]["type"] == "function_call":
            call = calls[part["output_index"]] = Call(part["item"]["call_id"], part["item"]["name"])
            heard.calls.append(call)
        elif kind == "response.function_call_arguments.delta":
            calls[part["output_index"]].raw += part["delta"]
        elif kind in thoughts:
            thoughts[kind] += part["delta"]
        elif kind in ("response.output_text.delta", "response.refusal.delta"):
            heard.text += part["delta"]
            heard.refused = heard.refused or kind == "response.refusal.delta"
        elif kind == "error":
            heard.error = heard.error or part.get("error") or part
        elif kind in ENDS:
            heard.finish = part["response"]["status"]
            heard.usage = part["response"].get("usage")
            heard.error = heard.error or part["response"].get("error")
    heard.reasoning = next((text for text in thoughts.values() if text), "")
    return heard


def refusal(body: Mapping[str, Any]) -> str:
    """The refusal in a whole answer, or ""."""
    parts = [part for item in body.get("output") or [] for part in item.get("content") or []]
    return "".join(part.get("refusal") or "" for part in parts)


# ── two requests ─────────────────────────────────────────────────────────────

DEFAULTS = ("store", "include", "temperature", "top_p")
"""What the registry sends unless a caller says otherwise."""

ADDED = {"strict": False, "parameters": {"type": "object", "properties": {}}}
"""Keys of a function that we send where a recording may lack them, with their values."""


def normal(body: Mapping[str, Any], recorded: Mapping[str, Any]) -> dict[str, Any]:
    """A request without differences that mean nothing.

    A string is a message of the user's or a text part; `type: message` may be left out; keys that are null, `stream:
    false` and empty instructions too.
    """
    out = {k: v for k, v in body.items() if v is not None and not (k in DEFAULTS and recorded.get(k) is None)}
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    out["input"] = [_item(item) for item in items]
    if "tools" in out:
        out["tools"] = [_tool(tool) for tool in out["tools"]]
    if not out.get("instructions"):
        out.pop("instructions", None)
    if not out.get("stream"):
        out.pop("stream", None)
    return json.loads(json.dumps(out))  # type: ignore[no-any-return]


def _item(item: Mapping[str, Any]) -> dict[str, Any]:
    out = {k: v for k, v in item.items() if k == "encrypted_content" or v is not None}
    if out.get("type") == "message":
        del out["type"]
    match out.get("content"):
        case [{"type": "input_text" | "output_text", "text": str(text)} as part] if len(part) == 2:
            out["content"] = text
    return out


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    said = {k: v for k, v in tool.items() if v is not None}
    if said.get("strict"):
        said["parameters"] = without_strictness(said.get("parameters", {}))
    return {**ADDED, **said} if said["type"] == "function" else said


def asked(exchange: Any, model: Model) -> tuple[list[Any], dict[str, Any]]:
    """The messages and options of a recorded request, its assistant's turns by this very model."""
    request = engine.decode_request("openai-responses", exchange.sent, origin=model)
    return request.messages, request.options


def differences(exchange: Any, body: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """What differs, as (where, recorded, rebuilt)."""
    sent = exchange.sent
    old, new = normal(sent, sent), normal(body, sent)
    rows = [(k, old.get(k), new.get(k)) for k in sorted({*old, *new} - {"input"}) if old.get(k) != new.get(k)]
    for index in range(max(len(old["input"]), len(new["input"]))):
        one, other = (items[index] if index < len(items) else "absent" for items in (old["input"], new["input"]))
        if one != other:
            rows.append((f"input[{index}]", one, other))
    return rows
