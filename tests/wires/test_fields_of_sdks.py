"""The tables of fields have a row for each field and block type that the vendors' own SDKs know."""

from __future__ import annotations

import types as builtin_types
import typing
from collections.abc import Iterator
from typing import Any, Literal

import anthropic.types as messages
import anthropic.types.beta as messages_beta
import openai.types as openai
import openai.types.chat as chat
import openai.types.responses as responses
import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsBase as BetaCreateParams
from anthropic.types.message_create_params import MessageCreateParamsBase
from google.genai import types as gemini
from openai.types.chat import chat_completion, chat_completion_chunk
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from openai.types.shared_params import FunctionDefinition, Reasoning, ResponseFormatJSONSchema

from cnllm import Registry
from cnllm.protocols import PROTOCOLS, fields
from cnllm.protocols.fields import Field, snake_case
from docs.generate.reply_fields import REPLIES

KEYS: list[tuple[str, str, str, Any]] = [
    ("openai-chat", "request", "", CompletionCreateParamsStreaming),
    ("openai-chat", "request", "stream_options", chat.ChatCompletionStreamOptionsParam),
    ("openai-chat", "request", "tools[].function", FunctionDefinition),
    ("openai-chat", "request", "messages[]", chat.ChatCompletionMessageParam),
    ("openai-chat", "reply", "", chat.ChatCompletion | chat.ChatCompletionChunk),
    ("openai-chat", "reply", "choices[]", chat_completion.Choice | chat_completion_chunk.Choice),
    ("openai-chat", "reply", "choices[].message", chat.ChatCompletionMessage | chat_completion_chunk.ChoiceDelta),
    ("openai-chat", "reply", "usage", openai.CompletionUsage),
    ("openai-chat", "reply", "usage.prompt_tokens_details", openai.completion_usage.PromptTokensDetails),
    ("openai-chat", "reply", "usage.completion_tokens_details", openai.completion_usage.CompletionTokensDetails),
    ("openai-responses", "request", "", ResponseCreateParamsBase),
    ("openai-responses", "request", "reasoning", Reasoning),
    ("openai-responses", "request", "text", responses.ResponseTextConfigParam),
    ("openai-responses", "reply", "", responses.Response),
    ("openai-responses", "reply", "usage", responses.ResponseUsage),
    ("openai-responses", "reply", "usage.input_tokens_details", responses.response_usage.InputTokensDetails),
    ("openai-responses", "reply", "usage.output_tokens_details", responses.response_usage.OutputTokensDetails),
    ("anthropic-messages", "request", "", MessageCreateParamsBase | BetaCreateParams),
    ("anthropic-messages", "request", "messages[]", messages.MessageParam | messages_beta.BetaMessageParam),
    (
        "anthropic-messages",
        "request",
        "output_config",
        messages.OutputConfigParam | messages_beta.BetaOutputConfigParam,
    ),
    ("anthropic-messages", "reply", "", messages.Message | messages_beta.BetaMessage),
    ("anthropic-messages", "reply", "usage", messages.Usage | messages_beta.BetaUsage),
    ("gemini", "request", "generationConfig", gemini.GenerationConfig),
    ("gemini", "request", "generationConfig.thinkingConfig", gemini.ThinkingConfig),
    ("gemini", "request", "toolConfig", gemini.ToolConfig),
    ("gemini", "request", "toolConfig.functionCallingConfig", gemini.FunctionCallingConfig),
    ("gemini", "request", "tools[]", gemini.Tool),
    ("gemini", "request", "tools[].functionDeclarations[]", gemini.FunctionDeclaration),
    ("gemini", "request", "contents[]", gemini.Content),
    ("gemini", "request", "contents[].parts[]", gemini.Part),
    ("gemini", "request", "contents[].parts[].functionCall", gemini.FunctionCall),
    ("gemini", "request", "contents[].parts[].functionResponse", gemini.FunctionResponse),
    ("gemini", "reply", "", gemini.GenerateContentResponse),
    ("gemini", "reply", "candidates[]", gemini.Candidate),
    ("gemini", "reply", "candidates[].content.parts[]", gemini.Part),
    ("gemini", "reply", "usageMetadata", gemini.GenerateContentResponseUsageMetadata),
]
"""Objects whose keys are rows: protocol, direction, place, and the type of the SDK."""

