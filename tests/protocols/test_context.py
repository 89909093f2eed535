"""References to context are refused where no model could follow them, and portable keys go on to the other wires."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cnllm import CannotSend, Registry, engine
from cnllm.protocols import PROTOCOLS

from .clients import ANSWER, CHAT, GEMINI, MESSAGES, PATHS, RESPONSES, endpoint
from .test_files import DOCUMENT, IMAGE, PAIRS, part, readers, result_body, user_body

USER: dict[str, Any] = {"role": "user", "content": "What does it say?"}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [USER]},
    MESSAGES: {"max_tokens": 9, "messages": [USER]},
    RESPONSES: {"input": "What does it say?"},
    GEMINI: {"contents": [{"role": "user", "parts": [{"text": "What does it say?"}]}]},
}
REFERENCES: list[tuple[str, str, Any]] = [
    (GEMINI, "cachedContent", "cachedContents/abc"),
    (GEMINI, "cached_content", "cachedContents/abc"),
    (MESSAGES, "container", "container_1"),
    (MESSAGES, "container", {"skills": [{"type": "custom", "skill_id": "s"}]}),
    (MESSAGES, "mcp_servers", [{"type": "url", "url": "https://mcp.example", "name": "m"}]),
    (RESPONSES, "prompt", {"id": "pmpt_1", "variables": {"city": "Kiel"}}),
    (RESPONSES, "previous_response_id", "resp_1"),
    (RESPONSES, "conversation", "conv_1"),
    (RESPONSES, "background", True),
]
PORTABLE: dict[str, Any] = {
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "service_tier": "flex",
    "safety_identifier": "u",
    "metadata": {"run": "7"},
    "user": "u",
    "top_logprobs": 2,
}


def build(client: str, target: str, **keys: Any) -> engine.Plan:
    """The request that a client's body becomes."""
    request = engine.decode_request(client, {**BODIES[client], **keys}, path="/v1beta/models/m:generateContent")
    return engine.build_request(endpoint(target), request.messages, **request.options)


@pytest.mark.parametrize(("client", "name", "value"), REFERENCES, ids=[f"{r[1]}" for r in REFERENCES])
def test_a_reference_is_refused_by_name_where_its_owner_does_not_answer(client: str, name: str, value: Any) -> None:
    for target in PROTOCOLS:
        if target == client:
            assert value in build(client, target, **{name: value}).body.values()
            continue
        with pytest.raises(CannotSend) as caught:
            build(client, target, **{name: value})
        assert name in str(caught.value), target
        assert caught.value.note.code == "reference-foreign"
        if isinstance(value, list | bool):
            build(client, target, **{name: type(value)()})  # nothing is referred to


def test_portable_keys_go_from_responses_to_chat_and_back() -> None:
    for client, target in ((RESPONSES, CHAT), (CHAT, RESPONSES)):
        plan = build(client, target, **PORTABLE)
        assert {key: plan.body.get(key) for key in PORTABLE} == PORTABLE
        assert [note.code for note in plan.notes if note.code in ("key-foreign", "param-unknown")] == []
    assert build(RESPONSES, CHAT, top_logprobs=2).body["logprobs"] is True
    assert build(RESPONSES, CHAT, text={"verbosity": "low"}).body["verbosity"] == "low"
    assert build(CHAT, RESPONSES, verbosity="low").body["text"] == {"verbosity": "low"}


@pytest.mark.parametrize("state", ["", 'logprobs = "logprobs"', "logprobs = false"])
def test_a_number_of_probabilities_turns_them_on_unless_the_endpoint_has_none(state: str, tmp_path: Path) -> None:
    overlay = tmp_path / "a.toml"
    overlay.write_text(f'[models."openai-compatible/m".params]\n{state}\n')
    request = engine.decode_request(RESPONSES, {**BODIES[RESPONSES], "top_logprobs": 2})
    model = Registry.load(str(overlay)).resolve("openai-compatible/m", protocol=CHAT, base_url="http://127.0.0.1:9/v1")
    body = engine.build_request(model, request.messages, **request.options).body
    assert body["top_logprobs"] == 2
    assert body.get("logprobs") is (None if "false" in state else True)


