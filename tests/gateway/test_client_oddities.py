"""What real clients send beside the letter of their protocol reaches every wire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from cnllm import Registry, engine
from cnllm.gateway.store.memory import MemoryStore
from cnllm.sdk import http_client

Json = dict[str, Any]
WIRES = {
    "chat": "openai-chat",
    "messages": "anthropic-messages",
    "responses": "openai-responses",
    "gemini": "gemini",
}
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
REPLIES: dict[str, Json] = {
    "chat": {"choices": [{"message": {"role": "assistant", "content": "Ok."}, "finish_reason": "stop"}]},
    "messages": {"role": "assistant", "content": [{"type": "text", "text": "Ok."}], "stop_reason": "end_turn"},
    "responses": {
        "status": "completed",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Ok."}]}],
    },
    "gemini": {"candidates": [{"content": {"role": "model", "parts": [{"text": "Ok."}]}, "finishReason": "STOP"}]},
}


class Gateway:
    """An in-process gateway before an endpoint of each wire, which keeps the body that it was sent."""

    def __init__(self, folder: Path, log: pytest.LogCaptureFixture) -> None:
        self._log = log
        file = folder / "own.toml"
        tables = [
            f'[providers.{name}]\nprotocol = "{wire}"\nbase_url = "http://127.0.0.1:9/{name}-wire"\nkeys = []\n'
            for name, wire in WIRES.items()
        ]
        file.write_text("\n".join(tables))
        self.replies = dict(REPLIES)
        self.sent: Json = {}
        self.http = http_client(
            Registry.load(file), transport=httpx.MockTransport(self._answer), store=MemoryStore(), family="httpx"
        )

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.sent = json.loads(request.content)
        return httpx.Response(200, json=self.replies[request.url.path.split("/")[1].removesuffix("-wire")])

    def post(self, path: str, wire: str, body: Json) -> Json:
        """Return the answer of the model on a wire."""
        response = self.http.post(f"http://cnllm.invalid{path}", json={"model": f"{wire}/m", **body})
        assert response.status_code == 200, response.text
        answer: Json = response.json()
        return answer

    @property
    def notes(self) -> list[str]:
        """The notes on the requests."""
        return [record.getMessage() for record in self._log.records]

    @property
    def words(self) -> str:
        """The body that the endpoint was sent, as text."""
        return json.dumps(self.sent, ensure_ascii=False)


@pytest.fixture
def gateway(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Gateway:
    caplog.set_level("DEBUG", "cnllm")
    return Gateway(tmp_path, caplog)


# ── messages between agents ──────────────────────────────────────────────────
SECRET = "gAAAAA" + "Zx9_-" * 20 + "=="


def to_agent(*content: Json) -> Json:
    item = {"type": "agent_message", "id": "amsg_1", "author": "/a", "recipient": "/a/b", "content": list(content)}
    return {"input": [{"role": "user", "content": "Begin."}, item]}


def envelope(text: str) -> Json:
    return {"type": "input_text", "text": text}


def sealed(text: str) -> Json:
    return {"type": "encrypted_content", "encrypted_content": text}


@pytest.mark.parametrize("wire", WIRES)
def test_a_task_that_one_agent_gives_another_is_read_by_every_model(gateway: Gateway, wire: str) -> None:
    body = to_agent(envelope("Task from /a:\n"), sealed("Count the 文件 in src, please."))
    gateway.post("/v1/responses", wire, body)
    assert "Task from /a:\\nCount the 文件 in src, please." in gateway.words
    assert "agent_message" not in gateway.words
    assert not [note for note in gateway.notes if "block-foreign" in note]


@pytest.mark.parametrize("wire", WIRES)
def test_an_encrypted_task_goes_to_its_own_wire_as_it_is_and_elsewhere_a_note_names_it(
    gateway: Gateway, wire: str
) -> None:
    body = to_agent(envelope("Task from /a:\n"), sealed(SECRET), envelope("Be quick."))
    gateway.post("/v1/responses", wire, body)
    if wire == "responses":
        item = {key: value for key, value in body["input"][1].items() if key != "id"}
        assert gateway.sent["input"][1] == item
        return
    assert SECRET not in gateway.words
    assert "Task from /a:" in gateway.words
    assert "Be quick." in gateway.words
    assert [note for note in gateway.notes if "block-foreign" in note and "encrypted_content" in note]


def test_a_picture_that_one_agent_shows_another_stays_between_its_words(gateway: Gateway) -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    gateway.post("/v1/responses", "chat", to_agent(envelope("Look: "), picture, envelope("What is "), envelope("it?")))
    sent = gateway.sent["messages"][1]["content"]
    assert [part.get("text", part["type"]) for part in sent] == ["Look: ", "image_url", "What is it?"]


@pytest.mark.parametrize(("content", "text"), [("Plain words.", "Plain words."), (None, None)])
def test_a_message_of_an_agent_may_be_a_string_or_empty(gateway: Gateway, content: Any, text: str | None) -> None:
    item = {"type": "agent_message", "author": "/a", "recipient": "/b", "content": content}
    gateway.post("/v1/responses", "chat", {"input": [{"role": "user", "content": "Begin."}, item]})
    assert gateway.sent["messages"][1:] == ([{"role": "user", "content": text}] if text else [])


def test_a_message_of_an_agent_in_another_form_is_refused_by_its_place(gateway: Gateway) -> None:
    body = {"model": "chat/m", "input": [{"type": "agent_message", "content": 3}]}
    response = gateway.http.post("http://cnllm.invalid/v1/responses", json=body)
    assert response.status_code == 400
    assert "input[0].content" in response.json()["error"]["message"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("is_open", [False, True])
def test_a_task_that_comes_as_the_output_of_no_call_reaches_every_model(
    gateway: Gateway, wire: str, is_open: bool
) -> None:
    """Codex's app gives a thread a task of another one as an output without `call_id`, as the first item of a turn."""
    task = {"type": "function_call_output", "name": "send_message_to_thread", "namespace": "app", "output": "Count 3."}
    call = {"type": "function_call", "call_id": "c1", "name": "run", "arguments": "{}"}
    done = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
    turns = [call, task, done] if is_open else [call, done, task]
    for items in ([task], [{"role": "user", "content": "Hi."}, *turns]):
        gateway.post("/v1/responses", wire, {"input": items})
        assert "From the result of app__send_message_to_thread:" in gateway.words
        assert gateway.words.count("Count 3.") == 1
        assert gateway.words.count('"ok"') == (len(items) > 1)
        assert [note for note in gateway.notes if "result-orphan" in note and "sent as the user's" in note]
        assert not [note for note in gateway.notes if "result-paired" in note]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("wish", [{"type": "compaction_trigger"}, {"type": "configuration_update", "reasoning": None}])
