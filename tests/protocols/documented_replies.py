"""Each documented field and block of a reply, by wire: its place in the replies of `replies`, and a value."""

from __future__ import annotations

from typing import Any

from .clients import CHAT, GEMINI, MESSAGES, PNG, RESPONSES
from .replies import TEXT, THOUGHT
from .requests import MARK, Json, Path

NUMBER = 98765
"""A number that nothing else in a reply holds."""

TOKEN: Json = {"token": MARK, "logprob": -0.25, "bytes": list(MARK.encode())}
URL = f"https://a.example/{MARK}"
SPAN = {"start_index": 0, "end_index": 8}
COUNTS: list[Json] = [{"modality": "AUDIO", "tokenCount": NUMBER}]
_CHOICE: Path = ("choices", 0)
_MESSAGE: Path = (*_CHOICE, "message")
_USAGE: Path = ("usage",)
_PROMPT, _COMPLETION = (("usage", f"{name}_tokens_details") for name in ("prompt", "completion"))
_INPUT, _OUTPUT = (("usage", f"{name}_tokens_details") for name in ("input", "output"))
_CANDIDATE: Path = ("candidates", 0)
_PARTS: Path = (*_CANDIDATE, "content", "parts")
_GROUNDING: Path = (*_CANDIDATE, "groundingMetadata")
_CONTENT: Path = ("output", 1, "content", 0)
_CALLER = {"type": "code_execution_20260120", "tool_id": MARK}
_RATING = {"category": MARK, "probability": "LOW", "blocked": False}


def _result(kind: str, **content: Any) -> Json:
    """A block with the result of a server tool."""
    return {"type": f"{kind}_tool_result", "tool_use_id": "srvtoolu_1", "content": content}


def _item(kind: str, **keys: Any) -> Json:
    """An item of the output."""
    return {"type": kind, "id": f"{kind}_1", "status": "completed", **keys}