BLOCKS: list[tuple[str, str, str, Any]] = [
    ("openai-chat", "request", "messages[].content[]", chat.ChatCompletionContentPartParam),
    ("openai-chat", "request", "messages[].content[]", chat.ChatCompletionContentPartRefusalParam),
    ("openai-chat", "request", "messages[].tool_calls[]", chat.ChatCompletionMessageToolCallUnionParam),
    ("openai-chat", "request", "tools[]", chat.ChatCompletionToolUnionParam),
    ("openai-chat", "request", "tool_choice", chat.ChatCompletionToolChoiceOptionParam),
    ("openai-chat", "request", "response_format", ResponseFormatJSONSchema),
    ("openai-responses", "request", "input[]", responses.ResponseInputItemParam),
    ("openai-responses", "request", "input[].content[]", responses.ResponseInputContentParam),
    ("openai-responses", "request", "input[].content[]", responses.ResponseOutputTextParam),
    ("openai-responses", "request", "input[].content[]", responses.ResponseOutputRefusalParam),
    ("openai-responses", "request", "tools[]", responses.ToolParam),
    ("openai-responses", "request", "tool_choice", responses.response_create_params.ToolChoice),
    ("openai-responses", "request", "text.format", responses.ResponseFormatTextConfigParam),
    ("openai-responses", "reply", "output[]", responses.ResponseOutputItem),
    ("openai-responses", "reply", "output[].content[]", responses.ResponseOutputText),
    ("openai-responses", "reply", "output[].content[]", responses.ResponseOutputRefusal),
    ("openai-responses", "reply", "events", responses.ResponseStreamEvent),
    ("anthropic-messages", "request", "messages[].content[]", messages.ContentBlockParam),
    ("anthropic-messages", "request", "messages[].content[]", messages_beta.BetaContentBlockParam),
    ("anthropic-messages", "request", "messages[].content[].content[]", messages.tool_result_block_param.Content),
    ("anthropic-messages", "request", "tools[]", messages.ToolUnionParam),
    ("anthropic-messages", "request", "tools[]", messages_beta.BetaToolUnionParam),
    ("anthropic-messages", "request", "tool_choice", messages.ToolChoiceParam),
    ("anthropic-messages", "reply", "content[]", messages.ContentBlock),
    ("anthropic-messages", "reply", "content[]", messages_beta.BetaContentBlock),
    ("anthropic-messages", "reply", "delta", messages.RawContentBlockDelta),
    ("anthropic-messages", "reply", "delta", messages_beta.BetaRawContentBlockDelta),
]
"""Unions of blocks, each with its type."""

NOT_ON_THE_WIRE = {"sdkHttpResponse", "automaticFunctionCallingHistory", "parsed"}
"""What an SDK adds to an answer."""
OF_THE_BODY = {
    "system_instruction",
    "safety_settings",
    "tools",
    "tool_config",
    "labels",
    "cached_content",
    "service_tier",
    "store",
    "continuation_token",
    "model_armor_config",
}
"""Keys of google-genai's configuration that stand in the body; the others stand in its `generationConfig`."""


def members(type_: Any) -> Iterator[Any]:
    """The types of a union, without wrappers."""
    origin = typing.get_origin(type_)
    if origin in (typing.Union, builtin_types.UnionType):
        for member in typing.get_args(type_):
            yield from members(member)
    elif origin is not None and origin is not Literal:
        yield from members(typing.get_args(type_)[0])
    elif type_ is not type(None):
        yield type_


