"""Every recorded error becomes the right error, in the endpoint's own words.

EXPECTED was written by reading each body. `UNCLEAR` stands where the contract has no class of its own (an
unknown model or deployment, a call that the model itself got wrong): a plain EndpointError or a BadRequest,
and nothing that would send a caller elsewhere.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

import pytest
from cases import each

import cnllm
from cnllm import BadKey, BadRequest, ContentFiltered, ContextTooLong, EndpointError, QuotaExceeded

from .corpus import ABSENT, WIRE, Case, Exchange, cases, exchanges
from .oracle import frames, hear
from .reading import Outcome, delivered, random_pieces, read_stream, read_whole

UNCLEAR = (EndpointError, BadRequest)

EXPECTED: dict[str, tuple[type[EndpointError], ...]] = {
    "anthropic/*_invalid_api_key#0": (BadKey,),
    "anthropic/*-model_not_found_stream-*#[01]": UNCLEAR,
    "anthropic/*-claude_3_sonnet_20240229-object_streaming#0": UNCLEAR,
    "anthropic/*_is_rejected_for_tool_input#0": (BadRequest,),
    "azure/*-chat_reasoning#[123]": UNCLEAR,
    "azure/*_raises_appropriate_auth_error#0": (BadKey,),
    "chatgpt/*-nonstreaming_unauthorized_preserves_status_and_body#0": (BadKey,),
    "deepseek/*-deepseek_responses_rejects_interleaved_function_calls#0": (BadRequest,),
    "deepseek/*-blocking_video_part_reaches_the_wire#0": (BadRequest,),
    "deepseek/*-chat_completion_rejects_a_bogus_key_with_the_provider_body#0": (BadKey,),
    "deepseek/*-forced_tool_choice_under_thinking_is_rejected_upstream#[01]": (BadRequest,),
    "deepseek/*_handles_context_length_exceeded_errors#0": (ContextTooLong,),
    "doubleword/*-invalid_key_blocking#0": (BadKey,),
    "doubleword/*-unknown_model_blocking#0": UNCLEAR,
    "google/*-model_not_found-*#[01]": UNCLEAR,
    "google/*-model_name_suggestion-*#0": UNCLEAR,
    "groq/*-tool_use_failed_error_streaming_with_text#0": UNCLEAR,
    "groq/*llama_4_scout_17b_16e_instruct-object_basic#0": UNCLEAR,
    "groq/*llama_4_scout_17b_16e_instruct-object_streaming#0": UNCLEAR,
    "groq/*-auth_rejection_classifies_with_contract#0": (BadKey,),
    "llamacpp/*-missing_api_key_is_401#0": (BadKey,),
    "mistral/*raises_appropriate_auth_error#0": (BadKey,),
    "ollama/*_handles_context_length_exceeded_errors#0": (ContextTooLong,),
    "openai/*-agents_and_tools#2": UNCLEAR,
    "openai/*-auth_rejection_carries_identity#0": (BadKey,),
    "openai/*-model_call_with_tools#1": (BadRequest,),
    "openai/*-openai_responses_model_http_error#0": (BadRequest,),
    "openai/*-openai-error.1-stream#0": (QuotaExceeded,),
    "openai/reqllm-openai-gpt_5_chat_latest-multi_tool#0": UNCLEAR,
    # "Token limit reached" is the caller's own max_tokens: the prompt was not too long.
    "openrouter/*-openrouter_stream_error#0": UNCLEAR,
    "openrouter/*-x_ai_grok_3_mini-reasoning_basic#0": (ContentFiltered,),
    "openrouter/*_raises_appropriate_auth_error#0": (BadKey,),
    "xai/*-provider_error_classifies_with_contract_but_reports_no_id#0": UNCLEAR,
    "xai/*-grok_code_fast_1-reasoning_basic#0": (BadRequest,),
}
"""Exchange ids, as globs, and what their error may be."""

PASSED_ON = "Provider returned error"
"""What a gateway says when the sentence that matters is that of the endpoint behind it."""


def failed(exchange: Exchange) -> bool:
    return exchange.failed


def refused_at_once(exchange: Exchange) -> bool:
    return exchange.status >= 400


def broke_off(exchange: Exchange) -> bool:
    return exchange.failed and exchange.status == 200


def patterns(exchange: Exchange) -> list[str]:
    """Which expectations are about this exchange?"""
    return [pattern for pattern in EXPECTED if fnmatchcase(exchange.id, pattern)]


def error_object(exchange: Exchange) -> Any:
    """The error in an answer, as the endpoint sent it."""
    if exchange.status == 200:
        return hear(exchange.protocol, exchange.content).error
    return json.loads(exchange.body)


def sentences(exchange: Exchange) -> set[str]:
    """The endpoint's own sentence, as it may be given."""
    said = error_object(exchange)
    for key in ("error", "detail", "message"):
        if isinstance(said, dict) and key in said:
            said = said[key]
    assert isinstance(said, str)
    if said != PASSED_ON:
        return {said}
    behind = json.loads(error_object(exchange)["error"]["metadata"]["raw"])["error"]
    return {said, behind, f"{said}: {behind}"}


