"""What gateways lost, by the thread that reported it: each test is named after its thread."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from client.peer import Peer
from client.peer import stream as sse
from faults.streams import named

from cnllm.gateway.tokens import Keyring
from cnllm.types.policy import Timeouts

from .support import (
    CLIENTS,
    KEY,
    THOUGHT,
    TOOL,
    USAGE,
    Answer,
    ChatClient,
    GeminiClient,
    MessagesClient,
    ResponsesClient,
    Upstream,
    call,
    error,
    frames,
    gateway_for,
    say,
)

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
KEYS = Keyring([bytes(range(32))])


def _assistants(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [message for message in body["messages"] if message["role"] == "assistant"]


def _tool_session(client: ChatClient) -> None:
    """A question, two calls at once, their results, and the answer."""
    client.user("Weather in Beijing and 上海?")
    calls = client.send()
    assert [arguments for _, arguments in calls] == [{"city": "Beijing"}, {"city": "上海"}]
    for id, arguments in calls:
        client.result(id, f"sunny in {arguments['city']}")
    assert client.send() == []


def test_new_api_4543_reasoning_comes_back_byte_for_byte_on_tool_turns(tmp_path: Path) -> None:
    for kind in CLIENTS:
        for stream in (True, False):
            upstream = Upstream(call("Beijing", "上海"), say("Both are sunny."))
            with gateway_for(upstream, tmp_path, token_keys=KEYS) as http:
                client = kind(http, "deepseek/deepseek-v4-pro", stream=stream)
                _tool_session(client)
            turns = _assistants(upstream.bodies[1])
            assert [turn.get("reasoning_content") for turn in turns] == [THOUGHT], (kind, stream)
            assert client.text() == "Both are sunny.", (kind, stream)
            results = [m for m in upstream.bodies[1]["messages"] if m["role"] == "tool"]
            assert [r["tool_call_id"] for r in results] == [c["id"] for c in turns[0]["tool_calls"]], (kind, stream)
            assert [r["content"] for r in results] == ["sunny in Beijing", "sunny in 上海"], (kind, stream)


def test_litellm_28045_reasoning_survives_a_restart_of_the_gateway(tmp_path: Path) -> None:
    for kind in CLIENTS:
        upstream = Upstream(call("Beijing"), say("Sunny."))
        url = f"sqlite:{tmp_path}/{kind.__name__}.db"
        with gateway_for(upstream, tmp_path, token_keys=KEYS, store=url) as http:
            client = kind(http, "deepseek/deepseek-v4-pro")
            client.user("Weather in Beijing?")
            [(id, _)] = client.send()
            client.result(id, "sunny")
        with gateway_for(upstream, tmp_path, token_keys=KEYS, store=url) as http:
            client.http = http
            client.send()
        [turn] = _assistants(upstream.bodies[1])
        assert turn.get("reasoning_content") == THOUGHT, kind


def test_litellm_28045_a_token_alone_is_enough_where_the_client_carries_it(tmp_path: Path) -> None:
    for kind in (MessagesClient, ResponsesClient, GeminiClient):
        upstream = Upstream(call("Beijing"), say("Sunny."))
        with gateway_for(upstream, tmp_path, token_keys=KEYS) as http:
            client = kind(http, "deepseek/deepseek-v4-pro")
            client.user("Weather in Beijing?")
            [(id, _)] = client.send()
            client.result(id, "sunny")
        with gateway_for(upstream, tmp_path, token_keys=KEYS) as http:  # its memory is empty
            client.http = http
            client.send()
        assert _assistants(upstream.bodies[1])[0].get("reasoning_content") == THOUGHT, kind


def test_a_token_of_another_client_proves_nothing(tmp_path: Path) -> None:
    upstream = Upstream(call("Beijing"), say("Sunny."))
    with gateway_for(upstream, tmp_path, token_keys=KEYS, keys=[KEY, "another-key"]) as http:
        client = MessagesClient(http, "deepseek/deepseek-v4-pro")
        client.user("Weather in Beijing?")
        [(id, _)] = client.send()
        client.result(id, "sunny")
        http.headers["authorization"] = "Bearer another-key"
        client.send()
    turn = _assistants(upstream.bodies[1])[0]
    assert turn.get("reasoning_content") != THOUGHT
    assert "cnllm1." not in json.dumps(upstream.bodies[1])


def test_clip_proxy_api_3451_codex_replays_reasoning_to_deepseek(tmp_path: Path) -> None:
    upstream = Upstream(call("Beijing"), call("上海", thought="Now 上海."), say("Sunny."))
    with gateway_for(upstream, tmp_path, token_keys=KEYS) as http:
        client = ResponsesClient(http, "deepseek/deepseek-v4-pro")
        client.user("Weather in Beijing, then in 上海?")
        for city in ("Beijing", "上海"):
            [(id, arguments)] = client.send()
            assert arguments == {"city": city}
            client.result(id, "sunny")
        client.send()
    assert [turn["reasoning_content"] for turn in _assistants(upstream.bodies[2])] == [THOUGHT, "Now 上海."]


def test_clip_proxy_api_3184_5692_ids_of_items_reach_no_other_wire(tmp_path: Path) -> None:
    upstream = Upstream(say("Sunny."))
    items: list[dict[str, Any]] = [
        {"type": "message", "role": "user", "content": "Weather?", "id": "msg_client1"},
        {"type": "reasoning", "id": "rs_client2", "summary": [], "encrypted_content": "gAAAAfromsomebodyelse"},
        {"type": "function_call", "id": "fc_client3", "call_id": "call_9", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "id": "fco_client4", "call_id": "call_9", "output": "sunny"},
    ]
    items[2]["status"] = items[3]["status"] = "completed"
    with gateway_for(upstream, tmp_path, token_keys=KEYS) as http:
        client = ResponsesClient(http, "deepseek/deepseek-v4-pro")
        client.history = items
        client.send()
    sent = json.dumps(upstream.bodies[0])
    assert not [id for id in ("msg_client1", "rs_client2", "fc_client3", "fco_client4", "gAAAA") if id in sent]
    [result] = [m for m in upstream.bodies[0]["messages"] if m["role"] == "tool"]
    assert result["tool_call_id"] == _assistants(upstream.bodies[0])[0]["tool_calls"][0]["id"]


def test_cc_switch_cli_466_tools_inside_an_item_are_offered(tmp_path: Path) -> None:
    upstream = Upstream(call("Beijing"))
    tool = {"type": "function", "name": "weather", "description": "d", "parameters": TOOL["schema"], "strict": False}
    with gateway_for(upstream, tmp_path) as http:
        client = ResponsesClient(http, "zai/glm-4.7", tools=False)
        client.history = [{"type": "additional_tools", "role": "developer", "tools": [tool]}]
        client.user("Weather?")
        assert [arguments for _, arguments in client.send()] == [{"city": "Beijing"}]
    assert [tool["function"]["name"] for tool in upstream.bodies[0]["tools"]] == ["weather"]


def test_litellm_32536_31571_35878_tools_of_other_kinds_are_bridged(tmp_path: Path) -> None:
    patch = json.dumps({"input": "*** Begin Patch"})
    function = {"name": "apply_patch", "arguments": ""}
    deltas = [
        {"tool_calls": [{"index": 0, "id": "call_a", "type": "function", "function": function}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": patch}}]},
    ]
    upstream = Upstream(Answer(deltas, "tool_calls"), say("Done."))
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: X"}
    read = {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}
    tools = [
        {"type": "custom", "name": "apply_patch", "description": "Edit files.", "format": grammar},
        {"type": "namespace", "name": "files", "description": "Files.", "tools": [read]},
        {"type": "tool_search"},
        {"type": "web_search"},
    ]
    with gateway_for(upstream, tmp_path) as http:
        client = ResponsesClient(http, "zai/glm-4.7", tools=False)
        client.user("Edit.")
        body = {**client.request(), "tools": tools}
        events = frames(http.post(client.path(), json=body).text)
        last = next(e["response"] for e in events if e["type"] == "response.completed")
        [item] = [i for i in last["output"] if i["type"] != "reasoning"]
        assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch", "*** Begin Patch")
        output = {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "patched"}
        http.post(client.path(), json={**body, "input": [*client.history, item, output]})
    names = [tool["function"]["name"] for tool in upstream.bodies[0]["tools"] if "function" in tool]
    assert len(names) == 2
    assert names[0] == "apply_patch"
    assert upstream.bodies[0]["tools"][2]["type"] == "web_search"
    assert "read" in names[1]
    assert "start: X" in json.dumps(upstream.bodies[0]["tools"][0])
    assert upstream.bodies[1]["messages"][-1]["content"] == "patched"


def test_bifrost_3596_a_tool_that_cannot_be_served_goes_with_its_choice(tmp_path: Path) -> None:
    upstream = Upstream(say("I cannot search."))
    with gateway_for(upstream, tmp_path) as http:
        client = ResponsesClient(http, "deepseek/deepseek-v4-pro", tools=False)
        client.user("Search.")
        tools = [{"type": "file_search", "vector_store_ids": ["v"]}]
        forced = {**client.request(), "tools": tools, "tool_choice": {"type": "file_search"}}
        refused = http.post("/v1/responses", json=forced)
        assert (refused.status_code, "file_search" in refused.json()["error"]["message"]) == (400, True)
        client.send(tools=tools, tool_choice="auto")
        assert client.response is not None
        assert int(client.response.headers["x-cnllm-notes"].partition(";")[0]) > 0
    assert "file_search" not in json.dumps(upstream.bodies[0])
    assert "tool_choice" not in upstream.bodies[0]
    assert not upstream.bodies[0].get("tools")


def test_litellm_11204_28587_a_response_is_continued_at_once_or_refused(tmp_path: Path) -> None:
    upstream = Upstream(call("Beijing"), say("Sunny."), say("Again."))
    with gateway_for(upstream, tmp_path, token_keys=KEYS) as http:
        client = ResponsesClient(http, "deepseek/deepseek-v4-pro")
        client.user("Weather?")
        [(id, _)] = client.send(store=True)
        first = client.body["id"]
        client.history = []
        client.result(id, "sunny")
        output = [item["id"] for item in client.body["output"]]
        client.send(store=True, previous_response_id=first)
        assert client.text() == "Sunny."
        items = http.get(f"/v1/responses/{client.body['id']}/input_items?order=asc").json()
        ids = [item["id"] for item in items["data"]]
        assert ids == ["item_0", *output, f"item_{len(output) + 1}"], "an item that has an id is shown with it"
        assert (items["first_id"], items["last_id"]) == (ids[0], ids[-1])
        assert client.body["previous_response_id"] == first
        assert http.get(f"/v1/responses/{client.body['id']}").json()["previous_response_id"] == first
        whole = http.post("/v1/responses", json={**client.request(), "stream": False, "previous_response_id": first})
        assert whole.json()["previous_response_id"] == first
        count = "/v1/responses/input_tokens"
        alone = http.post(count, json=client.request()).json()["input_tokens"]
        continued = http.post(count, json={**client.request(), "previous_response_id": first}).json()["input_tokens"]
        assert continued > alone
        wrong = http.post("/v1/responses", json={**client.request(), "input": 5, "previous_response_id": first})
        assert (wrong.status_code, wrong.json()["error"]["message"][:6]) == (400, "input:")
        for item, error in (
            (5, "input[0] is not an object"),
            ({"role": "user", "content": [5]}, "input[0].content[0] is not an object"),
        ):
            body = {**client.request(), "input": [item], "previous_response_id": first}
            wrong = http.post("/v1/responses", json=body)
            assert (wrong.status_code, wrong.json()["error"]["message"]) == (400, error)
        assert http.get(f"/v1/responses/{first}").json()["id"] == first
        page = http.get(f"/v1/responses/{first}/input_items").json()
        assert (page["object"], page["data"][0]["role"], page["has_more"]) == ("list", "user", False)
        assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
        assert http.delete(f"/v1/responses/{first}").json()["deleted"] is True
        refused = http.post("/v1/responses", json={**client.request(), "previous_response_id": first})
        assert refused.status_code == 400
        assert "previous_response_not_found" in refused.text
        assert http.get(f"/v1/responses/{first}").status_code == 404
    assert [m["role"] for m in upstream.bodies[1]["messages"]] == ["user", "assistant", "tool"]
    assert _assistants(upstream.bodies[1])[0]["reasoning_content"] == THOUGHT


def test_bifrost_5410_an_unstored_response_cannot_be_continued(tmp_path: Path) -> None:
    upstream = Upstream(say("Hi."), say("Hi again."))
    with gateway_for(upstream, tmp_path) as http:
        client = ResponsesClient(http, "zai/glm-4.7")
        client.user("Hi")
        client.send(store=False)
        assert client.body["store"] is False
        assert http.get(f"/v1/responses/{client.body['id']}").status_code == 404
        kept = http.post("/v1/responses", json={"model": "zai/glm-4.7", "input": "Hi"}).json()
        assert kept["store"] is True
        assert http.get(f"/v1/responses/{kept['id']}").status_code == 200


def test_9router_1468_context_management_goes_to_its_own_wire_only(tmp_path: Path) -> None:
    upstream = Upstream(say("Hi."))
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    with gateway_for(upstream, tmp_path) as http:
        client = MessagesClient(http, "zai/glm-4.7")
        client.user("Hi")
        client.send(context_management=edits, metadata={"user_id": "device-1"})
    assert "context_management" not in upstream.bodies[0]
    assert "device-1" not in json.dumps(upstream.bodies[0])


def test_claude_code_router_1342_a_billing_block_reaches_no_other_endpoint(tmp_path: Path) -> None:
    upstream = Upstream(say("Hi."))
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197; cch=0a1b2;"},
        {"type": "text", "text": "You are a coder."},
    ]
    with gateway_for(upstream, tmp_path) as http:
        client = MessagesClient(http, "zai/glm-4.7")
        client.user("Hi")
        client.send(system=system)
    assert "billing-header" not in json.dumps(upstream.bodies[0])
    assert "You are a coder." in json.dumps(upstream.bodies[0])


def test_openclaw_92019_reasoning_never_goes_out_as_another_models(tmp_path: Path) -> None:
    for kind in CLIENTS:
        upstream = Upstream(call("Beijing"), say("Sunny."))
        with gateway_for(upstream, tmp_path, token_keys=KEYS) as http:
            client = kind(http, "zai/glm-4.7")
            client.user("Weather?")
            [(id, _)] = client.send()
            client.result(id, "sunny")
            client.model = "deepseek/deepseek-v4-pro"
            client.send()
        assert THOUGHT not in json.dumps(upstream.bodies[1], ensure_ascii=False), kind
        assert "cnllm1." not in json.dumps(upstream.bodies[1]), kind


def test_litellm_13252_count_tokens_counts_system_and_tools(tmp_path: Path) -> None:
    with gateway_for(Upstream(say("Hi.")), tmp_path) as http:

        def count(**more: Any) -> int:
            body = {"model": "zai/glm-4.7", "messages": [{"role": "user", "content": "Hi"}], **more}
            response = http.post("/v1/messages/count_tokens", json=body)
            assert response.status_code == 200, response.text
            tokens: int = response.json()["input_tokens"]
            return tokens

        tool = {"name": "weather", "description": "The weather.", "input_schema": TOOL["schema"]}
        assert (
            0 < count() < count(system="Be short and precise, always.") < count(system="Be short. " * 9, tools=[tool])
        )
        gemini = http.post("/v1beta/models/zai/glm-4.7:countTokens", json={"contents": [{"parts": [{"text": "Hi"}]}]})
        assert gemini.json()["totalTokens"] > 0


def test_litellm_41406_a_stream_begins_with_an_estimate_and_ends_with_the_truth(tmp_path: Path) -> None:
    has_begun = threading.Event()  # before the endpoint says its own number
    with gateway_for(Upstream(say("Hi, you.", wait=has_begun, lasts=False)), tmp_path) as http:
        client = MessagesClient(http, "zai/glm-4.7")
        client.user("Hello there. " * 100)
        with http.stream("POST", client.path(), json=client.request()) as response:
            text = ""
            for piece in response.iter_text():
                text += piece
                has_begun.set()
    events = frames(text)
    assert 200 < events[0]["message"]["usage"]["input_tokens"] < 600
    assert next(e for e in events if e["type"] == "message_delta")["usage"]["input_tokens"] == USAGE["prompt_tokens"]


def test_litellm_36024_silence_is_pinged_and_a_dead_endpoint_is_an_error(tmp_path: Path) -> None:
    never = threading.Event()
    upstream = Upstream(say("Hello.", wait=never))
    timeout = Timeouts(idle=1.0, progress=1.0)
    for kind in (MessagesClient, ChatClient, ResponsesClient, GeminiClient):
        with gateway_for(upstream, tmp_path, ping=0.2, timeout=timeout) as http:
            client = kind(http, "zai/glm-4.7")
            client.user("Hi")
            text = http.post(client.path(), json=client.request()).text
        assert text.count("ping") >= 2 or kind is GeminiClient, (kind, text)
        assert "error" in text.rpartition("data: ")[2], (kind, text)
        assert not _ended_clean(text), (kind, text)
    never.set()


def _ended_clean(text: str) -> bool:
    """Whether a stream says that its reply is whole."""
    marks = ("message_stop", '"response.completed"', "[DONE]", '"finish_reason":"stop"', '"finishReason":"STOP"')
    return any(mark in text for mark in marks)


def test_portkey_1797_a_cut_stream_is_never_ended_as_a_clean_one(tmp_path: Path) -> None:
    for answer in (say("Half of it", cut=True), Answer(call("Beijing").deltas, cut=True)):
        for kind in CLIENTS:
            with gateway_for(Upstream(answer), tmp_path, token_keys=KEYS) as http:
                client = kind(http, "zai/glm-4.7")
                client.user("Hi")
                response = http.post(client.path(), json=client.request())
            assert not _ended_clean(response.text), (kind, response.text)
            assert response.status_code != 200 or "error" in response.text, (kind, response.text)


def test_no_unfinished_call_is_handed_out_as_complete(tmp_path: Path) -> None:
    """Arguments that break off before a normal end, a body whose word says that it goes on, a block without its end."""
    torn = Answer(call("Beijing").deltas[:-1], "tool_calls")
    goes_on = Answer(call("Beijing").deltas, "in_progress")
    for answer, ways in ((torn, (True, False)), (goes_on, (False,))):
        with gateway_for(Upstream(answer), tmp_path, token_keys=KEYS) as http:
            for kind in CLIENTS:
                for stream in ways:
                    client = kind(http, "zai/glm-4.7", stream=stream)
                    client.user("Weather?")
                    _check_broken(http.post(client.path(), json=client.request()), stream)
    block = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
    unstopped = [
        named(type="message_start", message={"content": []}),
        named(type="content_block_start", index=0, content_block=block),
        named(type="message_delta", delta={"stop_reason": "tool_use"}),
        named(type="message_stop"),
    ]
    with Peer(*[[sse(*unstopped)]] * len(CLIENTS)) as peer:
        home = f'[providers.home]\ntitle = "x"\nprotocol = "anthropic-messages"\nbase_url = "{peer.url}"\nkeys = []\n'
        more = home + '[models."home/m"]\nlimits = { context = 100_000 }\n'
        place: Any = SimpleNamespace(url=peer.url, server_port=1)
        with gateway_for(place, tmp_path, "zai", more=more) as http:
            for kind in CLIENTS:
                client = kind(http, "home/m")
                client.user("Weather?")
                _check_broken(http.post(client.path(), json=client.request()), True)


def test_the_text_of_an_unfinished_reply_is_no_completed_item(tmp_path: Path) -> None:
    for answer, status in (
        (say("Half of it", cut=True), None),
        (Answer(say("Half of it").deltas, "length"), "incomplete"),
        (say("All of it"), "completed"),
    ):
        for stream in (True, False) if status else (True,):
            with gateway_for(Upstream(answer), tmp_path, token_keys=KEYS) as http:
                client = ResponsesClient(http, "zai/glm-4.7", stream=stream)
                client.user("Hi")
                text = http.post(client.path(), json=client.request()).text
            found = {
                item for item in ("completed", "incomplete") if f'"status":"{item}"' in text.replace('": "', '":"')
            }
            assert found == ({status} if status else set()), text


def test_a_response_that_failed_in_its_stream_is_not_kept_as_a_completed_one(tmp_path: Path) -> None:
    torn = Answer(call("Beijing").deltas[:-1], "tool_calls")
    with gateway_for(Upstream(torn), tmp_path, token_keys=KEYS) as http:
        client = ResponsesClient(http, "zai/glm-4.7")
        client.user("Weather?")
        request = {**client.request(), "store": True}
        events = frames(http.post(client.path(), json=request).text)
        assert events[-1]["type"] == "response.failed", events[-1]
        id = events[-1]["response"]["id"]
        kept = http.get(f"/v1/responses/{id}")
        assert kept.status_code == 404, kept.text
        goes_on = http.post(client.path(), json={**request, "previous_response_id": id})
        assert goes_on.json()["error"]["code"] == "previous_response_not_found", goes_on.text


def test_a_reply_that_failed_in_its_stream_is_no_success_in_the_log_and_the_metrics(tmp_path: Path) -> None:
    torn = Answer(call("Beijing").deltas[:-1], "tool_calls")
    with gateway_for(Upstream(torn), tmp_path, token_keys=KEYS) as http:
        for kind in CLIENTS:
            client = kind(http, "zai/glm-4.7")
            client.user("Weather?")
            id = http.post(client.path(), json=client.request()).headers["x-request-id"]
            assert http.get(f"/v1/requests/{id}").json().get("outcome") == "the reply broke off", kind
        lines = [line for line in http.get("/metrics").text.splitlines() if line.startswith("cnllm_requests_total{")]
        assert [line for line in lines if 'verb="generate"' in line and 'outcome="failed"' not in line] == []


def _check_broken(response: httpx.Response, stream: bool) -> None:
    """The client is told that the reply broke off, and reads no end of it."""
    text = response.text
    assert not _ended_clean(text), text
    assert '"stop_reason":"tool_use"' not in text, text
    assert '"finish_reason":"tool_calls"' not in text, text
    assert "error" in text.rpartition("data: ")[2], text
    assert stream or response.status_code == 502, text


def test_new_api_6394_parallel_calls_have_one_open_block_and_right_indexes(tmp_path: Path) -> None:
    cities = ["Beijing", "上海", "Xi'an"]
    deltas = list(call(*cities).deltas)
    heads, pieces = deltas[2::3], [d for n, d in enumerate(deltas[2:]) if n % 3]
    mixed = [*deltas[:2], *heads, *pieces[::2], *pieces[1::2]]  # all calls begin, and grow in turns
    for kind in CLIENTS:
        with gateway_for(Upstream(Answer(mixed, "tool_calls")), tmp_path) as http:
            client = kind(http, "zai/glm-4.7")
            client.user("Weather?")
            calls = client.send()  # the client of Messages checks its blocks
        assert [arguments["city"] for _, arguments in calls] == cities, kind


def test_litellm_23510_call_ids_are_unique_in_a_conversation(tmp_path: Path) -> None:
    for kind in CLIENTS:
        upstream = Upstream(call("Beijing"), call("上海"), say("Sunny."))
        with gateway_for(upstream, tmp_path, token_keys=KEYS) as http:
            client = kind(http, "zai/glm-4.7")
            client.user("Weather?")
            ids = []
            for _ in range(2):
                [(id, _)] = client.send()
                ids.append(id)
                client.result(id, "sunny")
            client.send()
        assert len(set(ids)) == 2, kind
        sent = [c["id"] for turn in _assistants(upstream.bodies[2]) for c in turn["tool_calls"]]
        assert len(set(sent)) == 2, kind
        assert sent == [m["tool_call_id"] for m in upstream.bodies[2]["messages"] if m["role"] == "tool"], kind


def test_claude_code_router_183_a_leaked_call_is_a_call(tmp_path: Path) -> None:
    leak = "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Beijing</arg_value>\n</tool_call>"
    for kind in CLIENTS:
        for stream in (True, False):
            with gateway_for(Upstream(say("I look.\n" + leak)), tmp_path) as http:
                client = kind(http, "zai/glm-4.7", stream=stream)
                client.user("Weather?")
                assert [arguments for _, arguments in client.send()] == [{"city": "Beijing"}], (kind, stream)
            assert "tool_call>" not in client.text(), (kind, stream)


def test_oh_my_claudecode_3574_an_overflow_is_said_in_the_clients_own_words(tmp_path: Path) -> None:
    words = "This model's maximum context length is 131072 tokens. However, you requested 140000 tokens."
    for kind, status, expected in (
        (MessagesClient, 400, "prompt is too long: 140000 tokens > 131072 maximum"),
        (ChatClient, 400, "context_length_exceeded"),
        (ResponsesClient, 400, "context_length_exceeded"),
        (GeminiClient, 400, "exceeds the maximum number of tokens allowed (131072)"),
    ):
        for said in (words, words.replace("000 ", ",000 ").replace("072 ", ",072 ")):
            with gateway_for(Upstream(error(400, said)), tmp_path) as http:
                client = kind(http, "deepseek/deepseek-v4-pro")
                client.user("Hi")
                response = http.post(client.path(), json=client.request())
            assert response.status_code == status, (kind, response.text)
            assert expected in response.text, (kind, response.text)
            assert "140000" in response.text.replace("140,", "140"), (kind, response.text)


def test_clip_proxy_api_2758_max_tokens_is_clamped_with_a_note(tmp_path: Path) -> None:
    upstream = Upstream(say("Hi."))
    with gateway_for(upstream, tmp_path) as http:
        client = MessagesClient(http, "deepseek/deepseek-v4-pro")
        client.user("Hi")
        client.send(max_tokens=9_000_000)
        assert client.response is not None
        notes, _, link = client.response.headers["x-cnllm-notes"].partition("; log=")
        assert int(notes) > 0
        entry = http.get(link).json()
    assert upstream.bodies[0]["max_tokens"] < 9_000_000
    assert any("max_tokens" in note["flag"] or "max_tokens" in note["said"] for note in entry["notes"]), entry


def test_llama_cpp_22536_a_picture_in_a_result_reaches_a_model_that_reads_it(tmp_path: Path) -> None:
    picture = {"type": "base64", "media_type": "image/png", "data": PNG}
    image = {"type": "image", "source": picture}
    upstream = Upstream(say("A dot."))
    with gateway_for(upstream, tmp_path) as http:
        client = MessagesClient(http, "zai/glm-4.6v")
        client.user("Look.")
        client.history += [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [image]}]},
        ]
        client.send()
    assert PNG in json.dumps(upstream.bodies[0])


def test_litellm_40291_what_one_process_writes_another_obeys(tmp_path: Path) -> None:
    """Two gateways on one store: a conversation goes from one to the other at every turn."""
    upstream = Upstream(call("Beijing"), call("上海", thought="Now 上海."), say("Sunny."))
    url = f"sqlite:{tmp_path}/shared.db"
    with (
        gateway_for(upstream, tmp_path, token_keys=KEYS, store=url) as one,
        gateway_for(upstream, tmp_path, token_keys=KEYS, store=url) as two,
    ):
        client = ChatClient(one, "deepseek/deepseek-v4-pro")
        client.user("Weather?")
        for http in (one, two):
            client.http = http
            [(id, _)] = client.send()
            client.result(id, "sunny")
        client.http = one
        client.send()
    assert [turn["reasoning_content"] for turn in _assistants(upstream.bodies[2])] == [THOUGHT, "Now 上海."]
