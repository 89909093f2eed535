"""Marks of the prompt cache from a client of Messages go to endpoints that take them; else a note counts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cases import each

from cnllm import Plan, Registry, engine
from cnllm.types.message_memory import MessageMemory

MARK = {"type": "ephemeral", "ttl": "1h"}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
OWN = """
[providers.takes]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
messages.fields = ["cache_control"]
[models."takes/m"]
input = ["text", "image"]
[providers.unknown]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
[models."unknown/m"]
input = ["text", "image"]
"""


def marked(part: dict[str, Any]) -> dict[str, Any]:
    return {**part, "cache_control": MARK}


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
CALL = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
TURNS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "A picture:"}, marked(IMAGE)]},
    {"role": "assistant", "content": [marked({"type": "text", "text": "I look."}), CALL]},
    {"role": "user", "content": [marked({"type": "tool_result", "tool_use_id": "t1", "content": "a pixel"})]},
    {"role": "assistant", "content": [{"type": "text", "text": "It is a pixel."}]},
    {"role": "user", "content": [marked({"type": "text", "text": "Why?"})]},
]
BODY = {
    "model": "x",
    "max_tokens": 9,
    "system": [marked({"type": "text", "text": "Be short."})],
    "messages": TURNS,
    "tools": [{"name": "look", "input_schema": {"type": "object"}}],
}


def plan(name: str, folder: Path, **options: Any) -> Plan:
    file = folder / "providers.toml"
    file.write_text(OWN, encoding="utf-8")
    request = engine.decode_request("anthropic-messages", BODY)
    model = Registry.load(file).resolve(name)
    return engine.build_request(model, request.messages, **request.options, **options)


@each("name", ["takes/m", "openrouter/anthropic/claude-opus-5", "alibaba/qwen3.8-max"])
def test_an_endpoint_that_takes_marks_gets_them_where_its_wire_has_a_place(name: str, tmp_path: Path) -> None:
    made = plan(name, tmp_path)
    system, picture, looks, result, _, question = made.body["messages"]
    assert system["content"] == [marked({"type": "text", "text": "Be short."})]
    assert [part.get("cache_control") for part in picture["content"]] == [None, MARK]
    assert looks["content"] == [marked({"type": "text", "text": "I look."})]
    assert question["content"] == [marked({"type": "text", "text": "Why?"})]
    assert result["content"] == "a pixel"  # the content of a result is a string on this wire
    notes = [note for note in made.notes if note.code == "cache-mark"]
    assert [note.said for note in notes] == ["cache_control"]


def test_other_endpoints_get_none_and_a_note_counts_them(tmp_path: Path) -> None:
    made = plan("unknown/m", tmp_path)
    assert "cache_control" not in json.dumps(made.body)
    (note,) = [note for note in made.notes if note.code == "cache-mark"]
    assert (note.flag, note.said, note.did) == ("messages.fields", "cache_control (5 times)", "left out")


def test_the_mark_of_a_call_of_unknown_origin_stays_on_its_own_wire_alone(tmp_path: Path) -> None:
    (tmp_path / "providers.toml").write_text(OWN, encoding="utf-8")
    registry = Registry.load(tmp_path / "providers.toml")
    call = marked(CALL)
    question, _, *others = TURNS
    turns = [question, {"role": "assistant", "content": [call]}, *others]
    request = engine.decode_request("anthropic-messages", {**BODY, "messages": turns})
    own = engine.build_request(registry.resolve("anthropic/claude-opus-5"), request.messages, **request.options)
    assert own.body["messages"][1]["content"] == [call]
    other = engine.build_request(registry.resolve("unknown/m"), request.messages, **request.options)
    assert "cache_control" not in json.dumps(other.body)


@each("name", ["takes/m", "unknown/m"])
@each("mime", ["application/pdf", "text/plain"])
def test_a_document_keeps_its_mark_as_other_parts_do(name: str, mime: str, tmp_path: Path) -> None:
    file = tmp_path / "providers.toml"
    file.write_text(OWN.replace('["text", "image"]', '["text", "file"]'), encoding="utf-8")
    plain = {"type": "text", "media_type": mime, "data": "Hello"}
    source = plain if mime == "text/plain" else {"type": "base64", "media_type": mime, "data": "JVBERi0xLjQgeA=="}
    document = marked({"type": "document", "title": "t", "source": source})
    body = {"model": "x", "max_tokens": 9, "messages": [{"role": "user", "content": [document]}]}
    request = engine.decode_request("anthropic-messages", body)
    made = engine.build_request(Registry.load(file).resolve(name), request.messages, **request.options)
    content = made.body["messages"][0]["content"]
    if name == "takes/m":
        assert content[0]["cache_control"] == MARK
    assert ("cache_control" in json.dumps(made.body)) is (name == "takes/m")
    assert ("cache-mark" in [note.code for note in made.notes]) is (name == "unknown/m")


def test_marks_of_a_chat_client_stay_beside_the_part(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "low"}}
    sound = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}
    parts = [marked({"type": "text", "text": "Hi"}), marked(image), marked(sound)]
    file = tmp_path / "providers.toml"
    file.write_text(OWN.replace('["text", "image"]', '["text", "image", "audio"]'), encoding="utf-8")
    registry = Registry.load(file)
    made = engine.build_request(registry.resolve("takes/m"), [{"role": "user", "content": parts}])
    assert made.body["messages"][0]["content"] == parts
    foreign = engine.build_request(
        registry.resolve("anthropic/claude-opus-5"), [{"role": "user", "content": parts[:2]}]
    )
    assert [part["cache_control"] for part in foreign.body["messages"][0]["content"]] == [MARK, MARK]
    for name, protocol in (("openai/gpt-6.1-terra", "openai-responses"), ("google/gemini-4-argon", "gemini")):
        other = engine.build_request(
            registry.resolve(name, protocol=protocol), [{"role": "user", "content": parts[:2]}]
        )
        assert "cache_control" not in json.dumps(other.body), name


def test_the_own_wire_has_a_place_for_each_of_them(tmp_path: Path) -> None:
    made = plan("anthropic/claude-opus-5", tmp_path)
    assert [message["content"][-1].get("cache_control") for message in made.body["messages"][2:3]] == [MARK]
    assert json.dumps(made.body).count("cache_control") == 4  # of five
    (note,) = [note for note in made.notes if note.code == "cache-mark"]
    assert (note.flag, note.said) == ("protocol", "cache_control")


def words(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [marked({"type": "text", "text": f"text {start + n}"}) for n in range(count)]


def kept(body: Any) -> list[str]:
    """The texts and names of what is marked, in the order of the prompt."""
    if isinstance(body, list):
        return [text for item in body for text in kept(item)]
    own = [body.get("text") or body.get("name") or body.get("tool_use_id")] if "cache_control" in body else []
    return [text for key in ("tools", "system", "messages", "content") if isinstance(body.get(key), list)
            for text in kept(body[key])] + own  # fmt: skip


@each(
    "tools, system, turns, automatic, expected, lost",
    [
        (1, 1, 2, False, ["tool0", "text 0", "text 100", "text 101"], 0),
        (1, 1, 5, False, ["tool0", "text 0", "text 103", "text 104"], 3),
        (0, 0, 6, False, ["text 102", "text 103", "text 104", "text 105"], 2),
        (3, 3, 2, False, ["text 0", "text 1", "text 2", "text 101"], 4),
        (0, 6, 0, False, ["text 2", "text 3", "text 4", "text 5"], 2),
        (1, 1, 4, True, ["tool0", "text 0", "text 103", None], 3),
        (2, 3, 1, True, ["text 0", "text 1", "text 2", None], 3),
    ],
)
def test_no_more_marks_are_sent_than_are_taken(
    tools: int, system: int, turns: int, automatic: bool, expected: list[Any], lost: int
) -> None:
    schema = {"type": "object", "properties": {"cache_control": {"type": "string"}}}  # no mark, as its value is none
    body: dict[str, Any] = {
        "model": "x",
        "max_tokens": 9,
        "system": words(system) or "Be short.",
        "messages": [
            {"role": ["user", "assistant"][n % 2], "content": [block]} for n, block in enumerate(words(turns, 100))
        ]
        + [{"role": "user", "content": 'The key "cache_control": {} is a word here.'}],
        "tools": [marked({"name": f"tool{n}", "input_schema": schema}) for n in range(tools)],
        **({"cache_control": MARK} if automatic else {}),
    }
    request = engine.decode_request("anthropic-messages", body)
    model = Registry.load().resolve("anthropic/claude-opus-5")
    memory = MessageMemory()
    for _ in range(3):
        made = engine.build_request(model, request.messages, memory=memory, **request.options)
        assert kept(made.body) == expected
        notes = [(note.said, note.did[:8]) for note in made.notes if note.code == "cache-mark"]
        times = f" ({lost} times)" if lost > 1 else ""
        assert notes == ([(f"cache_control{times}", "left out")] if lost else [])
        assert made.body == json.loads(made.content)


@each("name", ["takes/m", "openrouter/anthropic/claude-opus-5"])
def test_a_growing_conversation_of_chat_completions_keeps_the_newest_marks(name: str, tmp_path: Path) -> None:
    file = tmp_path / "providers.toml"
    file.write_text(OWN, encoding="utf-8")
    model, memory = Registry.load(file).resolve(name), MessageMemory()
    messages: list[Any] = [{"role": "system", "content": words(1)}]
    for turn in range(1, 30):
        messages += [
            {"role": "user", "content": words(1, 2 * turn)},
            {"role": "assistant", "content": "OK."},
        ]
        made = engine.build_request(model, messages[:-1], memory=memory)
        assert kept(made.body) == ["text 0", *[f"text {2 * n}" for n in range(max(1, turn - 2), turn + 1)]]
        assert len([note for note in made.notes if note.code == "cache-mark"]) == (turn > 3)


@each("key", ["prompt_cache_breakpoint", "new_key"])
def test_a_key_of_a_text_in_a_result_stays_on_its_wire_or_has_a_note(key: str, tmp_path: Path) -> None:
    text = {"type": "text", "text": "a pixel", key: {"mode": "explicit"}}
    call = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t1", "content": [{"type": "text", "text": "I see"}, text]},
    ]
    request = engine.decode_request("openai-chat", {"model": "x", "messages": turns})
    joined = "I see\n\na pixel"
    for more, content in (("", [{**text, "text": joined}]), ('content = "string"', joined)):
        file = tmp_path / "providers.toml"
        file.write_text(f"{OWN}[models.'unknown/n'.messages]\n{more}", encoding="utf-8")
        model = Registry.load(file).resolve("unknown/n")
        made = engine.build_request(model, request.messages, **request.options)
        assert made.body["messages"][-1]["content"] == content
        assert any(note.said == f"messages[].content[].{key}" for note in made.notes) is bool(more)
