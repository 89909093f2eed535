"""A request of each wire with each kind of message, part and tool, and a way to add a field to it."""

from __future__ import annotations

import copy
from typing import Any

from .clients import CHAT, GEMINI, MESSAGES, PNG, RESPONSES

Json = dict[str, Any]
Path = tuple[str | int, ...]

MARK = "marked-value"
"""A text that nothing else in a request holds."""

SCHEMA: Json = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
URL = f"data:image/png;base64,{PNG}"
PDF = "JVBERi0xLjQK"
CACHE = {"type": "ephemeral"}
SEARCH_RESULT = {
    "type": "search_result",
    "source": "https://a.example",
    "title": "t",
    "content": [{"type": "text", "text": "found"}],
}

BODIES: dict[str, Json] = {
    CHAT: {
        "model": "m",
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look."},
                    {"type": "image_url", "image_url": {"url": URL}},
                    {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PDF}"}},
                ],
            },
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":"b"}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "done"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "It is done."}]},
            {"role": "user", "content": "Go on."},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
    },
    MESSAGES: {
        "model": "m",
        "max_tokens": 4000,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look."},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
                    SEARCH_RESULT,
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": "b"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "done"}]},
                    {"type": "text", "text": "Go on."},
                ],
            },
        ],
        "tools": [{"name": "f", "input_schema": SCHEMA}],
    },
    GEMINI: {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": "Look."},
                    {"inlineData": {"mimeType": "image/png", "data": PNG}},
                    {"fileData": {"mimeType": "image/png", "fileUri": "https://a.example/b.png"}},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "I look."},
                    {"functionCall": {"id": "c1", "name": "f", "args": {"a": "b"}}},
                ],
            },
            {
                "role": "user",
                "parts": [{"functionResponse": {"id": "c1", "name": "f", "response": {"output": "done"}}}],
            },
            {"role": "model", "parts": [{"text": "It is done."}]},
            {"role": "user", "parts": [{"text": "Go on."}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}],
    },
    RESPONSES: {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Look."},
                    {"type": "input_image", "image_url": URL},
                    {"type": "input_file", "file_data": f"data:application/pdf;base64,{PDF}"},
                ],
            },
            {
                "type": "message",
                "id": "m1",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "I look."}],
            },
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":"b"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "done"},
            {"role": "user", "content": "Go on."},
        ],
        "tools": [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}],
    },
}
"""A request of each wire with each kind of message, part and tool that has fields of its own."""


def put(body: Json, path: Path, value: Any) -> Json:
    """The body with a value at a place; at the end of a list it is added."""
    out = copy.deepcopy(body)
    inner: Any = out
    for key in path[:-1]:
        inner = inner.setdefault(key, {}) if isinstance(key, str) else inner[key]
    last, new = path[-1], copy.deepcopy(value)
    if isinstance(last, int):
        inner[last : last + 1] = [new]
    else:
        old = inner.get(last)
        inner[last] = {**old, **new} if isinstance(old, dict) and isinstance(new, dict) else new
    return out