def check(exchange: Exchange, outcome: Outcome) -> None:
    """It is the right error, and it says what the endpoint said."""
    error = outcome.error
    assert isinstance(error, EndpointError)
    [pattern] = patterns(exchange)
    assert type(error) in EXPECTED[pattern], repr(error)
    assert error.message in sentences(exchange)
    inner = error_object(exchange)
    named = {inner.get("status_code"), inner.get("code")} if exchange.status == 200 else set()
    assert error.status in {exchange.status} | named
    assert not error.retryable


@pytest.mark.skipif(not WIRE.is_dir(), reason=ABSENT)
def test_every_recorded_error_has_one_expectation() -> None:
    found = [patterns(exchange) for exchange in exchanges() if exchange.failed]
    assert all(len(matches) == 1 for matches in found)
    assert {pattern for matches in found for pattern in matches} == set(EXPECTED)


@each("case", lambda: cases(refused_at_once))
def test_a_refusal_is_the_right_error(case: Case) -> None:
    outcome = read_whole(case.resolve(), case.exchange)
    check(case.exchange, outcome)
    assert outcome.reply is None or not outcome.reply.text


@each("case", lambda: cases(failed))
def test_a_stream_that_fails_is_the_right_error_however_its_bytes_arrive(case: Case) -> None:
    model, exchange = case.resolve(), case.exchange
    check(exchange, read_stream(model, exchange, [exchange.content]))
    check(exchange, read_stream(model, exchange, random_pieces(exchange.content, exchange.id)))
    check(exchange, read_stream(model, exchange, [bytes([byte]) for byte in exchange.content]))


@each("case", lambda: cases(broke_off))
def test_what_came_before_an_error_in_the_middle_is_kept(case: Case) -> None:
    exchange = case.exchange
    outcome = read_stream(case.resolve(), exchange, [exchange.content])
    heard = hear(exchange.protocol, exchange.content)
    assert isinstance(outcome.error, EndpointError)
    assert not isinstance(outcome.error, cnllm.EmptyReply)
    if outcome.reply is None:
        assert (heard.text, heard.reasoning, heard.calls) == ("", "", [])
        return
    assert outcome.reply.finish == "error"
    assert (outcome.reply.text, outcome.reply.reasoning) == (heard.text, heard.reasoning)
    assert delivered(outcome.events) == (heard.text, heard.reasoning)
    assert outcome.reply.tool_calls == []
    assert [(call.id, call.name) for call in outcome.reply.incomplete] == [(call.id, call.name) for call in heard.calls]


@each("case", lambda: cases(broke_off))
def test_an_error_in_the_middle_says_nothing_new_to_a_listener(case: Case) -> None:
    exchange = case.exchange
    model = case.resolve()
    at = exchange.content.index(b'"error"')
    before = exchange.content[: exchange.content.rindex(b"\n", 0, at) + 1]
    assert len(frames(before)) < len(frames(exchange.content))
    whole = read_stream(model, exchange, [exchange.content])
    part = read_stream(model, exchange, [before])
    assert delivered(part.events) == delivered(whole.events)