def test_what_a_client_asks_of_the_endpoint_in_an_item_goes_to_its_own_wire(
    gateway: Gateway, wire: str, wish: Json
) -> None:
    """Codex asks so for a summary of all before, in the middle of a turn, too."""
    call = {"type": "function_call", "call_id": "c1", "name": "run", "arguments": "{}"}
    done = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
    for before in ([], [call, done]):
        gateway.post("/v1/responses", wire, {"input": [{"role": "user", "content": "Begin."}, *before, wish]})
        if wire == "responses":
            assert gateway.sent["input"][-1] == wish
            assert not [note for note in gateway.notes if "block-foreign" in note]
        else:
            assert wish["type"] not in gateway.words
            assert [note for note in gateway.notes if "block-foreign" in note and wish["type"] in note]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_a_patch_that_comes_as_the_arguments_of_a_function_is_not_lost(gateway: Gateway, wire: str, path: str) -> None:
    """Cursor sends the calls of its custom tool back so."""
    patch = "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch"
    tool = {"type": "custom", "name": "ApplyPatch", "format": {"type": "grammar", "syntax": "lark", "definition": "s"}}
    function = {"name": "ApplyPatch", "arguments": patch}
    if path == "/v1/responses":
        call = {"type": "function_call", "call_id": "c1", **function}
        done = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
        body: Json = {"input": [{"role": "user", "content": "Go."}, call, done]}
    else:
        turn = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
        body = {
            "messages": [
                {"role": "user", "content": "Go."},
                turn,
                {"role": "tool", "tool_call_id": "c1", "content": "ok"},
            ]
        }
    gateway.post(path, wire, {**body, "tools": [tool]})
    assert "+x" in gateway.words
    assert not [note for note in gateway.notes if "arguments-emptied" in note]


BLANK: Json = {"type": "text", "text": " "}
PICTURE: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}


@pytest.mark.parametrize("blocks", [[BLANK, PICTURE], [PICTURE, BLANK], [BLANK, {**BLANK, "text": ""}]])
def test_a_text_without_words_in_a_result_is_not_sent(gateway: Gateway, blocks: list[Json]) -> None:
    """Endpoints of Messages refuse one: "text content blocks must be non-empty"."""
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": blocks}
    messages = [{"role": "user", "content": "Go."}, call, {"role": "user", "content": [result]}]
    gateway.post("/v1/messages", "messages", {"max_tokens": 9, "messages": messages})
    [sent] = gateway.sent["messages"][-1]["content"]
    assert sent.get("content", []) == [block for block in blocks if block["type"] == "image"]


