"""A web search in one form becomes each endpoint's own, and a client's own form as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cnllm
from cnllm import CannotSend, Model, Plan, Registry, engine
from cnllm.model_facts.capabilities import capabilities
from cnllm.tools import as_tools

OWN = """
[providers.tool]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
[providers.tool.web_search]
tool       = { type = "find", find = { enable = true } }
count      = "find.count"
domains    = "find.domain"
one_domain = true
force      = { find = { must = true } }

[providers.body]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
web_search = { set = { find = true }, domains = "find_options.sites", force = { find_options = { must = true } } }

[providers.other-wire]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
when.search.protocol = "openai-responses"
[providers.other-wire.on.openai-responses]
path = "/responses"
web_search = { tool = { type = "find" }, choice = { type = "find" }, forms = ["web_search*"] }

[providers.messages]
protocol = "anthropic-messages"
base_url = "http://127.0.0.1:9"
web_search = { tool = { type = "find", name = "find" }, forms = ["web_search_*"] }

[providers.thinks]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
web_search = { tool = { type = "find" }, reasoning = false }
[providers.thinks.reasoning]
on  = { set = { think = true } }
off = { set = { think = false } }
[models."thinks/some"]
reasoning = { mode = "toggle", default = "on" }
[models."thinks/always"]
reasoning = { mode = "always", default = "on" }

[providers.searcher]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
tools.supported = false
web_search = { always = true, domains = "sites", forms = ["web_search_options"] }

