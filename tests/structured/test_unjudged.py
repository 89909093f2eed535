"""What is told of an answer or a call that could not be judged, or not wholly."""

from pathlib import Path
from typing import Any

import pytest
from cases import each
from client.peer import Peer
from client.support import Driver, ask
from loop.support import Loops, at, ran, results, turns

import cnllm
from cnllm import engine

from .support import codes, endpoint, gives, note

BEYOND = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?=x)(a+)+$"}}, "required": ["a"]}
BELOW = {"properties": {"a": {"$ref": "#/$defs/n"}}}
ENDLESS: dict[str, Any] = {
    "$defs": {"n": {"anyOf": [{**BELOW, "required": ["x"]}, BELOW]}},
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/n"}},
}
DEEP = '{"a": ' * 60 + "1" + "}" * 60
METHODS = ["json_schema", "json_object", "prompt", "tool"]


@pytest.mark.parametrize("verb", ["call", "stream"])
def test_an_answer_that_is_not_judged_is_no_answer_and_is_not_sent_back(
    client: Driver, tmp_path: Path, verb: str
) -> None:
    for method in METHODS:
        with Peer([gives(verb, method, DEEP)]) as peer:
            model = endpoint(tmp_path, peer, method)
            got = ask(client, verb, model, messages="hi", schema=ENDLESS, corrections=2)
            assert len(peer.received) == 1, method
        said = note(got, "answer-unjudged")
        assert (got.parsed, got.text, got.finish) == (None, DEEP, "stop"), method
        assert "cannot be checked: it takes more than" in said.said
        assert said.did == "it is not known whether the answer is valid, and parsed is None"
        assert "answer-invalid" not in codes(got)


@pytest.mark.parametrize("verb", ["call", "stream"])
def test_a_pattern_that_is_not_judged_is_noted_beside_the_answer(client: Driver, tmp_path: Path, verb: str) -> None:
    for method in METHODS:
        with Peer([gives(verb, method, '{"a": "aaa!"}')]) as peer:
            got = ask(client, verb, endpoint(tmp_path, peer, method), messages="hi", schema=BEYOND)
        assert got.parsed == {"a": "aaa!"}, method
        assert note(got, "pattern-unjudged").said.startswith("the pattern '^(?=x)(a+)+$': look-around")
        assert note(got, "pattern-unjudged").did == "the answer is checked without this"
    with Peer([gives(verb, "prompt", '{"a": 1}')]) as peer:  # the rest of the schema is judged
        got = ask(client, verb, endpoint(tmp_path, peer, "prompt"), messages="hi", schema=BEYOND, corrections=0)
    assert (got.parsed, "pattern-unjudged" in codes(got)) == (None, False)
    assert "'integer'" not in note(got, "answer-invalid").said
    assert "$.a: 1 is not of type 'string'" in note(got, "answer-invalid").said


def test_the_engine_alone_tells_the_same(tmp_path: Path) -> None:
    with Peer() as peer:
        model = endpoint(tmp_path, peer, "json_schema")
    for schema, text, code in ((ENDLESS, DEEP, "answer-unjudged"), (BEYOND, '{"a": "b"}', "pattern-unjudged")):
        plan = engine.build_request(model, "hi", schema=schema)
        _, _, body = gives("call", "json_schema", text).partition(b"\r\n\r\n")
        got = engine.parse_response(model, 200, {"content-type": "application/json"}, body, plan=plan)
        assert code in codes(got)


@each("backend", ["sync", "asyncio", "trio"])
@each("verb", ["run", "run_stream"])
def test_a_call_is_checked_but_for_such_a_pattern_and_the_step_tells(backend: Any, verb: str) -> None:
    given: list[str] = []

    def look(a: str) -> str:
        given.append(a)
        return "seen"

    tools = [cnllm.Tool("look", parameters=BEYOND, function=look)]
    calls = [("look", '{"a": "aaa!"}'), ("look", '{"a": 5}')]
    with Loops(backend) as client, Peer(*turns(verb, calls, "Done.")) as peer:
        _, run = ran(client, verb, at(peer), tools=tools)
        told = list(results(peer).values())
    assert given == ["aaa!"]
    assert [text.startswith("seen") for text in told] == [True, False]
    [one] = [n for n in run.steps[0].notes if n.code == "pattern-unjudged"]
    assert one.said.startswith("look: the pattern '^(?=x)(a+)+$': look-around")
    assert one.did == "the call is checked without this"


@each("backend", ["sync", "asyncio"])
def test_a_call_that_is_not_judged_is_not_executed_and_the_model_hears_why(backend: Any) -> None:
    def look(**given: Any) -> str:
        raise AssertionError("nobody checked these arguments")

    tools = [cnllm.Tool("look", parameters=ENDLESS, function=look)]
    with Loops(backend) as client, Peer(*turns("run", [("look", DEEP)], "Done.")) as peer:
        _, run = ran(client, "run", at(peer), tools=tools)
        [told] = results(peer).values()
    assert "was not executed" in told
    assert "cannot be checked: it takes more than" in told
    assert run.reply.text == "Done."
