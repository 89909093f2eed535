"""One conversation as the clients of each protocol send it, and an endpoint over each protocol."""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

from cnllm import Model
from cnllm.protocols import PROTOCOLS
from cnllm.registry import Registry

CHAT, MESSAGES, GEMINI, RESPONSES = PROTOCOLS
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n0000").decode()
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ANSWER = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
PATHS = {GEMINI: "/v1beta/models/m:generateContent"}


@cache
def endpoint(protocol: str) -> Model:
    """An endpoint over one protocol that reads pictures and takes tools and schemas."""
    return Registry.load().resolve("openai-compatible/m", protocol=protocol, base_url="http://127.0.0.1:9/v1")


def tools(protocol: str) -> list[dict[str, Any]]:
    """Two functions."""
    functions = [{"name": name, "description": f"{name}.", "parameters": SCHEMA} for name in ("weather", "news")]
    match protocol:
        case "openai-chat":
            return [{"type": "function", "function": function} for function in functions]
        case "anthropic-messages":
            return [{"name": f["name"], "description": f["description"], "input_schema": SCHEMA} for f in functions]
        case "gemini":
            return [
                {
                    "functionDeclarations": [
                        {"name": f["name"], "description": f["description"], "parametersJsonSchema": SCHEMA}
                        for f in functions
                    ]
                }
            ]
    return [{"type": "function", **function} for function in functions]


CALLS = (("call_a1", "weather", '{"city":"北京"}'), ("call_b2", "news", '{"city":"Oslo"}'))
RESULTS = ("12 °C", "quiet")


def tool_body(protocol: str, count: int = 2) -> dict[str, Any]:
    """A request with calls, their results, and the thoughts before them."""
    calls = CALLS[:count]
    match protocol:
        case "openai-chat":
            called = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": raw}, "index": n}
                for n, (id, name, raw) in enumerate(calls)
            ]
            return {
                "model": "m",
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Weather?"},
                    {"role": "assistant", "content": None, "reasoning_content": "I look.", "tool_calls": called},
                    *(
                        {"role": "tool", "tool_call_id": id, "content": text}
                        for (id, _, _), text in zip(calls, RESULTS, strict=False)
                    ),
                ],
                "tools": tools(protocol),
                "user": "u-1",
                "prediction": {"type": "content", "content": "secret-device"},
            }
        case "anthropic-messages":
            import json

            return {
                "model": "m",
                "max_tokens": 500,
                "system": [
                    {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=ab;"},
                    {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
                ],
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "thinking", "thinking": "I look.", "signature": "foreign-signature"},
                            *(
                                {
                                    "type": "tool_use",
                                    "id": id,
                                    "name": name,
                                    "input": json.loads(raw),
                                    "caller": {"type": "direct"},
                                }
                                for id, name, raw in calls
                            ),
                        ],
                    },
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "tool_result",
                                "tool_use_id": id,
                                "content": text,
                                "cache_control": {"type": "ephemeral"},
                            }
                            for (id, _, _), text in zip(calls, RESULTS, strict=False)
                        ],
                    },
                ],
                "tools": tools(protocol),
                "metadata": {"user_id": "secret-device"},
                "context_management": {"edits": []},
            }
        case "gemini":
            import json

            return {
                "systemInstruction": {"parts": [{"text": "Be brief."}]},
                "contents": [
                    {"role": "user", "parts": [{"text": "Weather?"}]},
                    {
                        "role": "model",
                        "parts": [
                            {"text": "I look.", "thought": True},
                            *(
                                {
                                    "functionCall": {"id": id, "name": name, "args": json.loads(raw)},
                                    "thoughtSignature": "foreign-signature",
                                }
                                for id, name, raw in calls
                            ),
                        ],
                    },
                    {
                        "role": "user",
                        "parts": [
                            {"functionResponse": {"id": id, "name": name, "response": {"output": text}}}
                            for (id, name, _), text in zip(calls, RESULTS, strict=False)
                        ],
                    },
                ],
                "tools": tools(protocol),
                "safetySettings": [],
                "labels": {"device": "secret-device"},
            }
    return {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {
                "type": "message",
                "id": "msg_in1",
                "role": "user",
                "content": [{"type": "input_text", "text": "Weather?"}],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "I look."}],
                "encrypted_content": "foreign-signature",
            },
            *(
                {
                    "type": "function_call",
                    "id": f"fc_{n}",
                    "status": "completed",
                    "call_id": id,
                    "name": name,
                    "arguments": raw,
                }
                for n, (id, name, raw) in enumerate(calls)
            ),
            *(
                {
                    "type": "function_call_output",
                    "id": f"fco_{n}",
                    "status": "completed",
                    "call_id": id,
                    "output": text,
                }
                for n, ((id, _, _), text) in enumerate(zip(calls, RESULTS, strict=False))
            ),
        ],
        "tools": tools(protocol),
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "key-1",
        "client_metadata": {"installation": "secret-device"},
        "reasoning": {"summary": "auto"},
        "text": {"verbosity": "low"},
    }


