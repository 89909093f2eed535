"""One declared shape of reasoning is used in both directions: as it arrives, so it goes back."""

from __future__ import annotations

import json
from typing import Any

import cnllm
from cnllm import engine
from cnllm.simulator import SimTransport

from .conftest import Home

Json = dict[str, Any]
THOUGHT, ANSWER = "the thought", "the answer"
BASE = 'reasoning.mode = "always"\nreasoning.default = "on"\nreasoning.replay = "always"\n'
PART = {"type": "thought", "thought": [{"type": "text", "text": THOUGHT}]}
DETAILS = [{"type": "reasoning.text", "text": THOUGHT}]
# shape → its flags, and the message of a reply that is written so
SHAPES: dict[str, tuple[str, Json]] = {
    "field": ('fields = ["musing", "other"]', {"musing": THOUGHT, "content": ANSWER}),
    "details": ('fields = ["musings"]', {"musings": DETAILS, "content": ANSWER}),
    "tags": ('tags = ["<hm>", "</hm>"]', {"content": f"<hm>{THOUGHT}</hm>{ANSWER}"}),
    "content-parts": ('part = "thought"', {"content": [PART, {"type": "text", "text": ANSWER}]}),
}


def table(flags: str) -> str:
    return "\n".join(f"reasoning.{line}" for line in flags.split("\n") if line)


def reply(model: cnllm.Model, message: Json) -> cnllm.Reply:
    body = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}]}
    return engine.parse_response(model, 200, {}, json.dumps(body).encode())


def second(model: cnllm.Model, said: cnllm.Reply) -> Json:
    """The assistant's turn in the next request, as its bytes say it."""
    plan = engine.build_request(model, ["hi", said.message, "and?"])
    turn: Json = json.loads(plan.content)["messages"][1]
    return turn


def forms(turn: Json, field: str) -> set[str]:
    """The forms in which a turn carries the thought."""
    content = turn["content"]
    found = {"field"} if turn.get(field) == THOUGHT else set()
    found |= {"details"} if turn.get(field) in (DETAILS, [PART]) else set()  # the list as it came
    found |= {"tags"} if isinstance(content, str) and f"<hm>{THOUGHT}</hm>" in content.replace("\n", "") else set()
    found |= {"content-parts"} if isinstance(content, list) and PART in content else set()
    assert json.dumps(turn).count(THOUGHT) == len(found)
    return found


def test_as_it_arrives_so_it_goes_back(home: Home) -> None:
    for shape, (flags, message) in SHAPES.items():
        model = home(BASE + table(f'shape = "{shape}"\n{flags}'))
        said = reply(model, message)
        assert (said.reasoning, said.text) == (THOUGHT, ANSWER), shape
        field = "musings" if shape == "details" else "musing"
        assert forms(second(model, said), field) == {shape}, shape


def test_an_exception_names_another_form_or_another_key(home: Home) -> None:
    given = {name for flags, _ in SHAPES.values() for name in flags.split("\n")} - {'fields = ["musings"]'}
    for shape, (flags, message) in SHAPES.items():
        for other in SHAPES:
            more = "\n".join(sorted(given | {flags} if shape != "details" else given - {SHAPES["field"][0]} | {flags}))
            text = f'shape = "{shape}"\n{more}\nreplay_as = "{other}"\nreplay_field = "back"'
            model = home(BASE + table(text))
            said = reply(model, message)
            assert said.reasoning == THOUGHT, (shape, other)
            assert forms(second(model, said), "back") == {other}, (shape, other)


def test_blocks_and_their_text_go_back_under_two_keys(home: Home) -> None:
    flags = 'fields = ["musing", "musings"]\nreplay_as = "details-and-field"\nreplay_field = "musings"'
    flags += '\nif_missing = "empty"'
    model = home(BASE + table(flags))
    turn = second(model, reply(model, {"musings": DETAILS, "content": ANSWER}))
    assert (turn["musing"], turn["musings"]) == (THOUGHT, DETAILS)
    plan = engine.build_request(model, ["hi", {"role": "assistant", "content": "yes"}, "and?"])
    turn = json.loads(plan.content)["messages"][1]
    assert (turn["musing"], "musings" in turn) == ("", False)


def test_deepseek_over_openrouter_has_its_text_on_each_turn_while_it_thinks() -> None:
    history: list[Any] = ["hi", {"role": "assistant", "content": "yes"}, "and?"]
    for name in ("deepseek/deepseek-v4-pro", "deepseek/deepseek-v4.1-flash", "deepseek/deepseek-v4-flash"):
        model = cnllm.Registry.load().resolve(f"openrouter/{name}")
        thinking = engine.build_request(model, history, reasoning="high")
        assert "reasoning_content" in json.loads(thinking.content)["messages"][1], name
        plain = engine.build_request(model, history, reasoning="off")
        assert "reasoning_content" not in json.loads(plain.content)["messages"][1], name


def test_what_has_to_be_signed_goes_back_with_its_signature_or_not_at_all(home: Home) -> None:
    wire = 'protocol = "anthropic-messages"\n'
    block = {"type": "thinking", "thinking": THOUGHT, "signature": "s"}
    answer = {"type": "text", "text": ANSWER}
    for flags, kept in (('shape = "seal"', False), ('shape = "field"', True), ('replay_as = "seal"', False)):
        model = home(more=wire + BASE + table(flags))
        for sealed in (True, False):
            content = [block if sealed else {"type": "thinking", "thinking": THOUGHT}, answer]
            body = {"type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn"}
            said = engine.parse_response(model, 200, {}, json.dumps(body).encode())
            plan = engine.build_request(model, ["hi", said.message, "and?"])
            assert (THOUGHT.encode() in plan.content) is (sealed or kept), (flags, sealed)


def test_the_simulator_writes_the_declared_shape_and_takes_it_back(home: Home) -> None:
    for shape, (flags, _) in SHAPES.items():
        model = home(BASE + table(f'shape = "{shape}"\n{flags}'))
        plan = engine.build_request(model, "hi")
        status, headers, pieces = SimTransport(None).send(plan)
        said = engine.parse_response(model, status, headers, b"".join(pieces), plan=plan)
        assert (bool(said.reasoning), bool(said.text)) == (True, True), shape
        again = engine.build_request(model, ["hi", said.message, "and?"])
        assert said.reasoning.split()[0].encode() in again.content, shape
        assert SimTransport(None).send(again)[0] == 200, shape
