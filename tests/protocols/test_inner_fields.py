"""The rows of places inside messages and tools tell the truth: a request with each field is built for each wire."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from cnllm import engine
from cnllm.protocols import PROTOCOLS, fields
from cnllm.protocols.fields import Field, snake_case

from .clients import CHAT, GEMINI, MESSAGES, PATHS, PNG, RESPONSES, endpoint

Json = dict[str, Any]
MARK = "marked-value"
SCHEMA: Json = {"type": "object", "properties": {}}
TEXT = {"type": "text", "text": "Hi"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
DOCUMENT = {"type": "document", "title": "t", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}
FOUND = {"type": "search_result", "source": "https://a.example", "title": "t", "content": [TEXT]}
URL = f"data:image/png;base64,{PNG}"
CALL: dict[str, Json] = {
    CHAT: {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
    MESSAGES: {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
    GEMINI: {"functionCall": {"id": "c1", "name": "f", "args": {}}},
    RESPONSES: {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
}
"""A call, by wire."""


def chat(*messages: Json, **keys: Any) -> Json:
    return {"messages": [*messages, {"role": "user", "content": "Go on."}], **keys}


def called(block: Json) -> Json:
    """A body of chat completions with a call and its result."""
    return chat({"role": "assistant", "content": "I look.", "tool_calls": [block]}, answer)


answer = {"role": "tool", "tool_call_id": "c1", "content": "done"}


def said(content: Json, role: str = "user") -> Json:
    """A body of Messages with a block of a role."""
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "done"}
    after = [{"role": "user", "content": [result] if content["type"] == "tool_use" else "Go on."}]
    first = [{"role": "user", "content": "Hi"}] if role == "assistant" else []
    return {"max_tokens": 9, "messages": [*first, {"role": role, "content": [TEXT, content]}, *after]}


def answered(block: Json) -> Json:
    """A body of Messages with a block in a result."""
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a"}, block]}
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [CALL[MESSAGES]]}]
    return {"max_tokens": 9, "messages": [*turns, {"role": "user", "content": [result]}]}


def items(*added: Json, **keys: Any) -> Json:
    return {"input": [*added, {"role": "user", "content": "Go on."}], **keys}


def parts(part: Json, role: str = "user") -> Json:
    """A body of Gemini with a part of a role."""
    first = [{"role": "user", "parts": [{"text": "Hi"}]}] if role == "model" else []
    return {"contents": [*first, {"role": role, "parts": [part]}, {"role": "user", "parts": [{"text": "Go on."}]}]}


def exchanged(call: Json, response: Json) -> Json:
    """A body of Gemini with a call and its result."""
    turns = [{"role": "user", "parts": [{"text": "Hi"}]}, {"role": "model", "parts": [call]}]
    return {"contents": [*turns, {"role": "user", "parts": [response]}]}


def _of(kind: str, blocks: dict[str, Json]) -> Json:
    """The block of a type; an empty one where there is none."""
    return blocks.get(kind, {})


def sample(protocol: str, place: str, kind: str) -> tuple[Json, Json] | None:
    """A body with an object at a place, and the object; None where no request has one of its own.

    `kind` is the type of a block, "" for objects without types.
    """
    block: Json
    body: Json
    match protocol, place, kind:
        case "openai-chat", "tools[]", "function":
            block = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
            body = chat(tools=[block])
        case "openai-chat", "tools[].function", _:
            block = {"name": "f", "parameters": SCHEMA}
            body = chat(tools=[{"type": "function", "function": block}])
        case "openai-chat", "tools[].custom", _:
            block = {"name": "f", "description": "d"}
            body = chat(tools=[{"type": "custom", "custom": block}])
        case "openai-chat", "messages[]", _:
            block = {"role": "user", "content": "Hi"}
            body = chat(block)
        case "openai-chat", "messages[].tool_calls[]", "function":
            block = copy.deepcopy(CALL[CHAT])
            body = called(block)
        case "openai-chat", "messages[].tool_calls[].function", _:
            call = copy.deepcopy(CALL[CHAT])
            block = call["function"]
            body = called(call)
        case "openai-chat", "messages[].tool_calls[].custom", _:
            block = {"name": "f", "input": "x"}
            body = called({"id": "c1", "type": "custom", "custom": block})
        case "openai-chat", "messages[].content[]", _:
            block = copy.deepcopy(
                _of(
                    kind,
                    {
                        "text": TEXT,
                        "image_url": {"type": "image_url", "image_url": {"url": URL}},
                        "input_audio": {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}},
                        "file": {
                            "type": "file",
                            "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGk="},
                        },
                        "refusal": {"type": "refusal", "refusal": "No."},
                    },
                )
            )
            body = chat({"role": "assistant" if kind == "refusal" else "user", "content": [TEXT, block]})
        case "openai-chat", "messages[].content[].image_url", _:
            block = {"url": URL}
            body = chat({"role": "user", "content": [{"type": "image_url", "image_url": block}]})
        case "anthropic-messages", "tools[]", "custom":
            block = {"name": "f", "input_schema": SCHEMA}
            body = {**said(TEXT), "tools": [block]}
        case "anthropic-messages", "system[]", "text":
            block = dict(TEXT)
            body = {**said(TEXT), "system": [block]}
        case "anthropic-messages", "messages[]", _:
            body = said(TEXT)
            block = body["messages"][0]
        case "anthropic-messages", "messages[].content[]", _:
            block = copy.deepcopy(
                _of(
                    kind,
                    {
                        "text": TEXT,
                        "thinking": {"type": "thinking", "thinking": "hm"},
                        "tool_use": CALL[MESSAGES],
                        "image": IMAGE,
                        "document": DOCUMENT,
                        "search_result": FOUND,
                    },
                )
            )
            if kind == "tool_result":
                body = answered(TEXT)
                block = body["messages"][-1]["content"][0]
            else:
                body = said(block, "assistant" if kind in ("thinking", "tool_use") else "user") if block else {}
        case "anthropic-messages", "messages[].content[].content[]", _:
            block = copy.deepcopy(
                _of(kind, {"text": TEXT, "image": IMAGE, "document": DOCUMENT, "search_result": FOUND})
            )
            body = answered(block)
        case "openai-responses", "tools[]", "function" | "custom":
            block = {"type": kind, "name": "f", **({"parameters": SCHEMA} if kind == "function" else {})}
            body = items(tools=[block])
        case "openai-responses", "tools[].tools[]", "function" | "custom":
            block = {"type": kind, "name": "f", **({"parameters": SCHEMA} if kind == "function" else {})}
            body = items(tools=[{"type": "namespace", "name": "n", "tools": [block]}])
        case "openai-responses", "input[].tools[]", "function" | "custom":
            block = {"type": kind, "name": "f", **({"parameters": SCHEMA} if kind == "function" else {})}
            body = items({"type": "additional_tools", "role": "developer", "tools": [block]})
        case "openai-responses", "input[]", _:
            outputs = {
                "function_call_output": "done",
                "custom_tool_call_output": "done",
                "apply_patch_call_output": "x",
            }
            pairs = {
                "function_call": CALL[RESPONSES],
                "custom_tool_call": {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": "x"},
                "shell_call": {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}},
                "apply_patch_call": {
                    "type": "apply_patch_call",
                    "call_id": "c1",
                    "operation": {"type": "delete_file", "path": "a"},
                },
            }
            reasoning = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}
            result: Any = [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
            if kind == "message":
                block = {"type": "message", "role": "user", "content": "Hi"}
                body = items(block)
            elif kind == "reasoning":
                block = reasoning
                body = items({"role": "user", "content": "Hi"}, block, {"role": "assistant", "content": "Hi"})
            elif kind in pairs:
                block = copy.deepcopy(pairs[kind])
                output = result if kind == "shell_call" else "done"
                body = items(block, {"type": f"{kind}_output", "call_id": "c1", "output": output})
            elif kind.removesuffix("_output") in pairs:
                block = {"type": kind, "call_id": "c1", "output": outputs.get(kind, result)}
                body = items(copy.deepcopy(pairs[kind.removesuffix("_output")]), block)
            else:
                return None
        case "openai-responses", "input[].content[]" | "input[].output[]", _:
            block = copy.deepcopy(
                _of(
                    kind,
                    {
                        "input_text": {"type": "input_text", "text": "Hi"},
                        "output_text": {"type": "output_text", "text": "Hi"},
                        "refusal": {"type": "refusal", "refusal": "No."},
                        "input_image": {"type": "input_image", "image_url": URL},
                        "input_audio": {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}},
                        "input_file": {
                            "type": "input_file",
                            "filename": "a.txt",
                            "file_data": "data:text/plain;base64,aGk=",
                        },
                    },
                )
            )
            if place == "input[].output[]":
                if kind in ("output_text", "refusal", "input_audio"):
                    return None  # no result has one
                body = items(CALL[RESPONSES], {"type": "function_call_output", "call_id": "c1", "output": [block]})
            else:
                role = "assistant" if kind in ("output_text", "refusal") else "user"
                body = items({"role": role, "content": [block]})
        case "gemini", "tools[].functionDeclarations[]", _:
            block = {"name": "f", "description": "d"}
            body = {**parts({"text": "Hi"}), "tools": [{"functionDeclarations": [block]}]}
        case "gemini", "contents[]" | "systemInstruction", _:
            block = {"role": "user", "parts": [{"text": "Hi"}]}
            body = {"contents": [block]} if place == "contents[]" else {**parts({"text": "Hi"}), place: block}
        case "gemini", "contents[].parts[]" | "systemInstruction.parts[]", _:
            block = {"text": "Hi"}
            body = parts(block)
            if place != "contents[].parts[]":
                body = {**parts({"text": "a"}), "systemInstruction": {"parts": [block]}}
        case "gemini", "contents[].parts[].inlineData", _:
            block = {"mimeType": "image/png", "data": PNG}
            body = parts({"inlineData": block})
        case "gemini", "contents[].parts[].fileData", _:
            block = {"mimeType": "image/png", "fileUri": "https://a.example/b.png"}
            body = parts({"fileData": block})
        case "gemini", "contents[].parts[].functionCall", _:
            block = copy.deepcopy(CALL[GEMINI]["functionCall"])
            body = exchanged({"functionCall": block}, {"functionResponse": {"name": "f", "response": {"a": 1}}})
        case "gemini", "contents[].parts[].functionResponse", _:
            block = {"id": "c1", "name": "f", "response": {"a": 1}}
            body = exchanged(CALL[GEMINI], {"functionResponse": block})
        case _:
            return None
    return (body, block) if block and body else None


SKIPPED = {"functionCall", "functionResponse", "audio"}
"""Keys with tests of their own."""
WITHOUT_AUTHOR = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse", "audioTranscription")


def cases(protocol: str) -> Iterator[tuple[str, str, str, Field]]:
    """Each row of a key inside messages and tools: its place, the type of the block, the key, and the row."""
    for place, rows in fields(protocol).request.items():
        kinds = {name.partition(".")[0] for name in rows if "." in name} - {"*"}
        for name, row in rows.items():
            first, _, key = name.rpartition(".")
            if not ("[]" in place or place == "systemInstruction") or (kinds and not first):
                continue
            others = sorted(kind for kind in kinds if f"{kind}.{key}" not in rows)
            for kind in others if first == "*" else [first]:
                yield place, kind, "unknown_key" if key == "*" else key, row


LEFT_OUT = ("key-foreign", "cache-mark")
"""The codes of notes that name a key."""
OF_MARKS = ("cache-mark", "tools-loaded", "media-dropped")
"""The codes of notes that need not name the key."""


NEW_FORMS = frozenset(["file-as-text", "media-moved"])
"""The codes of notes on content that an endpoint gets in a form without such keys."""


def spelled(key: str, text: str) -> bool:
    return key in text or snake_case(key) in text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_key_inside_messages_and_tools_has_the_outcome_of_its_row(protocol: str) -> None:
    count = 0
    for place, kind, key, row in cases(protocol):
        if row.outcome in ("translate", "media", "answer", "describe") or key in SKIPPED:
            continue
        if (made := sample(protocol, place, kind)) is None:
            continue
        body, block = made
        block[key] = MARK if row.outcome != "return" or key not in WITHOUT_AUTHOR else {"a": MARK}
        for target in PROTOCOLS:
            about = (protocol, place, kind, key, target)
            request = engine.decode_request(protocol, copy.deepcopy(body), path=PATHS.get(protocol, ""))
            plan = engine.build_request(endpoint(target), request.messages, **request.options)
            notes = [*request.notes, *plan.notes]
            is_sent = MARK in json.dumps(plan.body)
            named = [note for note in notes if spelled(key, note.said) or note.code in OF_MARKS]
            assert len([note for note in named if note.code in LEFT_OUT and " of a " not in note.said]) < 2, about
            assert is_sent or named or (row.outcome == "return" and len(notes) > 1), (*about, notes)
            if row.outcome == "forward" and is_sent:
                assert {note.code for note in named} <= {"media-dropped"}, (*about, notes)  # the mark is on the line
            if row.outcome in ("keep", "drop") and NEW_FORMS.isdisjoint(note.code for note in notes):
                stays = row.outcome == "keep" and target == protocol
                assert is_sent is stays, (*about, plan.body)
                assert bool(named) is not stays, (*about, notes)
            if row.outcome == "return":
                assert not is_sent or target == protocol, about
        if row.outcome == "return" and target != CHAT and not (protocol == CHAT and key == "unknown_key"):
            model = endpoint(protocol)
            request = engine.decode_request(protocol, copy.deepcopy(body), path=PATHS.get(protocol, ""), origin=model)
            assert MARK in json.dumps(engine.build_request(model, request.messages).body), (place, kind, key)
        count += 1
    assert count > 10


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


@pytest.mark.parametrize(
    ("protocol", "body", "key"),
    [
        (MESSAGES, said({**THOUGHT, "source": MARK}, "assistant"), "messages[].content[].source"),
        (
            RESPONSES,
            items({"role": "assistant", "content": [{"type": "output_text", "text": "Hi", "image_url": MARK}]}),
            "input[].content[].image_url",
        ),
    ],
    ids=[MESSAGES, RESPONSES],
)
def test_a_key_of_blocks_of_another_type_is_named_and_one_of_the_block_itself_is_not(
    protocol: str, body: Json, key: str
) -> None:
    request = engine.decode_request(protocol, body, path=PATHS.get(protocol, ""))
    plan = engine.build_request(endpoint(CHAT), request.messages, **request.options)
    assert [note.said for note in [*request.notes, *plan.notes] if note.code == "key-foreign"] == [key]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_place_says_what_becomes_of_any_other_key(protocol: str) -> None:
    for place, rows in fields(protocol).request.items():
        if place == "systemInstruction" or ("[]" in place and place != "tools[]"):
            assert any(name.endswith("*") for name in rows), place


@pytest.mark.parametrize("target", [CHAT, RESPONSES])
def test_a_key_of_a_picture_that_moves_with_it_has_no_note(target: str) -> None:
    picture = {"type": "input_image", "image_url": URL, "detail": "low"}
    output = [picture, {"type": "input_text", "text": "seen"}]
    body = items(CALL[RESPONSES], {"type": "function_call_output", "call_id": "c1", "output": output})
    request = engine.decode_request(RESPONSES, body)
    plan = engine.build_request(endpoint(target), request.messages, **request.options)
    assert '"detail": "low"' in json.dumps(plan.body)
    codes = [note.code for note in [*request.notes, *plan.notes]]
    assert "media-moved" in codes
    assert "key-foreign" not in codes


def test_a_note_names_the_part_of_a_setting_that_is_left_out() -> None:
    config = {"thinkingConfig": {"thinkingBudget": 2048}}
    body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "generationConfig": config}
    request = engine.decode_request(GEMINI, body, path=PATHS[GEMINI])
    plan = engine.build_request(endpoint(MESSAGES), request.messages, **request.options)
    assert plan.body["thinking"]["budget_tokens"] == 2048
    said = [note.said for note in plan.notes if note.code == "key-foreign"]
    assert said == ["generationConfig.thinkingConfig.includeThoughts"]