def hints(type_: Any) -> dict[str, Any]:
    """The fields of a TypedDict or of a pydantic model, by their names on the wire."""
    if models := getattr(type_, "model_fields", None):
        return {field.alias or name: field.annotation for name, field in models.items()}
    return typing.get_type_hints(type_) if hasattr(type_, "__total__") else {}  # a TypedDict of either module


def words(type_: Any) -> Iterator[str]:
    """The texts that a literal allows."""
    for member in members(type_):
        if typing.get_origin(member) is Literal:
            yield from (word for word in typing.get_args(member) if isinstance(word, str))


def rows_of(protocol: str, direction: str) -> dict[str, dict[str, Field]]:
    return fields(protocol).request if direction == "request" else REPLIES[protocol]


def has_row(rows: dict[str, Field], *names: str) -> bool:
    """Whether a name has a row, in whatever spelling the protocol has."""
    return any(name in rows for name in names) or any(snake_case(row) in names for row in rows)


@pytest.mark.parametrize(("protocol", "direction", "place", "type_"), KEYS, ids=[f"{k[0]} {k[1]} {k[2]}" for k in KEYS])
def test_each_key_has_a_row(protocol: str, direction: str, place: str, type_: Any) -> None:
    rows = rows_of(protocol, direction)[place]
    names = {name for member in members(type_) for name in hints(member)} - NOT_ON_THE_WIRE
    assert names, "the SDK has no such type any more"
    assert sorted(name for name in names if not has_row(rows, name)) == []


@pytest.mark.parametrize(
    ("protocol", "direction", "place", "type_"), BLOCKS, ids=[f"{b[0]} {b[1]} {b[2]} {n}" for n, b in enumerate(BLOCKS)]
)
def test_each_block_has_a_row_and_so_has_each_key_of_one_that_is_translated(
    protocol: str, direction: str, place: str, type_: Any
) -> None:
    rows = rows_of(protocol, direction)[place]
    missing = []
    found = 0
    for member in members(type_):
        keys = hints(member)
        for kind in words(keys.pop("type", None)):
            found += 1
            if kind not in rows:
                missing.append(kind)
            elif rows[kind].outcome in ("translate", "media") and place != "events":
                missing += [f"{kind}.{key}" for key in keys if not has_row(rows, f"{kind}.{key}", f"*.{key}")]
    assert found, "the SDK has no such type any more"
    assert missing == []


def test_each_setting_of_gemini_has_a_row() -> None:
    table = fields("gemini").request
    of_sdk = {"http_options", "should_return_http_response", "automatic_function_calling", "automatic_continuation"}
    renamed = {"model_selection_config": "model_config", "generation_output_config": "output_config"}
    for name in gemini.GenerateContentConfig.model_fields.keys() - of_sdk:
        place = "" if name in OF_THE_BODY or name == "generation_output_config" else "generationConfig"
        assert has_row(table[place], renamed.get(name, name)), name


ENDS: list[tuple[str, Any]] = [
    ("openai-chat", chat_completion.Choice.model_fields["finish_reason"].annotation),
    ("anthropic-messages", messages.StopReason | messages_beta.BetaStopReason),
    ("gemini", Literal[tuple(word.value for word in gemini.FinishReason)]),
]
"""The types of the words with which an endpoint ends a reply. A reason of Responses stays as it is."""


@pytest.mark.parametrize(("protocol", "type_"), ENDS, ids=[protocol for protocol, _ in ENDS])
def test_the_registry_knows_each_word_at_the_end_of_a_reply(protocol: str, type_: Any) -> None:
    model = Registry.load().resolve("openai-compatible/m", protocol=protocol, base_url="http://127.0.0.1:9")
    found = set(words(type_))
    assert found, "the SDK has no such type any more"
    assert sorted(found - set(model.flags.finish or ())) == []


def test_no_row_stands_for_nothing() -> None:
    for protocol in PROTOCOLS:
        for places in (fields(protocol).request, REPLIES[protocol]):
            for rows in places.values():
                for name in rows:
                    kind, _, key = name.partition(".")
                    assert not key or kind == "*" or kind in rows or "events" in places, name
