"""Blocks of tools that a vendor executes go back to the model that wrote them, and to no other one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from cnllm import Registry, engine
from cnllm.gateway.store import open_store
from cnllm.gateway.store.memory import MemoryStore
from cnllm.sdk import http_client

Json = dict[str, Any]
WIRES = {
    "claude": ("anthropic-messages", "/v1/messages"),
    "gpt": ("openai-responses", "/v1/responses"),
    "gem": ("gemini", "/v1beta/models/MODEL:generateContent"),
}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rain"}}
PAGE = {"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "sealed"}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [PAGE]}
CITED = {
    "type": "web_search_result_location",
    "url": "https://a.example",
    "title": "A",
    "cited_text": "x",
    "encrypted_index": "sealed",
}
BLOCKS = [SEARCH, FOUND, {"type": "text", "text": "Rain.", "citations": [CITED]}]
ITEMS: list[Json] = [
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "rain"}},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Rain.", "annotations": []}],
    },
]
PARTS = [
    {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
    {"text": "Rain."},
]
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "own"}
REPLIES: dict[str, Json] = {
    "claude": {"type": "message", "role": "assistant", "content": BLOCKS, "stop_reason": "end_turn"},
    "gpt": {"status": "completed", "output": ITEMS},
    "gem": {"candidates": [{"content": {"role": "model", "parts": PARTS}, "finishReason": "STOP"}]},
}


def streamed(reply: Json) -> bytes:
    """The events with which an endpoint of Messages streams a reply."""
    chunks: list[Json] = [{"type": "message_start", "message": {**reply, "content": [], "stop_reason": None}}]
    for index, block in enumerate(reply["content"]):
        cut: Json = {"text": "", "citations": []} if block["type"] == "text" else {}
        cut = {"thinking": "", "signature": ""} if block["type"] == "thinking" else cut
        deltas: list[Json] = []
        if block["type"] == "server_tool_use":
            cut = {"input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        elif block["type"] == "text":
            deltas = [{"type": "citations_delta", "citation": item} for item in block["citations"]]
            deltas.append({"type": "text_delta", "text": block["text"]})
        elif block["type"] == "thinking":
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        chunks.append({"type": "content_block_start", "index": index, "content_block": {**block, **cut}})
        chunks += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        chunks.append({"type": "content_block_stop", "index": index})
    chunks += [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    return b"".join(b"event: %b\ndata: %b\n\n" % (c["type"].encode(), json.dumps(c).encode()) for c in chunks)


class Gateway:
    """An in-process gateway before endpoints that answer with one reply each, and keep what they were sent."""

    def __init__(self, folder: Path, store: Any = None, replies: dict[str, Json] = REPLIES) -> None:
        file = folder / "own.toml"
        tables = [
            f'[providers.{name}]\nprotocol = "{wire}"\nbase_url = "http://127.0.0.1:9/{name}"\nkeys = []\n'
            for name, (wire, _) in WIRES.items()
        ]
        tables.append(
            '[providers.other]\nprotocol = "anthropic-messages"\nbase_url = "http://127.0.0.1:9/other"\nkeys = []\n'
        )
        file.write_text("\n".join(tables))
        self.bodies: list[Json] = []
        self.replies = {**replies, "other": replies["claude"]}
        self.http = http_client(
            Registry.load(file),
            transport=httpx.MockTransport(self.answer),
            store=store or MemoryStore(),
            family="httpx",
        )

    def answer(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.bodies.append(body)
        reply = self.replies[request.url.path.split("/")[1]]
        if body.get("stream"):
            return httpx.Response(200, content=streamed(reply), headers={"content-type": "text/event-stream"})
        return httpx.Response(200, json=reply)

    def post(self, name: str, body: Json) -> httpx.Response:
        _, path = WIRES["claude" if name == "other" else name]
        url = "http://cnllm.invalid" + path.replace("MODEL", f"{name}/m")
        response: httpx.Response = self.http.post(url, json={"model": f"{name}/m", **body})
        assert response.status_code == 200, response.text
        return response


def ask(text: str) -> Json:
    return {"role": "user", "content": text}


def content_of(response: httpx.Response) -> list[Json]:
    """The blocks of a reply of Messages, as an SDK adds them up."""
    if response.headers["content-type"].startswith("application/json"):
        blocks: list[Json] = response.json()["content"]
        return blocks
    blocks = []
    inputs: dict[int, str] = {}
    for line in response.text.splitlines():
        event = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
        match event:
            case {"type": "content_block_start", "content_block": block}:
                blocks.append(dict(block))
            case {"delta": {"type": "text_delta", "text": text}}:
                blocks[-1]["text"] += text
            case {"delta": {"type": "thinking_delta", "thinking": text}}:
                blocks[-1]["thinking"] += text
            case {"delta": {"type": "signature_delta", "signature": text}}:
                blocks[-1]["signature"] = text
            case {"delta": {"type": "citations_delta", "citation": citation}}:
                blocks[-1].setdefault("citations", []).append(citation)
            case {"delta": {"type": "input_json_delta", "partial_json": piece}}:
                inputs[len(blocks) - 1] = inputs.get(len(blocks) - 1, "") + piece
    for index, text in inputs.items():
        blocks[index]["input"] = json.loads(text)
    return blocks


@pytest.mark.parametrize("stream", [False, True])
def test_a_search_and_its_citations_go_back_to_their_author_only(tmp_path: Path, stream: bool) -> None:
    gateway = Gateway(tmp_path)
    more = {"max_tokens": 99, "stream": stream}
    blocks = content_of(gateway.post("claude", {**more, "messages": [ask("Rain?")]}))
    assert blocks == BLOCKS
    history = [ask("Rain?"), {"role": "assistant", "content": blocks}, ask("And then?")]
    gateway.post("claude", {**more, "messages": history})
    assert gateway.bodies[-1]["messages"][1]["content"] == BLOCKS
    response = gateway.post("other", {**more, "messages": history})
    assert gateway.bodies[-1]["messages"][1]["content"] == "Rain."
    assert "block-foreign" in response.headers["x-cnllm-notes"]
    forged = [{**SEARCH, "id": "srvtoolu_2"}, *BLOCKS[1:2], {"type": "text", "text": "Snow."}]
    gateway.post("claude", {**more, "messages": [ask("Rain?"), {"role": "assistant", "content": forged}, ask("?")]})
    assert gateway.bodies[-1]["messages"][1]["content"] == "Snow."


def test_a_token_in_the_reasoning_proves_the_author_without_a_store(tmp_path: Path) -> None:
    """Another process has an empty store, and the same keys."""
    replies = {**REPLIES, "claude": {**REPLIES["claude"], "content": [THOUGHT, *BLOCKS]}}
    body = {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    first, second = Gateway(tmp_path, replies=replies), Gateway(tmp_path, replies=replies)
    blocks = content_of(first.post("claude", {**body, "messages": [ask("Rain?")]}))
    history = [ask("Rain?"), {"role": "assistant", "content": blocks}, ask("And then?")]
    second.post("claude", {**body, "messages": history})
    sent = second.bodies[-1]["messages"][1]["content"]
    assert [block for block in sent if block["type"] != "thinking"] == BLOCKS


def test_items_of_a_search_go_back_to_their_author(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Rain?"}]}
    output = gateway.post("gpt", {"input": [user], "store": False}).json()["output"]
    gateway.post("gpt", {"input": [user, *output, user], "store": False})
    sent = gateway.bodies[-1]["input"]
    assert [item for item in sent if item.get("type") == "web_search_call"] == ITEMS[:1]
    response = gateway.post("gpt", {"input": "Rain?"})
    gateway.post("gpt", {"input": "And then?", "previous_response_id": response.json()["id"]})
    assert [item for item in gateway.bodies[-1]["input"] if item.get("type") == "web_search_call"] == ITEMS[:1]


COMPACTED: Json = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}


@pytest.mark.parametrize("output", [[COMPACTED], [*ITEMS, COMPACTED], [COMPACTED, ITEMS[1]]])
def test_a_summary_that_stands_for_all_before_it_goes_back_to_its_author(tmp_path: Path, output: list[Json]) -> None:
    """Clients leave out what the summary stands for, and some of them its id."""
    gateway = Gateway(tmp_path, replies={**REPLIES, "gpt": {"status": "completed", "output": output}})
    user = {"type": "message", "role": "user", "content": "Rain?"}
    got = gateway.post("gpt", {"input": [user, *([ITEMS[1], user] * 2)], "store": False}).json()["output"]
    rest = got[[item["type"] for item in got].index("compaction") :]
    without_id = [{key: value for key, value in rest[0].items() if key != "id"}, *rest[1:]]
    for items in (rest, without_id, [user, user, *without_id]):
        gateway.post("gpt", {"input": [*items, user], "store": False})
        sent = gateway.bodies[-1]["input"]
        assert [item["encrypted_content"] for item in sent if item["type"] == "compaction"] == ["sealed"]
        later = gateway.post("gpt", {"input": [*items, user], "store": False}).json()["output"]
        gateway.post("gpt", {"input": [*items, user, *later, user], "store": False})
        sent = gateway.bodies[-1]["input"]
        assert [item["encrypted_content"] for item in sent if item["type"] == "compaction"] == ["sealed"] * 2
    foreign = {**COMPACTED, "encrypted_content": "another's"}
    response = gateway.post("gpt", {"input": [foreign, user], "store": False})
    assert [item["type"] for item in gateway.bodies[-1]["input"]] == ["message"]
    assert "block-foreign" in response.headers["x-cnllm-notes"]


def test_a_summary_of_claude_begins_a_conversation_as_it_was(tmp_path: Path) -> None:
    summary = {"type": "compaction", "content": "They asked for rain."}
    content = [summary, {"type": "text", "text": "Rain."}]
    gateway = Gateway(tmp_path, replies={**REPLIES, "claude": {**REPLIES["claude"], "content": content}})
    more = {"max_tokens": 99}
    got = content_of(gateway.post("claude", {**more, "messages": [ask("Rain?")]}))
    gateway.post("claude", {**more, "messages": [{"role": "assistant", "content": got}, ask("And then?")]})
    assert content[0] in [block for turn in gateway.bodies[-1]["messages"] for block in turn["content"]]


@pytest.mark.parametrize("store", ["memory:", "sqlite:"])
def test_an_item_that_a_client_names_by_its_id_is_in_the_request(tmp_path: Path, store: str) -> None:
    opened = open_store(store + ("" if store == "memory:" else str(tmp_path / "state.db")))
    gateway = Gateway(tmp_path, store=opened)
    response = gateway.post("gpt", {"input": "Rain?"}).json()
    names = [{"type": "item_reference", "id": item["id"]} for item in response["output"]]
    for named in (names, [{"id": name["id"]} for name in names]):
        gateway.post("gpt", {"input": [ask("Rain?"), *named, ask("And then?")]})
        sent = gateway.bodies[-1]["input"]
        assert [item.get("role", item.get("type")) for item in sent] == ["user", "web_search_call", "assistant", "user"]
        assert "Rain." in json.dumps(sent[2])
    own = {"type": "reasoning", "id": names[1]["id"]}  # it names no other item
    gateway.post("gpt", {"input": [ask("Rain?"), own, ask("And then?")]})
    assert [item.get("role", item.get("type")) for item in gateway.bodies[-1]["input"]] == ["user", "user"]
    opened.close()


SPOKEN: dict[str, list[Json]] = {
    "openai-responses": [
        {"type": "response.output_item.added", "output_index": 0, "item": {**ITEMS[1], "content": []}},
        {"type": "response.output_text.delta", "output_index": 0, "item_id": "msg_1", "delta": "Rain."},
        {"type": "response.output_item.done", "output_index": 0, "item": ITEMS[1]},
        {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": ITEMS[1:]}},
    ],
    "openai-chat": [
        {"choices": [{"index": 0, "delta": {"content": "Rain."}}]},
        {"choices": [{"index": 0, "delta": {"reasoning_content": "I looked."}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ],
}
"""Streams in which an item has another id, or another place, than in the whole reply."""


@pytest.mark.parametrize("protocol", SPOKEN)
def test_an_item_is_kept_by_the_id_that_it_has_in_a_stream(tmp_path: Path, protocol: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(f'[providers.own]\nprotocol = "{protocol}"\nbase_url = "http://127.0.0.1:9"\nkeys = []\n')
    bodies: list[Json] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        content = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in SPOKEN[protocol])
        return httpx.Response(200, content=content, headers={"content-type": "text/event-stream"})

    http = http_client(Registry.load(file), transport=httpx.MockTransport(answer), store=MemoryStore(), family="httpx")
    url = "http://cnllm.invalid/v1/responses"
    stream = http.post(url, json={"model": "own/m", "input": "Rain?", "stream": True}).text
    response = json.loads(stream.rpartition("data: ")[2])["response"]
    assert http.get(f"{url}/{response['id']}").json() == response
    names = [{"type": "item_reference", "id": item["id"]} for item in response["output"]]
    http.post(url, json={"model": "own/m", "input": [ask("Rain?"), *names, ask("And then?")], "stream": True})
    sent = bodies[-1].get("input") or bodies[-1]["messages"]
    assert [turn["role"] for turn in sent if "role" in turn] == ["user", "assistant", "user"]
    assert "Rain." in json.dumps(sent[1])


def test_an_item_that_is_not_kept_is_named(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    response = gateway.post("gpt", {"input": "Rain?"}).json()
    gateway.http.delete(f"http://cnllm.invalid/v1/responses/{response['id']}")
    result = {"type": "function_call_output", "call_id": "call_unknown", "output": "wet"}
    for id in (response["output"][0]["id"], "msg_unknown"):
        items = [ask("Rain?"), {"type": "item_reference", "id": id}, result]
        assert "block-foreign" in gateway.post("gpt", {"input": items}).headers["x-cnllm-notes"]
        request = engine.decode_request("openai-responses", {"model": "m", "input": items})
        notes = engine.build_request(Registry.load().resolve("zai/glm-4.7"), request.messages).notes
        done = [note.did for note in notes if note.code == "block-foreign"]
        assert done == ["left out: item_reference", "left out: function_call_output"]


def test_executed_code_goes_back_to_its_author(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    user = {"role": "user", "parts": [{"text": "Rain?"}]}
    content = gateway.post("gem", {"contents": [user]}).json()["candidates"][0]["content"]
    assert content["parts"] == PARTS
    gateway.post("gem", {"contents": [user, content, user]})
    assert gateway.bodies[-1]["contents"][1]["parts"] == PARTS


def test_what_a_wire_adds_to_texts_and_calls_goes_back_to_its_author(tmp_path: Path) -> None:
    """The reasoning proves the author, or the store does where there is none."""
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    said = {**ITEMS[1], "phase": "commentary"}
    call = {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": CALL_ID, "name": "rain"}
    result = {"type": "function_call_output", "call_id": CALL_ID, "output": "wet"}
    user = {"type": "message", "role": "user", "content": "Rain?"}
    for items in ([reasoning, said, {**call, "arguments": "{}"}], [said]):
        gateway = Gateway(tmp_path, replies={**REPLIES, "gpt": {"status": "completed", "output": items}})
        output = gateway.post("gpt", {"input": [user], "store": False}).json()["output"]
        later = [result] if len(items) > 1 else [user]
        response = gateway.post("gpt", {"input": [user, *output, *later], "store": False})
        assert gateway.bodies[-1]["input"][1:-1] == items
        assert "key-foreign" not in response.headers["x-cnllm-notes"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_caller_of_a_call_goes_back_with_it(tmp_path: Path, stream: bool) -> None:
    use = {"type": "tool_use", "id": "toolu_01A09q90qw90lq917835lq9d", "name": "rain", "input": {}}
    blocks = [THOUGHT, *BLOCKS, {**use, "caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}}]
    gateway = Gateway(tmp_path, replies={**REPLIES, "claude": {**REPLIES["claude"], "content": blocks}})
    body = {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}, "stream": stream}
    content = content_of(gateway.post("claude", {**body, "messages": [ask("Rain?")]}))
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": "wet"}]}
    history = [ask("Rain?"), {"role": "assistant", "content": content}, result]
    gateway.post("claude", {**body, "messages": history})
    assert gateway.bodies[-1]["messages"][1]["content"] == blocks


CALL_ID = "call_tHnPiZ9Kq2mZ0Xv3bR7cW1dE"
CALL = {"functionCall": {"name": "rain", "args": {"city": "Oslo"}}, "thoughtSignature": "Y2FsbA=="}
SIGNED = {"text": "Rain.", "thoughtSignature": "c2lnbmVk"}
RESULT = {"role": "user", "parts": [{"functionResponse": {"name": "rain", "response": {"output": "wet"}}}]}


@pytest.mark.parametrize(
    "parts",
    [[SIGNED], [{"text": "Rain."}, {"text": "", "thoughtSignature": "c2lnbmVk"}], [SIGNED, CALL]],
    ids=["alone", "behind", "before-a-call"],
)
def test_a_signature_of_a_text_goes_back_to_its_author(tmp_path: Path, parts: list[Json]) -> None:
    reply = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
    gateway = Gateway(tmp_path, replies={**REPLIES, "gem": reply})
    user = {"role": "user", "parts": [{"text": "Rain?"}]}
    content = gateway.post("gem", {"contents": [user]}).json()["candidates"][0]["content"]
    assert [part["text"] for part in content["parts"] if "text" in part] == [p["text"] for p in parts if "text" in p]
    response = gateway.post("gem", {"contents": [user, content, RESULT if CALL in parts else user]})
    assert gateway.bodies[-1]["contents"][1]["parts"] == parts
    assert "key-foreign" not in response.headers["x-cnllm-notes"]
    forged = {**content, "parts": [{**part, "text": "Snow."} for part in content["parts"] if "text" in part]}
    gateway.post("gem", {"contents": [user, forged, user]})
    assert "thoughtSignature" not in json.dumps(gateway.bodies[-1])


def test_a_client_without_pictures_reads_a_line_and_gets_a_note(tmp_path: Path) -> None:
    part = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    picture = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]}
    gateway = Gateway(tmp_path, replies={**REPLIES, "gem": picture})
    response = gateway.post("claude", {"model": "gem/m", "max_tokens": 99, "messages": [ask("Draw.")]})
    [block] = response.json()["content"]
    assert (block["type"], "image/png" in block["text"]) == ("text", True)
    assert "media-as-text" in response.headers["x-cnllm-notes"]


def test_a_prompt_that_the_endpoint_has_stored_needs_no_input(tmp_path: Path) -> None:
    """As OpenAI's clients send it: the messages are the prompt's, and the request has its variables alone."""
    gateway = Gateway(tmp_path)
    prompt = {"id": "pmpt_1", "variables": {"city": "Paris"}}
    response = gateway.post("gpt", {"prompt": prompt})
    assert gateway.bodies[-1]["prompt"] == prompt
    assert "input" not in gateway.bodies[-1]
    gateway.post("gpt", {"prompt": prompt, "input": "And then?", "previous_response_id": response.json()["id"]})
    sent = gateway.bodies[-1]["input"]
    assert [item.get("role", item.get("type")) for item in sent] == ["web_search_call", "assistant", "user"]
    for body in ({"model": "gpt/m"}, {"model": "claude/m", "prompt": prompt}):
        assert gateway.http.post("http://cnllm.invalid/v1/responses", json=body).status_code == 400
