"""Requests with the keys, types and structure that real clients send, with words of our own.

Recorded from Claude Code 2.1, codex-cli 0.169, gemini-cli 0.61, opencode 1.18, aider 0.86, llm 0.36 and the official
SDKs, and written down anew: no prompt of theirs is here. A body without `model` gets one; on the protocol that names
the model in the path, MODEL stands for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class ClientRequest:
    """A request of a client."""

    name: str
    path: str
    body: Json
    headers: Json = field(default_factory=dict)

    @property
    def streams(self) -> bool:
        return self.body.get("stream") is True or ":stream" in self.path


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = "JVBERi0xLjQKJSVFT0Y="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
PICTURE = f"data:image/png;base64,{PNG}"
COMMAND = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "What to run"},
        "timeout": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991},
        "words": {"type": "array", "items": {"type": "string"}},
        "mode": {"type": ["string", "null"], "enum": ["fast", "slow", None]},
    },
    "required": ["command"],
    "additionalProperties": False,
}
FROM_MCP = {
    "type": "object",
    "properties": {
        "size": {"anyOf": [{"type": "string", "format": "uri"}, {"$ref": "#/$defs/box"}]},
        "kind": {"const": "wide"},
    },
    "$defs": {"box": {"type": "object", "properties": {"w": {"type": "number"}}}},
}
ANSWER = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["title", "count"],
    "additionalProperties": False,
}


# ── Messages ──────────────────────────────────────────────────────────────────
_BETA = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
    "x-app": "cli",
    "x-stainless-retry-count": "0",
}
_MARK = {"cache_control": {"type": "ephemeral"}}


def _messages() -> Iterator[ClientRequest]:
    tools = [
        {"name": "Run", "description": "Runs a command.", "input_schema": COMMAND, "eager_input_streaming": True},
        {"name": "mcp__pic__draw", "input_schema": FROM_MCP},
        {
            "name": "Plan",
            "description": "Ends the plan.",
            "input_schema": {"type": "object", "properties": {}},
            **_MARK,
        },
    ]
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    session = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "<note>today</note>"}, {"type": "text", "text": "Look."}],
        },
        {"role": "system", "content": "A word from the middle of the conversation."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Two at once.", "signature": "c2lnbmF0dXJl"},
                {"type": "tool_use", "id": "toolu_01", "name": "Run", "input": {"command": "ls"}},
                {"type": "tool_use", "id": "toolu_02", "name": "mcp__pic__draw", "input": {}},
                {"type": "tool_use", "id": "toolu_03", "name": "Gone", "input": {"x": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "tool_use_id": "toolu_02",
                    "type": "tool_result",
                    "content": [picture, {"type": "text", "text": "is"}],
                },
                {"type": "tool_result", "tool_use_id": "toolu_01", "content": "exit 3", "is_error": True},
                {"type": "tool_result", "tool_use_id": "toolu_03", **_MARK},
                {"type": "text", "text": "Go on.", **_MARK},
            ],
        },
    ]
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2"},
        {"type": "text", "text": "Be brief."},
    ]
    base = {"max_tokens": 32000, "messages": session, "tools": tools, "system": system, "metadata": {"user_id": "u"}}
    agent = {
        **base,
        "stream": True,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    }
    hello = [{"role": "user", "content": "Hello."}]
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8, "allowed_domains": ["example.com"]}
    bodies: dict[str, Json] = {
        "agent": agent,
        "agent with a budget": {**base, "stream": True, "thinking": {"type": "enabled", "budget_tokens": 8000}},
        "title": {"max_tokens": 512, "messages": hello, "temperature": 1, "system": "Name it.", "stream": True},
        "answer by a schema": {
            "max_tokens": 32000,
            "messages": hello,
            "stream": True,
            "output_config": {"format": {"type": "json_schema", "schema": ANSWER}},
        },
        "search": {
            "max_tokens": 8192,
            "messages": hello,
            "tools": [search],
        },
        "other tools of the endpoint": {
            **base,
            "tools": [
                *tools,
                search,
                {"type": "bash_20250124", "name": "bash"},
                {"type": "code_execution_20250825", "name": "code_execution"},
                {"type": "memory_20250818", "name": "memory"},
            ],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        },
        "a forced tool beside thinking": {
            **base,
            "tool_choice": {"type": "tool", "name": "Run"},
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        },
        "no tool": {**base, "tool_choice": {"type": "none"}},
        "begun answer": {"max_tokens": 64, "messages": [*hello, {"role": "assistant", "content": "{"}]},
        "documents": {
            "max_tokens": 64,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "document",
                            "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
                            "citations": {"enabled": True},
                        },
                        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Words."}},
                        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
                        {
                            "type": "search_result",
                            "source": "s",
                            "title": "t",
                            "content": [{"type": "text", "text": "x"}],
                        },
                        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
                    ],
                }
            ],
        },
        "every option": {
            "max_tokens": 200_000,
            "messages": [*hello, *hello],
            "system": [],
            "stop_sequences": ["a", "b", "c", "d", "e", "f"],
            "temperature": 0,
            "top_p": 0.9,
            "top_k": 4,
            "service_tier": "standard_only",
            "inference_geo": "us",
            "speed": "fast",
            "unheard_of": {"x": 1},
        },
        "what a search left": {
            "max_tokens": 64,
            "messages": [
                *hello,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
                        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
                        {"type": "redacted_thinking", "data": "eHg="},
                        {"type": "text", "text": "Found."},
                    ],
                },
                *hello,
            ],
        },
    }
    for name, body in bodies.items():
        yield ClientRequest(f"messages: {name}", "/v1/messages?beta=true", body, _BETA)
    count = {"messages": session, "tools": tools, "system": system, "thinking": {"type": "adaptive"}}
    yield ClientRequest("messages: count", "/v1/messages/count_tokens?beta=true", count, _BETA)


# ── Responses ─────────────────────────────────────────────────────────────────
def _responses() -> Iterator[ClientRequest]:
    run = {"type": "function", "name": "run", "description": "Runs.", "parameters": COMMAND, "strict": False}
    patch = {
        "type": "custom",
        "name": "patch",
        "description": "Changes files.",
        "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "+" /.+/'},
    }
    search = {"type": "web_search", "external_web_access": True, "search_content_types": ["text", "image"]}
    find = {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": ANSWER}
    space = {"type": "namespace", "name": "helpers", "description": "Helpers.", "tools": [{**run, "name": "start"}]}

    def said(role: str, *parts: Json) -> Json:
        return {"type": "message", "id": "msg_1", "role": role, "content": list(parts)}

    question = said("user", {"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": PICTURE})
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Two at once."}],
        "content": None,
        "encrypted_content": "Zm9yZWlnbg",
    }
    session = [
        said("developer", {"type": "input_text", "text": "Be brief."}),
        question,
        thought,
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "run", "arguments": '{"command": "ls"}'},
        {
            "type": "custom_tool_call",
            "id": "ctc_1",
            "call_id": "c2",
            "name": "patch",
            "input": "+ a",
            "status": "completed",
        },
        {"type": "function_call", "call_id": "c3", "name": "start", "namespace": "helpers", "arguments": "{}"},
        {"type": "custom_tool_call_output", "id": "o2", "call_id": "c2", "output": "refused"},
        {"type": "function_call_output", "id": "o1", "call_id": "c1", "output": "a.txt"},
        {
            "type": "function_call_output",
            "call_id": "c3",
            "output": [{"type": "input_text", "text": "is"}, {"type": "input_image", "image_url": PICTURE}],
        },
        said("assistant", {"type": "output_text", "text": "Done.", "annotations": [], "logprobs": []}),
        said("user", {"type": "input_text", "text": "Again."}),
    ]
    base = {
        "input": session,
        "tools": [run, patch, find, search, space],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "high", "summary": "detailed"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "client_metadata": {"installation": "i"},
    }
    schema = {"type": "json_schema", "name": "answer", "schema": ANSWER, "strict": True}
    rare = [
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "file_search", "vector_store_ids": ["v"]},
        {"type": "image_generation"},
        {"type": "mcp", "server_label": "l", "server_url": "https://example.com", "require_approval": "never"},
        {"type": "local_shell"},
        {"type": "computer_use_preview", "display_width": 9, "display_height": 9, "environment": "linux"},
    ]
    bodies: dict[str, Json] = {
        "agent": base,
        "agent with an answer by a schema": {**base, "text": {"format": schema, "verbosity": "low"}},
        "text": {"input": "Hello.", "instructions": "Be brief.", "store": True, "metadata": {"a": "b"}},
        "any object": {"input": "Hello.", "text": {"format": {"type": "json_object"}}},
        "every option": {
            "input": [{"role": "user", "content": "Hello."}],
            "background": False,
            "max_output_tokens": 10**6,
            "max_tool_calls": 3,
            "service_tier": "flex",
            "temperature": 0.2,
            "top_p": 0.9,
            "top_logprobs": 2,
            "truncation": "auto",
            "safety_identifier": "s",
            "user": "u",
            "context_management": [{"type": "compaction", "compact_threshold": 1000}],
            "unheard_of": 1,
        },
        "other tools of the endpoint": {**base, "tools": [run, *rare]},
        "only tools of the endpoint": {**base, "tools": rare, "tool_choice": "required"},
        "a choice among tools": {
            **base,
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "run"}],
            },
        },
        "a custom tool": {**base, "tool_choice": {"type": "custom", "name": "patch"}, "reasoning": {"effort": "none"}},
        "items of the endpoint": {
            "input": [
                {"role": "user", "content": "Look."},
                {
                    "type": "web_search_call",
                    "id": "ws",
                    "status": "completed",
                    "action": {"type": "search", "query": "q"},
                },
                {"type": "image_generation_call", "id": "ig", "result": PNG, "status": "completed"},
                {"type": "local_shell_call", "id": "l", "call_id": "lc", "action": {"type": "exec", "command": ["ls"]}},
                {"type": "local_shell_call_output", "id": "lo", "call_id": "lc", "output": "a.txt"},
                {"type": "compaction", "id": "cp", "encrypted_content": "eA"},
                {"type": "additional_tools", "role": "developer", "tools": [run]},
                {"type": "item_reference", "id": "msg_9"},
                {"role": "user", "content": [{"type": "input_file", "file_data": PDF, "filename": "a.pdf"}]},
            ]
        },
    }
    for name, body in bodies.items():
        yield ClientRequest(f"responses: {name}", "/v1/responses", body, {"originator": "codex_exec"})
    yield ClientRequest("responses: count", "/v1/responses/input_tokens", {"input": session, "tools": [run]})


# ── generateContent ───────────────────────────────────────────────────────────
def _generate() -> Iterator[ClientRequest]:
    picture = {"inlineData": {"mimeType": "image/png", "data": PNG}}
    functions = [
        {"name": "run", "description": "Runs.", "parametersJsonSchema": COMMAND},
        {
            "name": "read",
            "parameters": {
                "type": "OBJECT",
                "properties": {
                    "path": {"type": "STRING", "nullable": True},
                    "lines": {"type": "INTEGER", "format": "int32"},
                },
                "required": ["path"],
                "propertyOrdering": ["path", "lines"],
            },
        },
        {"name": "bare", "description": "Takes nothing."},
        {"name": "mixed", "parametersJsonSchema": {"type": "OBJECT", "properties": {"x": {"type": "STRING"}}}},
    ]

    def result(id: str, name: str, **response: Any) -> Json:
        return {"functionResponse": {"id": id, "name": name, "response": response}}

    results = [result("i1", "run", output="a.txt"), result("i2", "read", error="no file"), picture]
    session = [
        {"role": "user", "parts": [{"text": "<context>here</context>"}, {"text": "Look."}]},
        {
            "role": "model",
            "parts": [
                {"text": "Two at once.", "thought": True},
                {"functionCall": {"id": "i1", "name": "run", "args": {"command": "ls"}}, "thoughtSignature": "c2ln"},
                {"functionCall": {"id": "i2", "name": "read", "args": {"path": "x"}}},
            ],
        },
        {"role": "user", "parts": [*results, *results]},
        {"role": "model", "parts": [{"text": "Done."}]},
        {"role": "user", "parts": [{"text": "Again."}, picture]},
    ]
    sampling = {"temperature": 1, "topP": 0.95, "topK": 64}
    thinking = {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "HIGH"}}
    base = {
        "contents": session,
        "systemInstruction": {"role": "user", "parts": [{"text": "Be brief."}]},
        "tools": [{"functionDeclarations": functions}],
        "generationConfig": {**sampling, **thinking},
    }
    hello = [{"role": "user", "parts": [{"text": "Hello."}]}]
    route = {
        "type": "OBJECT",
        "properties": {"why": {"type": "STRING"}, "score": {"type": "INTEGER"}},
        "required": ["why"],
    }
    json = {"responseMimeType": "application/json"}

    def calls(**config: Any) -> Json:
        return {"toolConfig": {"functionCallingConfig": config}}

    without_ids = [
        {"role": "user", "parts": [{"text": "Look."}]},
        {"role": "model", "parts": [{"functionCall": {"name": "run", "args": {"command": "ls"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "run", "response": {"name": "run", "content": "a"}}}]},
        {"role": "user", "parts": [{"text": "And?"}]},
    ]
    bodies: dict[str, Json] = {
        "router": {
            "contents": hello,
            "generationConfig": {**sampling, **thinking, **json, "responseJsonSchema": route},
        },
        "search": {
            "contents": hello,
            "tools": [{"googleSearch": {}}],
            "generationConfig": {"temperature": 0, "topP": 1},
        },
        "pages": {"contents": hello, "tools": [{"urlContext": {}}, {"codeExecution": {}}], **calls(mode="ANY")},
        "any call": {**base, **calls(mode="ANY", allowedFunctionNames=["run", "bare"])},
        "one call": {**base, **calls(mode="ANY", allowedFunctionNames=["run"])},
        "valid calls": {**base, **calls(mode="VALIDATED")},
        "no call": {**base, **calls(mode="NONE")},
        "any object": {"contents": hello, "generationConfig": json},
        "answer by a schema": {"contents": hello, "generationConfig": {**json, "responseSchema": route}},
        "one word": {
            "contents": hello,
            "generationConfig": {
                "responseMimeType": "text/x.enum",
                "responseSchema": {"type": "STRING", "enum": ["a", "b"]},
            },
        },
        "calls without ids": {**base, "contents": without_ids},
        "one object for a list": {
            "contents": {"parts": {"text": "Hello."}},
            "system_instruction": {"parts": {"text": "Be brief."}},
            "tools": {"function_declarations": {"name": "bare"}},
        },
        "files": {
            "contents": [
                {
                    "role": "user",
                    "parts": [
                        {"inlineData": {"mimeType": "application/pdf", "data": PDF}},
                        {"inlineData": {"mimeType": "audio/wav", "data": WAV}},
                        {"fileData": {"mimeType": "video/mp4", "fileUri": "https://example.com/v"}},
                        {"text": "What is it?"},
                    ],
                }
            ]
        },
        "every option": {
            "contents": hello,
            "safetySettings": [{"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "BLOCK_NONE"}],
            "labels": {"a": "b"},
            "generationConfig": {
                "candidateCount": 1,
                "maxOutputTokens": 10**6,
                "stopSequences": ["a", "b", "c", "d", "e"],
                "seed": 3,
                "presencePenalty": 1.5,
                "frequencyPenalty": -1.5,
                "responseLogprobs": True,
                "logprobs": 3,
                "responseModalities": ["TEXT"],
                "mediaResolution": "MEDIA_RESOLUTION_LOW",
                "thinkingConfig": {"thinkingBudget": 0},
            },
        },
    }
    for name, body in bodies.items():
        yield ClientRequest(f"generate: {name}", "/v1beta/models/MODEL:generateContent", body)
    yield ClientRequest("generate: agent", "/v1beta/models/MODEL:streamGenerateContent?alt=sse", base)
    yield ClientRequest("generate: count", "/v1beta/models/MODEL:countTokens", {"contents": session})


# ── chat completions ──────────────────────────────────────────────────────────
def _chat() -> Iterator[ClientRequest]:
    def function(name: str, **more: Any) -> Json:
        return {"type": "function", "function": {"name": name, **more}}

    tools = [
        function("run", description="Runs.", parameters=COMMAND),
        function("draw", parameters=FROM_MCP),
        function("bare"),
        function("strict", parameters=ANSWER, strict=True),
    ]
    custom = {"type": "custom", "custom": {"name": "patch", "format": {"type": "text"}}}
    picture = {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}}
    call = {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": '{"command": "ls"}'}}
    gone = {"id": "call_2", "type": "function", "function": {"name": "gone", "arguments": ""}}
    patch = {"id": "call_3", "type": "custom", "custom": {"name": "patch", "input": "+ a"}}
    session = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Very."}]},
        {"role": "user", "name": "bob", "content": [{"type": "text", "text": "Look."}, picture]},
        {"role": "assistant", "content": "", "reasoning_content": "Three at once.", "tool_calls": [call, gone, patch]},
        {"role": "tool", "tool_call_id": "call_2", "content": ""},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "a.txt"}]},
        {"role": "tool", "tool_call_id": "call_3", "content": "refused"},
        {"role": "user", "content": "Go on."},
    ]
    hello = [{"role": "user", "content": "Hello."}]
    base = {
        "messages": session,
        "tools": [*tools, custom],
        "tool_choice": "auto",
        "max_tokens": 32000,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    allowed = {"mode": "required", "tools": [function("run")]}
    bodies: dict[str, Json] = {
        "agent": base,
        "agent that thinks hard": {**base, "reasoning_effort": "xhigh", "temperature": 0.5},
        "agent that must not think": {**base, "reasoning_effort": "none"},
        "a required call": {**base, "tool_choice": "required", "parallel_tool_calls": False},
        "one call": {**base, "tool_choice": function("draw")},
        "a custom call": {**base, "tool_choice": {"type": "custom", "custom": {"name": "patch"}}},
        "a choice among tools": {**base, "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}},
        "no call": {**base, "tool_choice": "none"},
        "old functions": {
            "messages": hello,
            "functions": [{"name": "old", "parameters": COMMAND}],
            "function_call": "auto",
        },
        "editor": {
            "messages": [*hello, {"role": "assistant", "content": "Ok."}, *hello],
            "temperature": 0,
            "stream": True,
        },
        "answer by a schema": {
            "messages": hello,
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": ANSWER, "strict": True}},
        },
        "any object": {"messages": hello, "response_format": {"type": "json_object"}, "stream": True},
        "any object, in words": {
            "messages": [{"role": "user", "content": "Answer with JSON."}],
            "response_format": {"type": "json_object"},
        },
        "any object beside tools": {**base, "response_format": {"type": "json_object"}},
        "a schema without a schema": {
            "messages": hello,
            "response_format": {"type": "json_schema", "json_schema": {"name": "a"}},
        },
        "every option": {
            "messages": hello,
            "n": 1,
            "seed": 3,
            "stop": ["a", "b", "c", "d"],
            "temperature": 2,
            "top_p": 0,
            "presence_penalty": -2,
            "frequency_penalty": 2,
            "logit_bias": {"50256": -100},
            "logprobs": True,
            "top_logprobs": 3,
            "max_completion_tokens": 10**6,
            "service_tier": "flex",
            "metadata": {"a": "b"},
            "store": True,
            "user": "u",
            "safety_identifier": "s",
            "prompt_cache_key": "k",
            "prediction": {"type": "content", "content": "x"},
            "modalities": ["text"],
            "verbosity": "low",
            "web_search_options": {"search_context_size": "low"},
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "unheard_of": 1,
        },
        "options of other endpoints": {
            "messages": hello,
            "top_k": 5,
            "min_p": 0.1,
            "repetition_penalty": 1.1,
            "thinking": {"type": "enabled", "budget_tokens": 2000},
            "enable_thinking": True,
        },
        "sound": {
            "messages": [
                {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}]}
            ],
            "modalities": ["text", "audio"],
            "audio": {"voice": "alloy", "format": "wav"},
        },
        "files": {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "file",
                            "file": {"file_data": f"data:application/pdf;base64,{PDF}", "filename": "a.pdf"},
                        },
                        {"type": "file", "file": {"file_id": "file-1"}},
                        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                    ],
                }
            ]
        },
        "odd turns": {
            "messages": [
                {"role": "assistant", "content": "First."},
                *hello,
                {"role": "assistant", "content": None, "refusal": "No."},
                {"role": "assistant", "audio": {"id": "audio_1"}},
                {"role": "assistant", "tool_calls": [{**call, "id": "call_9"}]},
                {"role": "user", "content": ""},
                {"role": "system", "content": "Late."},
                {"role": "assistant", "content": "Begun {"},
            ]
        },
        "only a system": {"messages": [{"role": "system", "content": "Speak."}]},
    }
    for name, body in bodies.items():
        yield ClientRequest(f"chat: {name}", "/v1/chat/completions", body)


# ── beside the letter of the protocol ─────────────────────────────────────────
def _odd() -> Iterator[ClientRequest]:
    """What real clients send in the form of another protocol, or in forms that are newer than most endpoints."""
    hello = {"role": "user", "content": "Hello."}
    named = {"name": "run", "description": "Runs."}
    flat = {"type": "function", **named, "parameters": COMMAND}
    patch = {
        "type": "custom",
        "name": "patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "+" /.+/'},
    }
    call = {"type": "function_call", "call_id": "c1", "name": "run", "arguments": '{"command": "ls"}'}
    result = {"type": "function_call_output", "call_id": "c1", "output": "a.txt"}
    yield ClientRequest(
        "odd: Responses as chat",
        "/v1/chat/completions",
        {
            "input": [{"role": "system", "content": "Be brief."}, hello, call, result],
            "tools": [flat, patch],
            "stream": True,
            "stream_options": {"include_usage": True},
            "include": ["reasoning.encrypted_content"],
            "reasoning": {"effort": "medium", "summary": "auto"},
            "text": {"verbosity": "low"},
        },
    )
    used = {"type": "tool_use", "id": "toolu_1", "name": "run", "input": {"command": "ls"}}
    answered = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a.txt"}]}
    blocks = [{"role": "assistant", "content": [used]}, {"role": "user", "content": [answered]}]
    tool = {**named, "input_schema": COMMAND}
    yield ClientRequest(
        "odd: blocks of Messages as chat",
        "/v1/chat/completions",
        {"messages": [hello, *blocks], "tools": [tool, patch], "tool_choice": {"type": "auto"}, "stream": True},
    )
    sealed = {"type": "encrypted_content", "encrypted_content": "List the files."}
    task = {"type": "agent_message", "author": "/a", "recipient": "/a/b", "content": [sealed]}
    yield ClientRequest("odd: agents", "/v1/responses", {"input": [hello, task], "tools": [flat]})
    changes = [
        {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "run"}},
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {**tool, "name": "late"}}},
        {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "gone"}},
    ]
    summary = {"role": "assistant", "content": [{"type": "compaction", "content": "All so far."}]}
    turns = [hello, summary, *blocks, {"role": "system", "content": changes}]
    yield ClientRequest(
        "odd: tools that come and go", "/v1/messages", {"max_tokens": 64, "messages": turns, "tools": [tool]}
    )


REQUESTS = (*_odd(), *_messages(), *_responses(), *_generate(), *_chat())