def test_a_portable_key_stays_behind_where_the_registry_says_that_the_endpoint_refuses_it(tmp_path: Path) -> None:
    overlay = tmp_path / "a.toml"
    overlay.write_text('[models."openai-compatible/m"]\nparams.prompt_cache_key = false\n')
    request = engine.decode_request(RESPONSES, {**BODIES[RESPONSES], "prompt_cache_key": "k", "user": "u"})
    model = Registry.load(str(overlay)).resolve("openai-compatible/m", protocol=CHAT, base_url="http://127.0.0.1:9/v1")
    plan = engine.build_request(model, request.messages, **request.options)
    assert "prompt_cache_key" not in plan.body
    assert plan.body["user"] == "u"
    assert [note.code for note in plan.notes if "prompt_cache_key" in str(note)] == ["param-dropped"]


def test_numbers_of_gemini_and_chat_meet() -> None:
    config = {"frequencyPenalty": 0.5, "responseLogprobs": True, "logprobs": 3}
    plan = build(GEMINI, CHAT, generationConfig=config)
    assert {k: plan.body[k] for k in ("frequency_penalty", "logprobs", "top_logprobs")} == {
        "frequency_penalty": 0.5,
        "logprobs": True,
        "top_logprobs": 3,
    }
    plan = build(CHAT, GEMINI, frequency_penalty=0.5, logprobs=True, top_logprobs=3)
    assert plan.body["generationConfig"] == config


@pytest.mark.parametrize("strict", [True, False])
def test_the_strictness_and_the_description_of_a_schema_reach_both_wires_that_have_them(strict: bool) -> None:
    keys = {"name": "sum", "description": "A sum.", "strict": strict, "schema": ANSWER}
    formats: dict[str, dict[str, Any]] = {
        CHAT: {"response_format": {"type": "json_schema", "json_schema": keys}},
        RESPONSES: {"text": {"format": {"type": "json_schema", **keys}}},
    }
    for client, body in formats.items():
        assert build(client, CHAT, **body).body["response_format"] == formats[CHAT]["response_format"]
        assert build(client, RESPONSES, **body).body["text"] == formats[RESPONSES]["text"]


# ── names of files ───────────────────────────────────────────────────────────
NAMED_IN_A_FIELD = {CHAT: '"filename":"a.pdf"', MESSAGES: '"title":"a.pdf"', RESPONSES: '"filename":"a.pdf"'}


@pytest.mark.parametrize(("client", "target"), PAIRS)
def test_the_name_of_a_file_reaches_every_model(client: str, target: str) -> None:
    """In the field of its wire, or in a line right before the file."""
    body = user_body(client, part(client, *DOCUMENT, "a.pdf"), part(client, *DOCUMENT, None))
    request = engine.decode_request(client, body, path=PATHS.get(client, ""))
    plan = engine.build_request(readers()[target], request.messages, **request.options)
    content = plan.content.decode()
    if target == GEMINI and client != GEMINI:
        parts = plan.body["contents"][0]["parts"]
        assert [part.get("text") for part in parts] == ["See.", "\n\n[PDF a.pdf]", None, None]
    elif target == GEMINI:
        assert '"displayName":"a.pdf"' in content, "its own wire may have a field for it"
    else:
        assert NAMED_IN_A_FIELD[target] in content
        assert "[PDF" not in content
    assert content.count("a.pdf") == 1


@pytest.mark.parametrize("target", PROTOCOLS)
def test_the_name_of_a_picture_stands_before_it_where_no_field_has_it(target: str) -> None:
    picture = part(GEMINI, *IMAGE, "dog.png")
    for body in (user_body(GEMINI, picture), result_body(GEMINI, picture)):
        request = engine.decode_request(GEMINI, body, path=PATHS[GEMINI])
        plan = engine.build_request(readers()[target], request.messages, **request.options)
        content = plan.content.decode()
        assert content.count("dog.png") == 1
        if target == GEMINI:
            assert '"displayName":"dog.png"' in content
        else:
            assert "[image dog.png]" in content
            before, _, after = content.partition("[image dog.png]")
            assert IMAGE[1] in after
            assert IMAGE[1] not in before