@pytest.mark.parametrize("wire", WIRES)
def test_a_result_that_should_be_encrypted_and_is_not_is_read(gateway: Gateway, wire: str) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "wait", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": [envelope("From /b:"), sealed("Three 个.")]}
    hidden = {**output, "call_id": "c2", "output": [sealed(SECRET)]}
    items = [{"role": "user", "content": "Begin."}, call, output, {**call, "call_id": "c2"}, hidden]
    gateway.post("/v1/responses", wire, {"input": items})
    assert "From /b:" in gateway.words
    assert "Three 个." in gateway.words
    assert (SECRET in gateway.words) is (wire == "responses")


# ── tools of other wires, sent as chat completions ───────────────────────────
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
FLAT: list[Json] = [
    {"type": "function", "name": "read", "description": "Reads a file.", "parameters": SCHEMA, "strict": False},
    {"name": "read", "description": "Reads a file.", "input_schema": SCHEMA},
    {"type": "custom", "name": "read", "description": "Reads a file.", "input_schema": SCHEMA},
]
ASK = {"role": "user", "content": "Read it."}


def names_of(body: Json) -> list[str]:
    tools = body["tools"]
    if "functionDeclarations" in tools[0]:
        tools = tools[0]["functionDeclarations"]
    return [tool["function"]["name"] if "function" in tool else tool["name"] for tool in tools]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("tool", FLAT)
def test_a_function_in_another_wires_form_is_offered(gateway: Gateway, wire: str, tool: Json) -> None:
    gateway.post("/v1/chat/completions", wire, {"messages": [ASK], "tools": [tool]})
    assert names_of(gateway.sent) == ["read"]
    assert "Reads a file." in gateway.words
    assert '"path"' in gateway.words
    assert not [note for note in gateway.notes if "foreign" in note]


PATCH = {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}}


@pytest.mark.parametrize("wire", WIRES)
def test_a_custom_tool_in_the_form_of_responses_is_offered_and_its_call_comes_back(gateway: Gateway, wire: str) -> None:
    body = {"messages": [ASK], "tools": [FLAT[0], PATCH]}
    gateway.replies["chat"] = {
        "choices": [
            {
                "message": {
                    "role": "assistant",
                    "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "patch", "input": "+ a"}}],
                },
                "finish_reason": "tool_calls",
            }
        ]
    }
    answer = gateway.post("/v1/chat/completions", wire, body)
    assert "start: X" in gateway.words
    assert not [note for note in gateway.notes if "foreign" in note]
    if wire == "chat":
        (call,) = answer["choices"][0]["message"]["tool_calls"]
        assert call["custom"] == {"name": "patch", "input": "+ a"}


@pytest.mark.parametrize("wire", WIRES)
def test_calls_and_results_in_blocks_of_messages_are_read(gateway: Gateway, wire: str) -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "forged"}
    called = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a.txt"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "Rain."}]}
    messages = [
        ASK,
        {"role": "assistant", "content": [thought, {"type": "text", "text": "I look."}, called]},
        {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]},
    ]
    gateway.post("/v1/chat/completions", wire, {"messages": messages, "tools": FLAT[1:2]})
    for text in ("I look.", "a.txt", "Rain.", "Go on."):
        assert text in gateway.words
    assert gateway.words.index("a.txt") < gateway.words.index("Rain.") < gateway.words.index("Go on.")
    assert "forged" not in gateway.words
    assert not [note for note in gateway.notes if "block-foreign" in note]


def test_keys_beside_a_function_have_a_note(gateway: Gateway) -> None:
    tool = {"type": "function", "function": {"name": "read"}, "strict": True, "description": ""}
    gateway.post("/v1/chat/completions", "chat", {"messages": [ASK], "tools": [tool, tool]})
    assert [note for note in gateway.notes if "tools[].strict (2 times)" in note]
    assert not [note for note in gateway.notes if "tools[].description" in note]


# ── a body of Responses at the path of chat completions ──────────────────────
ITEMS: list[Json] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "input_text", "text": "Look."}]},
    {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path": "a.txt"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "Rain."},
]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("empty", [{}, {"messages": []}, {"messages": None}])
def test_a_body_of_responses_at_chat_completions_is_read_and_answered_there(
    gateway: Gateway, wire: str, empty: Json
) -> None:
    settings = {"text": {"verbosity": "low"}, "store": False, "stream_options": {"include_usage": True}}
    answer = gateway.post("/v1/chat/completions", wire, {**empty, "input": ITEMS, "tools": FLAT[:1], **settings})
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["content"] == "Ok."
    for text in ("Be brief.", "Look.", "a.txt", "Rain."):
        assert text in gateway.words
    assert names_of(gateway.sent) == ["read"]
    assert "stream_options" not in gateway.sent
    assert bool([note for note in gateway.notes if "store" in note]) is (wire != "responses")