[providers.none]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
"""
CHAT, MESSAGES, RESPONSES, GEMINI = "openai-chat", "anthropic-messages", "openai-responses", "gemini"
USER: dict[str, Any] = {"role": "user", "content": "Go."}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [USER], "web_search_options": {"search_context_size": "low"}},
    MESSAGES: {
        "messages": [USER],
        "max_tokens": 9,
        "tools": [
            {
                "type": "web_search_20260209",
                "name": "web_search",
                "allowed_domains": ["a.org"],
                "max_uses": 3,
                "cache_control": {"type": "ephemeral"},
            }
        ],
    },
    RESPONSES: {
        "input": "Go.",
        "tools": [{"type": "web_search_preview", "filters": {"allowed_domains": ["a.org"]}, "user_location": {"a": 1}}],
    },
    GEMINI: {"contents": [{"parts": [{"text": "Go."}]}], "tools": [{"google_search": {}, "urlContext": {}}]},
}
FORCED: dict[str, dict[str, Any]] = {
    MESSAGES: {"tool_choice": {"type": "tool", "name": "web_search"}},
    RESPONSES: {"tool_choice": {"type": "web_search_preview"}},
}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    path = tmp_path_factory.mktemp("search") / "own.toml"
    path.write_text(OWN)
    return Registry.load(str(path))


def plan(registry: Registry, name: str, *tools: Any, **options: Any) -> Plan:
    return engine.build_request(registry.resolve(name), "Go.", tools=list(tools) or None, **options)


def client_plan(model: Model, protocol: str, **more: Any) -> Plan:
    request = engine.decode_request(protocol, {**BODIES[protocol], **more})
    return engine.build_request(model, request.messages, **request.options)


def notes(made: Plan) -> list[tuple[str, str]]:
    return [(note.code, note.said) for note in made.notes if note.code != "unknown-model"]


def test_a_web_search_stands_where_the_endpoint_wants_it(registry: Registry) -> None:
    search = cnllm.web_search(count=3, domains=["a.org"])
    made = plan(registry, "tool/m", search)
    assert made.body["tools"] == [{"type": "find", "find": {"enable": True, "count": 3, "domain": "a.org"}}]
    assert notes(made) == []
    made = plan(registry, "body/m", search)
    assert (made.body["find"], made.body["find_options"]) == (True, {"sites": ["a.org"]})
    assert "tools" not in made.body
    assert notes(made) == [("web-search", "count=3")]
    assert all(note.where for note in made.notes)
    made = plan(registry, "other-wire/m", cnllm.web_search())
    assert made.url.endswith("/responses")
    assert made.body["tools"] == [{"type": "find"}]
    assert [code for code, _ in notes(made)] == ["wire-routed"]
    assert plan(registry, "searcher/m", search).body["sites"] == ["a.org"]


def test_functions_beside_it_stay_what_they_are(registry: Registry) -> None:
    @cnllm.tool
    def weather(city: str) -> str:
        return city

    made = plan(registry, "tool/m", cnllm.web_search(), weather, tool_choice="weather")
    assert [tool["type"] for tool in made.body["tools"]] == ["function", "find"]
    assert made.body["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert [tool.name for tool in as_tools([weather, cnllm.web_search()])] == ["weather", "web_search"]


def test_a_search_beside_functions_is_switched_on_where_that_takes_more() -> None:
    """Gemini 3 refuses the two together without the switch, and the mode AUTO with it; Codex always sends both."""
    model = Registry.load().resolve("google/gemini-3.8-flash", protocol=GEMINI)
    tool = {"name": "f", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}
    for choice, modes in ((None, None), ("auto", None), ("required", {"mode": "ANY"}), ("none", {"mode": "NONE"})):
        options: dict[str, Any] = {} if choice is None else {"tool_choice": choice}
        sent = engine.build_request(model, "Go.", tools=[tool, cnllm.web_search()], **options).body
        assert [list(entry) for entry in sent["tools"]] == [["functionDeclarations"], ["googleSearch"]]
        switch = {"includeServerSideToolInvocations": True}
        assert sent["toolConfig"] == (switch if modes is None else {**switch, "functionCallingConfig": modes})
    for tools in ([tool], [cnllm.web_search()]):
        assert "toolConfig" not in engine.build_request(model, "Go.", tools=tools).body


def test_a_search_can_be_demanded(registry: Registry) -> None:
    for choice in ("web_search", "required"):
        made = plan(registry, "tool/m", cnllm.web_search(), tool_choice=choice)
        assert made.body["tools"] == [{"type": "find", "find": {"enable": True, "must": True}}]
        assert "tool_choice" not in made.body
        assert plan(registry, "body/m", cnllm.web_search(), tool_choice=choice).body["find_options"] == {"must": True}
        made = plan(registry, "other-wire/m", cnllm.web_search(), tool_choice=choice)
        assert made.body["tool_choice"] == {"type": "find"}
        made = plan(registry, "messages/m", cnllm.web_search(), tool_choice=choice)
        assert "tool_choice" not in made.body
        assert ("tool-choice", f"tool_choice={choice!r}") in notes(made)
    assert "find" not in plan(registry, "body/m", cnllm.web_search(), tool_choice="none").body


def test_a_model_without_one_is_asked_without_it(registry: Registry) -> None:
    for options in ({}, {"tool_choice": "web_search"}, {"on_unsupported": "send"}):
        made = plan(registry, "none/m", cnllm.web_search(), **options)
        assert set(made.body) == {"model", "messages"}
        assert ("web-search", "web_search") in notes(made)
    with pytest.raises(CannotSend, match="web_search"):
        plan(registry, "none/m", cnllm.web_search(), on_unsupported="error")
    with pytest.raises(CannotSend, match="count"):
        plan(registry, "body/m", cnllm.web_search(count=2), on_unsupported="error")


def test_reasoning_is_off_where_it_cannot_be_on(registry: Registry) -> None:
    made = plan(registry, "thinks/some", cnllm.web_search())
    assert (made.body["think"], made.body["tools"]) == (False, [{"type": "find"}])
    assert ("web-search", "web_search") in notes(made)
    assert plan(registry, "thinks/some").body.get("think") is not False
    made = plan(registry, "thinks/some", cnllm.web_search(), reasoning="high")
    assert made.body["think"] is False
    assert ("web-search", "web_search.reasoning") in [(note.code, note.flag) for note in made.notes]
    with pytest.raises(CannotSend, match="reasoning") as caught:
        plan(registry, "thinks/some", cnllm.web_search(), reasoning="high", on_unsupported="error")
    assert caught.value.note is not None
    assert caught.value.note.code == "web-search"
    made = plan(registry, "thinks/always", cnllm.web_search())
    assert "tools" not in made.body


@pytest.mark.parametrize("protocol", [MESSAGES, RESPONSES, GEMINI])
def test_a_search_beside_the_functions_of_an_agent_turns_no_reasoning_off(registry: Registry, protocol: str) -> None:
    function: dict[str, Any] = {"name": "f", "description": "d"}
    functions: dict[str, Any] = {
        MESSAGES: {**function, "input_schema": {"type": "object"}},
        RESPONSES: {**function, "type": "function", "parameters": {"type": "object"}, "strict": False},
        GEMINI: {"functionDeclarations": [function]},
    }
    model = registry.resolve("thinks/some")
    offered = [*BODIES[protocol]["tools"], functions[protocol]]
    made = client_plan(model, protocol, tools=offered)
    assert made.body.get("think") is not False
    assert [tool["type"] for tool in made.body["tools"]] == ["function"]
    assert ("web-search", "web_search") in notes(made)
    if protocol in FORCED:
        made = client_plan(model, protocol, tools=offered, **FORCED[protocol])
        assert made.body["think"] is False
        assert {"type": "find"} in made.body["tools"]
    alone = client_plan(model, protocol)
    assert (alone.body["think"], alone.body["tools"]) == (False, [{"type": "find"}])


def test_models_say_whether_they_search(registry: Registry) -> None:
    names = ["tool/m", "body/m", "other-wire/m", "searcher/m", "thinks/some", "thinks/always", "none/m"]
    found = [capabilities(registry.resolve(name))["web-search"].value for name in names]
    assert found == [True, True, True, True, True, None, None]


@pytest.mark.parametrize("protocol", [CHAT, MESSAGES, RESPONSES, GEMINI])
def test_what_clients_send_becomes_the_endpoints_own(registry: Registry, protocol: str) -> None:
    domains = ["a.org"] if protocol in (MESSAGES, RESPONSES) else None
    find = {"enable": True, **({"domain": "a.org"} if domains else {})}
    made = client_plan(registry.resolve("tool/m"), protocol)
    assert made.body["tools"] == [{"type": "find", "find": find}]
    assert "web_search_options" not in made.body
    unread = {CHAT: "search_context_size", MESSAGES: "max_uses", RESPONSES: "user_location"}.get(protocol)
    assert [said for code, said in notes(made) if code == "web-search"] == ([unread] if unread else [])
    made = client_plan(registry.resolve("body/m"), protocol)
    assert made.body["find"] is True
    assert made.body.get("find_options") == ({"sites": domains} if domains else None)
    made = client_plan(registry.resolve("other-wire/m"), protocol)
    own = BODIES[protocol]["tools"] if protocol == RESPONSES else [{"type": "find"}]  # the search goes over this wire
    assert made.body["tools"] == own
    if protocol == GEMINI:
        assert ("tool-foreign", "tools[1]: urlContext") in notes(made)


def test_a_search_in_the_form_of_responses_is_one_on_the_wire_of_chat(registry: Registry) -> None:
    body = {"messages": [USER], "tools": [{"type": "web_search", "search_context_size": "low"}]}
    request = engine.decode_request(CHAT, body)
    made = engine.build_request(registry.resolve("tool/m"), request.messages, **request.options)
    assert made.body["tools"] == [{"type": "find", "find": {"enable": True}}]
    assert notes(made) == [("web-search", "search_context_size")]


def test_what_the_endpoint_takes_itself_goes_as_it_is(registry: Registry) -> None:
    made = client_plan(registry.resolve("messages/m"), MESSAGES, **FORCED[MESSAGES])
    assert made.body["tools"] == BODIES[MESSAGES]["tools"]
    assert made.body["tool_choice"] == FORCED[MESSAGES]["tool_choice"]
    made = client_plan(registry.resolve("searcher/m"), CHAT)
    assert made.body["web_search_options"] == BODIES[CHAT]["web_search_options"]
    # the form of the wire, to an endpoint of which nothing is known
    made = client_plan(registry.resolve("none/m"), CHAT)
    assert made.body["web_search_options"] == BODIES[CHAT]["web_search_options"]
    assert [code for code, _ in notes(made)] == ["web-search"]


@pytest.mark.parametrize("protocol", [MESSAGES, RESPONSES])
def test_a_client_may_demand_it(registry: Registry, protocol: str) -> None:
    made = client_plan(registry.resolve("tool/m"), protocol, **FORCED[protocol])
    assert made.body["tools"][0]["find"]["must"] is True
    assert "tool_choice" not in made.body
    made = client_plan(registry.resolve("other-wire/m"), protocol, **FORCED[protocol])
    assert made.body["tool_choice"]["type"] == ("find" if protocol == MESSAGES else "web_search_preview")
    with pytest.raises(CannotSend, match="tool_choice") as caught:
        client_plan(registry.resolve("none/m"), protocol, **FORCED[protocol])
    assert caught.value.note is not None
    assert caught.value.note.flag == "tool_choice"
    any_tool = {"type": "any"} if protocol == MESSAGES else "required"
    with pytest.raises(CannotSend, match="tool_choice"):
        client_plan(registry.resolve("none/m"), protocol, tool_choice=any_tool)
    made = client_plan(registry.resolve("none/m"), protocol)
    assert "tools" not in made.body
    assert "tool-foreign" in [code for code, _ in notes(made)]


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"count": 0}, "count"),
        ({"count": True}, "count"),
        ({"count": "3"}, "count"),
        ({"domains": []}, "domains"),
        ({"domains": [3]}, "domains"),
        ({"domains": 3}, "domains"),
    ],
)
def test_a_wrong_value_is_named(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        cnllm.web_search(**wrong)


SHIPPED: list[tuple[str, str, dict[str, Any]]] = [
    ("zhipuai/glm-4.7", "chat/completions", {"tools": [{"type": "web_search", "web_search": {
        "enable": True, "search_engine": "search_std", "search_result": True}}]}),
    ("moonshotai-cn/kimi-k2.6", "chat/completions", {"tools": [
        {"type": "builtin_function", "function": {"name": "$web_search"}}], "thinking": {"type": "disabled"}}),
    ("alibaba-cn/qwen3.7-plus", "chat/completions", {"enable_search": True}),
    ("volcengine/doubao-seed-2-1-pro-260915", "responses", {"tools": [{"type": "web_search"}]}),
    ("openrouter/deepseek/deepseek-v4-pro", "chat/completions", {"tools": [{"type": "openrouter:web_search"}]}),
    ("xai/grok-4.5", "responses", {"tools": [{"type": "web_search"}]}),
    ("openai/gpt-5.4", "responses", {"tools": [{"type": "web_search"}]}),
    ("anthropic/claude-haiku-4-5", "messages", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
    ("google/gemini-3.8-flash", "models/gemini-3.8-flash:generateContent", {"tools": [{"googleSearch": {}}]}),
    ("perplexity/sonar", "chat/completions", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "path", "keys"), SHIPPED)
def test_the_built_in_file_knows_the_vendors_forms(name: str, path: str, keys: dict[str, Any]) -> None:
    made = engine.build_request(Registry.load().resolve(name), "Go.", tools=[cnllm.web_search()])
    assert made.url.endswith(f"/{path}")
    assert {key: made.body.get(key) for key in keys} == keys
    assert made.search is not None


def test_a_tool_of_the_endpoint_in_the_form_of_a_function_is_none(tmp_path: Path) -> None:
    own = {"type": "builtin_function", "function": {"name": "$web_search"}}
    assert as_tools([own])[0].definition == own