_MESSAGES_BLOCKS: list[Json] = [
    {"type": "redacted_thinking", "data": MARK},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": MARK}},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}, "caller": _CALLER},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": URL, "title": "t", "encrypted_content": "e"}],
    },
    _result("web_search", type="web_search_tool_result_error", error_code=MARK),
    _result("web_fetch", type="web_fetch_result", url=URL, content={"type": "document", "source": {"data": "d"}}),
    _result("code_execution", type="code_execution_result", stdout=MARK, stderr="", return_code=0, content=[]),
    _result("code_execution", type="encrypted_code_execution_result", encrypted_stdout=MARK),
    _result("bash_code_execution", type="bash_code_execution_result", stdout=MARK),
    _result("text_editor_code_execution", type="text_editor_code_execution_view_result", content=MARK),
    _result("tool_search", type="tool_search_tool_search_result", tool_references=[{"tool_name": MARK}]),
    _result("advisor", type="advisor_result", text=MARK),
    {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "n", "server_name": MARK, "input": {}},
    {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": [{"type": "text", "text": MARK}]},
    {"type": "mcp_tool_listing", "mcp_server_name": MARK, "tools": []},
    {"type": "container_upload", "file_id": MARK},
    {"type": "compaction", "content": MARK, "encrypted_content": None},
    {"type": "compaction", "content": None, "encrypted_content": MARK},
    {"type": "tool_addition", "tool": {"type": "tool_reference", "name": MARK}},
    {"type": "tool_removal", "tool": {"type": "tool_reference", "name": MARK}},
    {"type": "fallback", "from": {"model": MARK}, "to": {"model": "m"}, "trigger": {"type": "refusal"}},
    {"type": "new_kind_of_block", "data": MARK},
]
_MESSAGES_CITATIONS: list[Json] = [
    {"type": "web_search_result_location", "url": URL, "title": "t", "cited_text": "c", "encrypted_index": "e"},
    {"type": "web_search_result_location", "url": "https://b", "title": MARK, "cited_text": "", "encrypted_index": ""},
    {"type": "web_search_result_location", "url": "https://b", "title": "t", "cited_text": MARK},
    {"type": "web_search_result_location", "url": "https://b", "title": "t", "encrypted_index": MARK},
    {"type": "char_location", "document_index": 0, "document_title": MARK, "cited_text": "c", "start_char_index": 0},
    {"type": "char_location", "document_index": 0, "document_title": "d", "cited_text": "c", "file_id": MARK},
    {"type": "char_location", "document_index": 0, "document_title": None, "cited_text": MARK},
    {"type": "page_location", "document_index": 0, "document_title": "d", "start_page_number": NUMBER},
    {"type": "content_block_location", "document_index": 0, "document_title": "d", "end_block_index": NUMBER},
    {"type": "search_result_location", "source": MARK, "title": None, "cited_text": "c", "search_result_index": 0},
]
_GEMINI_PARTS: list[Json] = [
    {"executableCode": {"language": "PYTHON", "code": MARK}},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": MARK}},
    {"toolCall": {"id": "t1", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": [MARK]}}},
    {"toolResponse": {"id": "t1", "toolType": "GOOGLE_SEARCH_WEB", "response": {"a": MARK}}},
    {"functionResponse": {"name": "f", "response": {"a": MARK}}},
    {"audioTranscription": {"text": MARK}},
    {"inlineData": {"mimeType": "image/png", "data": PNG, "displayName": MARK}},
    {"inlineData": {"mimeType": "image/png", "data": PNG}, "thoughtSignature": MARK},
    {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}, "audioTranscription": {"text": MARK}},
    {"fileData": {"mimeType": "video/mp4", "fileUri": URL}},
    {"text": "", "thoughtSignature": MARK},
    {"newKindOfPart": {"a": MARK}},
]
_RESPONSES_ITEMS: list[Json] = [
    _item("web_search_call", action={"type": "search", "query": MARK}),
    _item("web_search_call", action={"type": "search", "query": "q", "sources": [{"type": "url", "url": URL}]}),
    _item("web_search_call", action={"type": "open_page", "url": URL}),
    _item("web_search_call", action={"type": "find_in_page", "url": "https://b", "pattern": MARK}),
    _item("file_search_call", queries=[MARK], results=None),
    _item("file_search_call", queries=["q"], results=[{"file_id": "f", "text": MARK}]),
    _item("code_interpreter_call", code=MARK, container_id="c", outputs=None),
    _item("code_interpreter_call", code="1", container_id="c", outputs=[{"type": "logs", "logs": MARK}]),
    _item("computer_call", call_id="c9", action={"type": "type", "text": MARK}, pending_safety_checks=[]),
    _item("computer_call_output", call_id="c9", output={"type": "computer_screenshot", "image_url": URL}),
    _item("local_shell_call", call_id="c9", action={"type": "exec", "command": [MARK], "env": {}}),
    _item("local_shell_call_output", output=MARK),
    _item("shell_call", call_id="c9", action={"commands": [MARK]}),
    _item("shell_call", call_id="c9", action={"commands": ["ls"]}, environment={"container_id": MARK}),
    _item("shell_call_output", call_id="c9", output=[{"stdout": MARK, "stderr": ""}]),
    _item("apply_patch_call", call_id="c9", operation={"type": "delete_file", "path": MARK}),
    _item("apply_patch_call_output", call_id="c9", output=MARK),
    _item("mcp_call", name="n", server_label=MARK, arguments="{}", output="o"),
    _item("mcp_call", name="n", server_label="s", arguments="{}", output=MARK),
    _item("mcp_call", name="n", server_label="s", arguments="{}", error={"type": MARK}),
    _item("mcp_list_tools", server_label="s", tools=[{"name": MARK, "input_schema": {}}]),
    _item("mcp_approval_request", name=MARK, server_label="s", arguments="{}"),
    _item("image_generation_call", result=PNG, revised_prompt=MARK),
    _item("image_generation_call", result=None, error={"type": "t", "message": MARK}),
    _item("image_generation_call", result=PNG, svg_usage={"model": MARK}),
    _item("compaction", encrypted_content=MARK),
    _item("program", call_id="c9", code=MARK, fingerprint="f"),
    _item("program_output", call_id="c9", result=MARK),
    _item("tool_search_call", execution="server", arguments={"query": MARK}),
    _item("tool_search_output", execution="server", tools=[{"type": "function", "name": MARK}]),
    _item("function_call_output", call_id="c9", output=MARK),
    _item("additional_tools", role="developer", tools=[{"type": "function", "name": MARK}]),
    _item("new_kind_of_item", data=MARK),
    _item("message", role="assistant", content=[{"type": "output_text", "text": MARK, "annotations": []}]),
    _item("message", role="assistant", content=[{"type": "new_kind_of_part", "data": MARK}]),
    _item("reasoning", summary=[{"type": "summary_text", "text": MARK}]),
    _item("reasoning", summary=[], content=[{"type": "reasoning_text", "text": MARK}]),
    _item("reasoning", summary=[], encrypted_content=MARK),
    _item("custom_tool_call", call_id="call_2b", name="run", input=MARK),
    _item("custom_tool_call", call_id=MARK, name="run", input="x"),
    _item("function_call", call_id="call_2b", name="news", arguments="{}", namespace=MARK),
    _item("function_call", call_id="call_2b", name="news", arguments="{}", caller={"type": "direct", "x": MARK}),
]
_RESPONSES_ANNOTATIONS: list[Json] = [
    {"type": "url_citation", **SPAN, "title": "t", "url": URL},
    {"type": "url_citation", **SPAN, "title": MARK, "url": "https://b"},
    {"type": "file_citation", "file_id": MARK, "filename": "a.txt", "index": 3},
    {"type": "file_citation", "file_id": "f", "filename": MARK, "index": 3},
    {"type": "container_file_citation", **SPAN, "container_id": MARK, "file_id": "f", "filename": "a.txt"},
    {"type": "file_path", "file_id": MARK, "index": 3},
]

FIELDS: dict[str, list[tuple[Path, Any]]] = {
    CHAT: [
        (("service_tier",), MARK),
        (("system_fingerprint",), MARK),
        (("moderation",), {"output": {"type": "error", "code": MARK, "message": "m"}}),
        (("metadata",), {"run": MARK}),
        ((*_CHOICE, "logprobs"), {"content": [{**TOKEN, "top_logprobs": [TOKEN]}], "refusal": None}),
        ((*_CHOICE, "logprobs"), {"content": None, "refusal": [{**TOKEN, "top_logprobs": []}]}),
        ((*_CHOICE, "finish_reason"), "length"),
        ((*_CHOICE, "finish_reason"), "content_filter"),
        ((*_CHOICE, "finish_reason"), MARK),
        ((*_MESSAGE, "content"), MARK),
        ((*_MESSAGE, "refusal"), MARK),
        ((*_MESSAGE, "reasoning_content"), MARK),
        ((*_MESSAGE, "reasoning_details"), [{"type": "reasoning.encrypted", "data": MARK, "index": 0}]),
        ((*_MESSAGE, "reasoning_details"), [{"type": "reasoning.text", "text": THOUGHT, "signature": MARK}]),
        (
            (*_MESSAGE, "annotations"),
            [{"type": "url_citation", "url_citation": {**SPAN, "title": "t", "url": URL}}],
        ),
        (
            (*_MESSAGE, "annotations"),
            [{"type": "url_citation", "url_citation": {**SPAN, "title": MARK, "url": "https://b"}}],
        ),
        ((*_MESSAGE, "annotations"), [{"type": "file", "file": {"name": MARK, "hash": "h"}}]),
        ((*_MESSAGE, "annotations"), [{"type": "new_kind_of_annotation", "data": MARK}]),
        ((*_MESSAGE, "audio"), {"id": MARK, "data": "UklGRg==", "expires_at": 9, "transcript": "Hi."}),
        ((*_MESSAGE, "audio"), {"id": "a1", "data": "UklGRg==", "expires_at": 9, "transcript": MARK}),
        ((*_MESSAGE, "audio"), {"id": "a1", "data": "UklGRg==", "expires_at": NUMBER, "transcript": "Hi."}),
        ((*_MESSAGE, "audio"), {"id": MARK, "data": "", "expires_at": 9, "transcript": "Hi."}),
        ((*_MESSAGE, "images"), [{"type": "image_url", "image_url": {"url": URL}}]),
        ((*_MESSAGE, "tool_calls", 0, "id"), MARK),
        ((*_MESSAGE, "tool_calls", 0, "function", "name"), MARK),
        ((*_MESSAGE, "tool_calls", 0, "extra_content"), {"google": {"thought_signature": MARK}}),
        (
            (*_MESSAGE, "tool_calls", 1),
            {"id": "call_2b", "type": "custom", "custom": {"name": "run", "input": MARK}},
        ),
        ((*_MESSAGE, "tool_calls", 1), {"id": MARK, "type": "new_kind", "new_kind": {"name": "n"}}),
        (_MESSAGE, {"tool_calls": None, "function_call": {"name": MARK, "arguments": "{}"}}),
        ((*_MESSAGE, "content"), [{"type": "text", "text": TEXT}, {"type": "reference", "reference_ids": [MARK]}]),
        (("choices", 1), {"index": 1, "message": {"role": "assistant", "content": MARK}, "finish_reason": "stop"}),
        ((*_PROMPT, "cached_tokens"), 11),
        ((*_PROMPT, "cache_write_tokens"), 11),
        ((*_COMPLETION, "reasoning_tokens"), 7),
        *(((*_PROMPT, f"{kind}_tokens"), NUMBER) for kind in ("audio", "image", "text")),
        *(
            ((*_COMPLETION, f"{kind}_tokens"), NUMBER)
            for kind in ("accepted_prediction", "audio", "rejected_prediction", "text")
        ),
        ((*_USAGE, "cost"), 0.0987),
    ],
    MESSAGES: [
        (("stop_reason",), "max_tokens"),
        (("stop_reason",), "model_context_window_exceeded"),
        (("stop_reason",), "refusal"),
        (("stop_reason",), "pause_turn"),
        (("stop_reason",), "compaction"),
        (("stop_reason",), MARK),
        (("stop_sequence",), MARK),
        (("stop_details",), {"type": "refusal", "category": "cyber", "explanation": MARK}),
        (("container",), {"id": MARK, "expires_at": "2026-11-28T00:00:00Z"}),
        (("context_management",), {"applied_edits": [{"type": MARK, "cleared_input_tokens": 5}]}),
        (("diagnostics",), {"cache_miss_reason": {"type": MARK}}),
        (("input_transformations",), [{"type": MARK, "path": "p"}]),
        *((("content", 3), block) for block in _MESSAGES_BLOCKS),
        *((("content", 1, "citations"), [citation]) for citation in _MESSAGES_CITATIONS),
        (("content", 0, "signature"), MARK),
        (("content", 0, "thinking"), MARK),
        (("content", 1, "text"), MARK),
        (("content", 2, "id"), MARK),
        (("content", 2, "name"), MARK),
        (("content", 2, "input"), {"city": MARK}),
        (("content", 2, "caller"), _CALLER),
        (("content", 2, "toolset_name"), MARK),
        ((*_USAGE, "cache_creation_input_tokens"), 11),
        ((*_USAGE, "cache_read_input_tokens"), 11),
        ((*_USAGE, "cache_creation"), {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": NUMBER}),
        ((*_USAGE, "output_tokens_details", "thinking_tokens"), 7),
        ((*_USAGE, "server_tool_use"), {"web_search_requests": NUMBER, "web_fetch_requests": 0}),
        ((*_USAGE, "service_tier"), MARK),
        ((*_USAGE, "inference_geo"), MARK),
        ((*_USAGE, "speed"), MARK),
        ((*_USAGE, "fallback_credit"), {"status": {"type": MARK}}),
        ((*_USAGE, "iterations"), [{"type": "message", "input_tokens": 5, "output_tokens": NUMBER}]),
    ],
    GEMINI: [
        *(((*_CANDIDATE, "finishReason"), word) for word in ("MAX_TOKENS", "SAFETY", "RECITATION", "LANGUAGE")),
        ((*_CANDIDATE, "finishReason"), "MARKED_REASON"),
        ((*_CANDIDATE, "finishMessage"), MARK),
        ((*_CANDIDATE, "safetyRatings"), [_RATING]),
        ((*_CANDIDATE, "citationMetadata"), {"citations": [{"startIndex": 0, "endIndex": 8, "uri": URL}]}),
        ((*_CANDIDATE, "citationMetadata"), {"citations": [{"uri": "https://b", "license": MARK}]}),
        ((*_CANDIDATE, "tokenCount"), NUMBER),
        ((*_CANDIDATE, "avgLogprobs"), -0.0987),
        ((*_CANDIDATE, "continuationToken"), MARK),
        (
            (*_CANDIDATE, "logprobsResult"),
            {"chosenCandidates": [{"token": MARK, "logProbability": -0.25}], "topCandidates": []},
        ),
        (
            (*_CANDIDATE, "logprobsResult"),
            {"chosenCandidates": [{"token": "It", "tokenId": NUMBER, "logProbability": -0.25}], "topCandidates": []},
        ),
        ((*_CANDIDATE, "logprobsResult"), {"logProbabilitySum": -0.0987}),
        ((*_CANDIDATE, "urlContextMetadata"), {"urlMetadata": [{"retrievedUrl": URL}]}),
        (_GROUNDING, {"webSearchQueries": [MARK]}),
        (_GROUNDING, {"searchEntryPoint": {"renderedContent": MARK}}),
        (_GROUNDING, {"retrievalMetadata": {"googleSearchDynamicRetrievalScore": 0.0987}}),
        (_GROUNDING, {"groundingChunks": [{"web": {"uri": URL, "title": "t"}}]}),
        (_GROUNDING, {"groundingChunks": [{"web": {"uri": "https://b", "title": MARK}}]}),
        (_GROUNDING, {"groundingChunks": [{"web": {"uri": "https://b", "title": "t", "domain": MARK}}]}),
        (_GROUNDING, {"groundingChunks": [{"maps": {"uri": URL, "title": "t", "placeId": "p"}}]}),
        (_GROUNDING, {"groundingChunks": [{"maps": {"uri": "https://b", "title": "t", "placeId": MARK}}]}),
        (_GROUNDING, {"groundingChunks": [{"retrievedContext": {"title": MARK, "text": "x"}}]}),
        (_GROUNDING, {"groundingChunks": [{"retrievedContext": {"title": "t", "text": MARK}}]}),
        (_GROUNDING, {"groundingChunks": [{"image": {"sourceUri": URL, "imageUri": "https://b"}}]}),
        (
            _GROUNDING,
            {
                "groundingChunks": [{"web": {"uri": "https://b", "title": "t"}}],
                "groundingSupports": [
                    {
                        "segment": {"endIndex": 8, "text": TEXT[:8]},
                        "groundingChunkIndices": [0],
                        "confidenceScores": [0.0987],
                    }
                ],
            },
        ),
        *(((*_PARTS, 3), part) for part in _GEMINI_PARTS),
        ((*_PARTS, 0, "text"), MARK),
        ((*_PARTS, 1, "text"), MARK),
        *(((*_PARTS, number, "thoughtSignature"), MARK) for number in range(3)),
        *(((*_PARTS, number, "partMetadata"), {"a": MARK}) for number in range(3)),
        ((*_PARTS, 2, "functionCall", "id"), MARK),
        ((*_PARTS, 2, "functionCall", "name"), MARK),
        (("candidates", 1), {"index": 1, "content": {"parts": [{"text": MARK}]}, "finishReason": "STOP"}),
        (("modelStatus",), {"message": MARK}),
        (("promptFeedback",), {"safetyRatings": [_RATING]}),
        (("promptFeedback",), {"blockReason": "SAFETY", "blockReasonMessage": MARK}),
        (("promptFeedback",), {"blockReason": "MARKED_REASON"}),
        *(
            (("usageMetadata", f"{name}TokensDetails"), COUNTS)
            for name in ("prompt", "cache", "candidates", "toolUsePrompt")
        ),
        (("usageMetadata", "trafficType"), MARK),
        (("usageMetadata", "thoughtsTokenCount"), 2),
        (("usageMetadata", "cachedContentTokenCount"), 11),
    ],
    RESPONSES: [
        *(
            ((name,), {"a": MARK})
            for name in (
                *("access_programs", "conversation", "image", "moderation", "prompt", "prompt_cache_diagnostics"),
                *("prompt_cache_options", "tool_usage"),
            )
        ),
        (("input_transformations",), [{"type": MARK}]),
        (("prompt_cache_retention",), MARK),
        (("service_tier",), MARK),
        (("incomplete_details",), {"reason": "max_output_tokens"}),
        (("incomplete_details",), {"reason": "content_filter"}),
        (("incomplete_details",), {"reason": MARK}),
        *((("output", 3), item) for item in _RESPONSES_ITEMS),
        *(((*_CONTENT, "annotations"), [annotation]) for annotation in _RESPONSES_ANNOTATIONS),
        ((*_CONTENT, "annotations"), [{"type": "new_kind_of_annotation", "data": MARK}]),
        ((*_CONTENT, "logprobs"), [{**TOKEN, "top_logprobs": [TOKEN]}]),
        ((*_CONTENT, "text"), MARK),
        (_CONTENT, {"type": "refusal", "refusal": MARK}),
        (("output", 1, "content", 1), {"type": "refusal", "refusal": MARK}),
        (("output", 1, "content", 1), {"type": "output_text", "text": MARK, "annotations": []}),
        (("output", 1, "content", 1), {"type": "new_kind_of_part", "data": MARK}),
        (("output", 1, "phase"), MARK),
        (("output", 0, "encrypted_content"), MARK),
        (("output", 0, "summary", 1), {"type": "summary_text", "text": MARK}),
        (("output", 0, "content"), [{"type": "reasoning_text", "text": MARK}]),
        (("output", 2, "call_id"), MARK),
        (("output", 2, "name"), MARK),
        (("output", 2, "namespace"), MARK),
        (("output", 2, "caller"), {"type": "program", "caller_id": MARK}),
        ((*_INPUT, "cached_tokens"), 11),
        ((*_INPUT, "cache_write_tokens"), 11),
        ((*_INPUT, "cache_write_tokens_details"), {"ephemeral": NUMBER}),
        ((*_OUTPUT, "reasoning_tokens"), 7),
    ],
}
"""The documented fields of each wire's replies with a value: their place in the reply above."""
