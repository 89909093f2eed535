"""Calls without markers of their own: read for the families that write them, and only as the whole answer."""

from __future__ import annotations

import json
from typing import Any

from cases import each

from cnllm import engine
from cnllm.types import TextDelta

from .quotations import CALLS, QUOTED, cases
from .support import REGISTRY, answers, called, read, tool, wire

TOOLS = [tool("rm", path="string"), tool("search", q="string", lang="string"), tool("now")]
LLAMA = "groq/llama-3.3-70b-versatile"
SEARCH = ("search", {"q": "green tea", "lang": "zh"})
ONE = json.dumps({"name": "search", "parameters": SEARCH[1]})
PYTHON = '[search(q="green tea", lang="zh")]'
WHOLE = [
    (ONE, [SEARCH]),
    (f"\n  {ONE}\n", [SEARCH]),
    (json.dumps({"type": "function", "name": "search", "parameters": SEARCH[1]}, indent=2), [SEARCH]),
    (json.dumps({"type": "function", "function": {"name": "search", "arguments": SEARCH[1]}}), [SEARCH]),
    (f'{ONE}; {{"name": "rm", "parameters": {{"path": "/"}}}}', [SEARCH, ("rm", {"path": "/"})]),
    ('{"name": "search", "parameters": {"type": "object"}}', [("search", {"type": "object"})]),
    ('{"name": "search", "parameters": {"properties": {}}}', [("search", {"properties": {}})]),
    (PYTHON, [SEARCH]),
    ("[rm(path='/'), search(q='green tea',lang='zh')]", [("rm", {"path": "/"}), SEARCH]),
    ("[now()]", [("now", {})]),
]
TEXTS = [
    f"Here it is: {ONE}",
    f"{ONE}\nThat is the call.",
    f"{PYTHON} is how to call it.",
    '{"name": "Ann", "age": 7}',
    '{"q": "green tea", "lang": "zh"}',
    '{"name": "other", "parameters": {"q": "x"}}',
    '{"name": "search", "description": "finds", "parameters": {"type": "object", "properties": {"q": {}}}}',
    '{"name": "search", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}',
    '{"name": "search"}',
    f"[{ONE}, 5]",
    f'{ONE}; {{"name": "other", "parameters": {{}}}}',
    "[other(q='x')]",
    "[search(q='x'), other(q='x')]",
    "[search(q=os.environ)]",
    "[search](https://example.com) has it.",
    "[1, 2, 3]",
    "{",
    "[search(",
    f"```json\n{ONE}\n```",
]
LIST = "nano-gpt/Salesforce/Llama-xLAM-2-70b-fc-r"
LISTS = [
    (json.dumps([{"name": "search", "arguments": SEARCH[1]}]), [SEARCH]),
    (f"\n[{ONE}, {ONE}]\n", [SEARCH, SEARCH]),
    (f"[TOOL_CALLS][{ONE}]", [SEARCH]),
]
OTHERS = ["alibaba/qwen3-32b", "zai/glm-4.7", "openai/gpt-4.1", "vllm/unheard-of"]


def sizes(text: str) -> list[list[str]]:
    """The text whole, by one, by seven, and cut in two at each place of a few."""
    cuts = range(1, len(text), max(1, len(text) // 9))
    by = [[text[i : i + n] for i in range(0, len(text), n)] for n in (1, 7)]
    return [[text], *by, *([text[:cut], text[cut:]] for cut in cuts)]


@each("text, calls", WHOLE)
def test_a_whole_answer_is_a_call_however_it_is_cut(text: str, calls: list[Any]) -> None:
    for pieces in sizes(text):
        _, reply = answers(LLAMA, wire(pieces), TOOLS)
        assert (called(reply), reply.text.strip(), reply.finish) == (calls, "", "tool_calls"), pieces
        assert [note.code for note in reply.notes].count("text-call") == len(calls)


@each("text, calls", LISTS)
def test_a_list_as_the_whole_answer_is_its_calls(text: str, calls: list[Any]) -> None:
    for pieces in sizes(text):
        _, reply = answers(LIST, wire(pieces), TOOLS)
        assert (called(reply), reply.text.strip(), reply.finish) == (calls, "", "tool_calls"), pieces


@each("text", TEXTS)
@each("model", [LLAMA, LIST])
def test_what_is_not_the_whole_answer_or_no_call_stays_as_it_is(model: str, text: str) -> None:
    for pieces in sizes(text):
        _, reply = answers(model, wire(pieces), TOOLS)
        assert (called(reply), reply.text) == ([], text), pieces


def test_no_quotation_becomes_a_call() -> None:
    def write(name: str, given: dict[str, str]) -> str:
        return json.dumps({"name": name, "parameters": given}, ensure_ascii=False)

    for way, text in cases(write, QUOTED):
        _, reply = answers(LLAMA, wire([text]), TOOLS)
        assert (called(reply), reply.text) == ([], text), way
    assert all(name in {function["function"]["name"] for function in TOOLS} for name, _ in CALLS)


@each("text, calls", WHOLE)
def test_without_tools_and_for_other_families_it_is_an_answer(text: str, calls: list[Any]) -> None:
    _, reply = answers(LLAMA, wire([text]))
    assert (called(reply), reply.text) == ([], text)
    for model in OTHERS:
        assert (called(found := read(model, text, TOOLS)), found.text) == ([], text)


def test_what_the_user_said_is_repeated_and_not_called() -> None:
    plan = engine.build_request(REGISTRY.resolve(LLAMA), f"Repeat: {ONE}", stream=True, tools=TOOLS)
    parser = engine.StreamParser(plan.model, plan=plan)
    for chunk in wire([ONE]):
        parser.feed(chunk)
    parser.end()
    reply = parser.close()
    assert (called(reply), reply.text) == ([], ONE)


def test_an_answer_that_was_cut_off_is_no_call() -> None:
    _, reply = answers(LLAMA, wire([ONE], finish="length"), TOOLS)
    assert (called(reply), reply.text) == ([], ONE)


@each("text", ["[1, 2, 3] are numbers", '{"a": 1}', "[search](https://example.com)", "Sure. [search(q='x')]"])
def test_what_cannot_be_a_call_is_delivered_at_once(text: str) -> None:
    plan = engine.build_request(REGISTRY.resolve(LLAMA), "Hi", stream=True, tools=TOOLS)
    parser = engine.StreamParser(plan.model, plan=plan)
    events = parser.feed(wire([text])[0])
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text
