"""Keys of a client's body at an endpoint of the client's own protocol: what the registry knows of them holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cnllm import Client
from cnllm.registry import Registry

from .support import Upstream, gateway_for, say

Json = dict[str, Any]
HELLO = [{"role": "user", "content": "Hello."}]
OWN = """
[providers.own]
protocol = "openai-chat"
[models."own/m"]
reasoning = { mode = "never", on.set = { thinking.type = "enabled" } }
schema.methods = ["json_object"]
body.drop = ["moderation"]
[models."own/m".params]
presence_penalty = false
frequency_penalty = { as = "frequency_penalty", min = 0, max = 1, otherwise = "clamp" }
logprobs = "ignored"
top_k = "sampling.top_k"
"""


def _sent(folder: Path, body: Json, path: str = "/v1/chat/completions") -> Json:
    """Return the body that reaches the endpoint."""
    upstream = Upstream(say('{"a": 1}'))
    more = OWN.replace("[providers.own]\n", f'[providers.own]\nbase_url = "{upstream.url}"\n')
    with gateway_for(upstream, folder, "zai", more=more) as http:
        answer = http.post(path, json={"model": "own/m", **body})
        assert answer.status_code == 200, answer.text
    return {key: value for key, value in upstream.bodies[0].items() if key not in ("model", "messages")}


def test_rules_of_parameters_hold_for_a_client_of_the_same_protocol(tmp_path: Path) -> None:
    sent = _sent(
        tmp_path,
        {
            "messages": HELLO,
            "presence_penalty": -2,
            "frequency_penalty": 2,
            "logprobs": True,
            "top_k": 5,
            "moderation": {"x": 1},
            "thinking": {"type": "enabled", "budget": 5},
            "service_tier": "flex",
            "unheard_of": {"y": None, "z": [1]},
        },
    )
    assert sent == {
        "frequency_penalty": 1,
        "sampling": {"top_k": 5},
        "thinking": {"budget": 5},
        "service_tier": "flex",
        "unheard_of": {"y": None, "z": [1]},
    }


def test_a_key_that_is_left_out_is_noted_with_the_line_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    client = Client(Registry.load(str(tmp_path / "own.toml")), simulate=True)
    plan = client.plan("own/m", "Hello.", params={"moderation": {"x": 1}, "thinking": {"type": "enabled"}})
    notes = [(note.code, note.flag) for note in plan.notes if note.code == "param-dropped"]
    assert notes == [("param-dropped", "body.drop"), ("param-dropped", "reasoning.mode")]


def test_extra_body_of_a_caller_goes_out_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    extra = {"presence_penalty": -2, "frequency_penalty": 2, "moderation": {"x": 1}, "top_k": 5}
    plan = Client(Registry.load(str(tmp_path / "own.toml")), simulate=True).plan("own/m", "Hello.", extra_body=extra)
    assert extra.items() <= plan.body.items()


def test_any_object_is_asked_for_as_the_endpoint_takes_it(tmp_path: Path) -> None:
    kind = {"response_format": {"type": "json_object"}}
    in_words = [{"role": "user", "content": "Answer in JSON."}]
    assert _sent(tmp_path, {"messages": in_words, **kind}) == kind  # as it is
    upstream = Upstream(say('{"a": 1}'))
    for method, sent in (("json_object", kind), ("prompt", {})):
        more = OWN.replace('["json_object"]', f'["{method}"]').replace(
            "[providers.own]\n", f'[providers.own]\nbase_url = "{upstream.url}"\n'
        )
        with gateway_for(upstream, tmp_path, "zai", more=more) as http:
            answer = http.post("/v1/chat/completions", json={"model": "own/m", "messages": HELLO, **kind})
        assert answer.json()["choices"][0]["message"]["content"] == '{"a": 1}'
        body = upstream.bodies[-1]
        assert "JSON" in body["messages"][0]["content"], method
        assert {key: value for key, value in body.items() if key not in ("model", "messages")} == sent, method


@pytest.mark.parametrize("answer", ["ok", '{"a": 1}'])
def test_an_object_asked_for_by_a_schema_is_noted_and_judged_after_its_correction(answer: str, tmp_path: Path) -> None:
    upstream = Upstream(say("Hello."), say(answer))
    more = OWN.replace("[providers.own]\n", f'[providers.own]\nbase_url = "{upstream.url}"\n')
    more = more.replace('methods = ["json_object"]', 'methods = ["json_schema"]')
    body = {"model": "own/m", "messages": HELLO, "response_format": {"type": "json_object"}}
    with gateway_for(upstream, tmp_path, "zai", more=more) as http:
        response = http.post("/v1/chat/completions", json=body)
        record = http.get(f"/v1/requests/{response.headers['x-request-id']}").json()
    codes = [note["code"] for note in record["notes"]]
    assert [sent["response_format"]["type"] for sent in upstream.bodies] == ["json_schema", "json_object"]
    assert ("schema-method" in codes, "answer-corrected" in codes) == (True, True)
    assert ("answer-invalid" in codes) is (answer == "ok")


def test_types_of_the_protocols_own_kind_in_json_schema_are_mended(tmp_path: Path) -> None:
    own = {
        "type": "OBJECT",
        "properties": {"a": {"type": "ARRAY", "items": {"type": "STRING"}}, "type": {"type": "INTEGER"}},
        "required": ["a"],
    }
    mended = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "string"}}, "type": {"type": "integer"}},
        "required": ["a"],
    }
    rich = {"type": "object", "properties": {"a": {"const": None}, "b": {"default": None}}, "nullable": True}
    for schema, wanted in ((own, mended), (rich, rich)):
        body = {
            "contents": [{"parts": [{"text": "Hello."}]}],
            "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": schema}]}],
        }
        sent = _sent(tmp_path, body, "/v1beta/models/own/m:generateContent")
        assert sent["tools"][0]["function"]["parameters"] == wanted


HINTS: Json = {
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "auto"},
    "safety_identifier": "s",
    "user": "u",
}
BODIES: dict[str, Json] = {
    "/v1/chat/completions": {"messages": HELLO, "verbosity": "low", **HINTS},
    "/v1/responses": {"input": "Hello.", "text": {"verbosity": "low"}, **HINTS},
}
CLOSED = {
    "groq/openai/gpt-oss-120b": {"user"},
    "cerebras/gpt-oss-120b": {"prompt_cache_key", "user"},
    "mistral/mistral-large-4": {"prompt_cache_key"},
    "nvidia/z-ai/glm-5.3": {"prompt_cache_retention", "safety_identifier", "user", "verbosity"},
    "google/gemini-3.1-pro-preview": {*HINTS, "verbosity"} - {"prompt_cache_key"},
    "fireworks-ai/accounts/fireworks/models/glm-5p3": {*HINTS, "verbosity"} - {"prompt_cache_retention"},
}
"""Models of endpoints that refuse a request for a key of OpenAI's, and those keys that they are not known to refuse."""


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("model", CLOSED)
def test_a_hint_of_a_client_that_the_endpoint_refuses_is_left_out(tmp_path: Path, model: str, path: str) -> None:
    upstream = Upstream(say("Hi."))
    more = f'[models."{model}"]\nprotocol = "openai-chat"\n'
    with gateway_for(upstream, tmp_path, model.partition("/")[0], more=more) as http:
        answer = http.post(path, json={"model": model, **BODIES[path]})
    assert answer.status_code == 200, answer.text
    keys = {*HINTS, "verbosity"}
    assert keys & upstream.bodies[0].keys() == CLOSED[model]
    assert int(answer.headers["x-cnllm-notes"].partition(";")[0]) >= len(keys - CLOSED[model])