def test_a_stream_of_it_ends_as_chat_completions_do(gateway: Gateway) -> None:
    body = {"model": "chat/m", "input": "Look.", "stream": True, "stream_options": {"include_usage": True}}
    gateway.replies["chat"] = {**REPLIES["chat"], "usage": USAGE}
    text = gateway.http.post("http://cnllm.invalid/v1/chat/completions", json=body).text
    assert '"object":"chat.completion.chunk"' in text
    assert '"usage":{' in text
    assert text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "ids", [{"previous_response_id": "resp_of_another"}, {"conversation": "conv_of_another"}, {"background": True}]
)
def test_no_id_of_it_goes_to_the_endpoint_as_it_is(gateway: Gateway, wire: str, ids: Json) -> None:
    body = {"model": f"{wire}/m", "input": "Look.", **ids}
    response = gateway.http.post("http://cnllm.invalid/v1/chat/completions", json=body)
    assert (response.status_code, gateway.sent) == (400, {})


def test_it_continues_a_response_that_is_kept(gateway: Gateway) -> None:
    earlier = gateway.post("/v1/responses", "responses", {"input": "Remember 三."})["id"]
    gateway.post("/v1/chat/completions", "responses", {"input": "Look.", "previous_response_id": earlier})
    assert "previous_response_id" not in gateway.sent
    for text in ("Remember 三.", "Ok.", "Look."):
        assert text in gateway.words


@pytest.mark.parametrize("body", [{}, {"messages": [], "input": []}, {"input": 3}])
def test_a_body_without_either_is_refused_in_the_words_of_the_path(gateway: Gateway, body: Json) -> None:
    response = gateway.http.post("http://cnllm.invalid/v1/chat/completions", json={"model": "chat/m", **body})
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


# ── reasoning in other forms ─────────────────────────────────────────────────
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "keys",
    [
        {"reasoning": {"content": "Hm.", "signature": "s"}},
        {"reasoning_content": ["Hm."]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "eHg="}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "Hm."}]},
    ],
)
def test_reasoning_of_another_model_in_an_unusual_form_has_a_note(gateway: Gateway, wire: str, keys: Json) -> None:
    messages = [ASK, {"role": "assistant", "content": "Done.", **keys}, ASK]
    gateway.post("/v1/chat/completions", wire, {"messages": messages})
    assert "Done." in gateway.words
    assert "Hm." not in gateway.words
    assert [note for note in gateway.notes if "another model's reasoning" in note]


# ── a summary of what came before ────────────────────────────────────────────
@pytest.mark.parametrize("wire", WIRES)
def test_a_summary_of_the_conversation_is_read_by_other_models(gateway: Gateway, wire: str) -> None:
    summary = {"type": "compaction", "content": "The user wants 三 files."}
    messages = [ASK, {"role": "assistant", "content": [summary, {"type": "text", "text": "Go on?"}]}, ASK]
    gateway.post("/v1/messages", wire, {"max_tokens": 9, "messages": messages})
    assert "<summary>\\nThe user wants 三 files.\\n</summary>" in gateway.words
    assert [note for note in gateway.notes if "holds compaction" in note]


@pytest.mark.parametrize("content", ["", None])
def test_a_summary_without_text_is_left_out_with_a_note(gateway: Gateway, content: str | None) -> None:
    messages = [ASK, {"role": "assistant", "content": [{"type": "compaction", "content": content}]}, ASK]
    gateway.post("/v1/messages", "chat", {"max_tokens": 9, "messages": messages})
    assert [note for note in gateway.notes if "left out: compaction" in note]


@pytest.mark.parametrize("empty", [{}, {"text": None, "thinking": None}])
@pytest.mark.parametrize("wire", WIRES)
def test_an_answers_block_may_lack_its_text(gateway: Gateway, wire: str, empty: Json) -> None:
    """https://github.com/delexw/claude-code-trace/issues/260: gateways leave out what is empty."""
    blocks: list[Json] = [{"type": kind, **empty} for kind in ("thinking", "text")]
    blocks += [{"type": "text", "text": "Done."}]
    gateway.post(
        "/v1/messages", wire, {"max_tokens": 9, "messages": [ASK, {"role": "assistant", "content": blocks}, ASK]}
    )
    assert "Done." in gateway.words