def picture_body(protocol: str) -> dict[str, Any]:
    """A request with a picture of the user, and one in a tool's result."""
    url = f"data:image/png;base64,{PNG}"
    match protocol:
        case "openai-chat":
            part = {"type": "image_url", "image_url": {"url": url}}
            call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
            return {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "Look."}, part]},
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "seen"}, part]},
                ],
                "tools": tools(protocol),
            }
        case "anthropic-messages":
            block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
            seen = [{"type": "text", "text": "seen"}, block]
            return {
                "max_tokens": 9,
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "Look."}, block]},
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {}}],
                    },
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": seen}]},
                ],
                "tools": tools(protocol),
            }
        case "gemini":
            data = {"inlineData": {"mimeType": "image/png", "data": PNG}}
            response = {"id": "c1", "name": "weather", "response": {"output": "seen"}, "parts": [data]}
            return {
                "contents": [
                    {"role": "user", "parts": [{"text": "Look."}, data]},
                    {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "weather", "args": {}}}]},
                    {"role": "user", "parts": [{"functionResponse": response}]},
                ],
                "tools": tools(protocol),
            }
    image = {"type": "input_image", "image_url": url}
    return {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Look."}, image]},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": [{"type": "input_text", "text": "seen"}, image],
            },
        ],
        "tools": tools(protocol),
    }


def schema_body(protocol: str) -> dict[str, Any]:
    """A request for an answer by a schema."""
    match protocol:
        case "openai-chat":
            format = {"type": "json_schema", "json_schema": {"name": "answer", "schema": ANSWER}}
            return {"messages": [{"role": "user", "content": "1+1"}], "response_format": format}
        case "anthropic-messages":
            output = {"format": {"type": "json_schema", "schema": ANSWER}}
            return {"max_tokens": 9, "messages": [{"role": "user", "content": "1+1"}], "output_config": output}
        case "gemini":
            config: dict[str, Any] = {"responseMimeType": "application/json", "responseJsonSchema": ANSWER}
            return {"contents": [{"role": "user", "parts": [{"text": "1+1"}]}], "generationConfig": config}
    return {"input": "1+1", "text": {"format": {"type": "json_schema", "name": "answer", "schema": ANSWER}}}


def json_body(protocol: str) -> dict[str, Any] | None:
    """A request for a JSON object without a schema; None where the protocol has no such mode."""
    match protocol:
        case "openai-chat":
            return {"messages": [{"role": "user", "content": "1"}], "response_format": {"type": "json_object"}}
        case "anthropic-messages":
            return None
        case "gemini":
            config = {"responseMimeType": "application/json"}
            return {"contents": [{"role": "user", "parts": [{"text": "1"}]}], "generationConfig": config}
    return {"input": "1", "text": {"format": {"type": "json_object"}}}
