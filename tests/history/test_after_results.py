"""An answer stands between a tool's result and a message of the user, where an endpoint wants one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cases import each

from cnllm import Client, Registry, engine
from cnllm.registry.model import Model

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CUT_SHORT: list[dict[str, Any]] = [
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "a door"},
    {"role": "user", "content": "Stop, do something else."},
]
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def home(folder: Path, flags: str) -> Model:
    path = folder / "overlay.toml"
    path.write_text(
        "[providers.home]\nprotocol = 'openai-chat'\nbase_url = 'http://127.0.0.1:9/v1'\nkeys = []\n"
        f"[models.'home/m']\n{flags}"
    )
    return Registry.load(path).resolve("home/m")


def roles(messages: list[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in messages]


def test_the_answer_is_put_in_with_a_note(tmp_path: Path) -> None:
    model = home(tmp_path, "messages.after_results = 'Done.'")
    request = engine.build_request(model, CUT_SHORT, tools=[LOOK])
    assert roles(request.body["messages"]) == ["user", "assistant", "tool", "assistant", "user"]
    assert request.body["messages"][3] == {"role": "assistant", "content": "Done."}
    [note] = [note for note in request.notes if note.code == "results-answered"]
    assert note.said == "messages[3] is by the user, right behind a tool's result"
    assert note.where == f"{tmp_path / 'overlay.toml'}:6"
    assert "results-answered" not in [
        note.code for note in engine.build_request(model, CUT_SHORT[:3], tools=[LOOK]).notes
    ]


def test_a_picture_of_a_result_comes_after_it_as_well(tmp_path: Path) -> None:
    model = home(tmp_path, "messages.after_results = 'Done.'\ninput = ['text', 'image']")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    turns = [*CUT_SHORT[:2], {**CUT_SHORT[2], "content": [{"type": "text", "text": "a door"}, picture]}]
    request = engine.build_request(model, turns, tools=[LOOK])
    assert roles(request.body["messages"]) == ["user", "assistant", "tool", "assistant", "user"]


def test_a_conversation_that_goes_on_has_it_too(tmp_path: Path) -> None:
    model = home(tmp_path, "messages.after_results = 'Done.'")
    with Client(simulate=True) as client:
        turns = CUT_SHORT[:1]
        for length in (3, 4):
            turns = [*turns, *CUT_SHORT[len(turns) : length]]
            request = client.plan(model, turns, tools=[LOOK])
    assert roles(request.body["messages"]) == ["user", "assistant", "tool", "assistant", "user"]


@each("name", ["vllm/mistralai/Mistral-Small-4-119B-2603", "nvidia/mistralai/mistral-7b-instruct-v0.3"])
def test_models_of_the_family_have_it_where_their_template_demands_it(name: str) -> None:
    request = engine.build_request(Registry.load().resolve(name), CUT_SHORT, tools=[LOOK])
    assert roles(request.body["messages"])[2:] == ["tool", "assistant", "user"]


@each("name", ["deepseek/deepseek-flash", "openai/gpt-4o", "vllm/any", "mistral/mistral-large-4"])
def test_others_do_not(name: str) -> None:
    request = engine.build_request(Registry.load().resolve(name), CUT_SHORT, tools=[LOOK])
    assert roles(request.body["messages"])[2:] == ["tool", "user"]