def test_a_signature_whose_empty_thinking_is_left_out_goes_back_to_its_author(gateway: Gateway) -> None:
    blocks = [{"type": "thinking", "thinking": "", "signature": "s"}, {"type": "text", "text": "Done."}]
    gateway.replies["messages"] = {**REPLIES["messages"], "content": blocks}
    turn = gateway.post("/v1/messages", "messages", {"max_tokens": 9, "messages": [ASK]})["content"]
    del turn[0]["thinking"]
    messages = [ASK, {"role": "assistant", "content": turn}, ASK]
    gateway.post("/v1/messages", "messages", {"max_tokens": 9, "messages": messages})
    assert gateway.sent["messages"][1]["content"] == blocks


# ── tools that come and go ───────────────────────────────────────────────────
LATE: Json = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "read"}}
GONE: Json = {"type": "tool_removal", "tool": {"type": "mcp_toolset_reference", "server_name": "disk"}}
DEFINED: Json = {"name": "write", "description": "Writes a file.", "input_schema": SCHEMA}
NEW: Json = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": DEFINED}}


def changed(*blocks: Json) -> Json:
    return {"max_tokens": 9, "messages": [ASK, {"role": "system", "content": list(blocks)}], "tools": FLAT[1:2]}


@pytest.mark.parametrize("wire", WIRES)
def test_changes_of_the_tools_are_text_where_the_endpoint_is_not_known_to_take_them(
    gateway: Gateway, wire: str
) -> None:
    gateway.post("/v1/messages", wire, changed({"type": "text", "text": "Mind:"}, LATE, GONE))
    assert "The tool read can be called now." in gateway.words
    assert "The tools of disk can no longer be called." in gateway.words
    assert "tool_addition" not in gateway.words
    assert "cannot read it" not in gateway.words
    assert [note for note in gateway.notes if "holds tool_removal" in note]


@pytest.mark.parametrize("wire", WIRES)
def test_a_tool_that_a_message_defines_is_offered(gateway: Gateway, wire: str) -> None:
    gateway.post("/v1/messages", wire, changed(NEW))
    assert names_of(gateway.sent) == ["read", "write"]
    assert "The tool write can be called now." in gateway.words
    assert [note for note in gateway.notes if "tools-loaded" in note and "write" in note]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_tool_that_a_message_of_any_role_defines_is_offered(gateway: Gateway, role: str) -> None:
    messages = [ASK, {"role": role, "content": [NEW]}, ASK]
    gateway.post("/v1/messages", "chat", {"max_tokens": 9, "messages": messages, "tools": FLAT[1:2]})
    assert names_of(gateway.sent) == ["read", "write"]
    assert [note for note in gateway.notes if "tools-loaded" in note and "write" in note]


def test_a_tool_that_a_message_defines_again_is_the_newer_one(gateway: Gateway) -> None:
    again = {**DEFINED, "name": "read"}
    gateway.post("/v1/messages", "chat", changed({**NEW, "tool": {**NEW["tool"], "definition": again}}))
    (tool,) = gateway.sent["tools"]
    assert tool["function"]["description"] == "Writes a file."


@pytest.mark.parametrize(("model", "stays"), [("claude-opus-5", True), ("claude-haiku-4-5", False)])
def test_changes_of_the_tools_stay_blocks_where_the_message_keeps_its_place(model: str, stays: bool) -> None:
    body = {"model": f"anthropic/{model}", **changed(LATE)}
    request = engine.decode_request("anthropic-messages", body)
    plan = engine.build_request(Registry.load().resolve(f"anthropic/{model}"), request.messages, **request.options)
    assert ('"tool_addition"' in json.dumps(plan.body)) is stays
    assert ("The tool read can be called now." in json.dumps(plan.body)) is not stays


# ── whole replies ────────────────────────────────────────────────────────────
def test_a_signature_alone_is_no_empty_text_of_another_wire(gateway: Gateway) -> None:
    """Gemini signs an empty part behind its answer. Anthropic refuses an empty text in the next request."""
    parts = [{"text": "Ok."}, {"text": "", "thoughtSignature": "c2ln"}]
    gateway.replies["gemini"] = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
    reply = gateway.post("/v1/messages", "gemini", {"messages": [ASK], "max_tokens": 9})
    assert reply["content"] == [{"type": "text", "text": "Ok."}]
    [item] = gateway.post("/v1/responses", "gemini", {"input": "Hi"})["output"]
    assert [content["text"] for content in item["content"]] == ["Ok."]
