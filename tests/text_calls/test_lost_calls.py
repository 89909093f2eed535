"""Calls of Kimi models that a server's parser lost: at least 95 % come back from the text, at every split.

The samples are written as the models' chat templates write them: whole, or with the markers that models leave out and
that servers remove, as the whole answer, between reasoning and an answer, or all of it taken for reasoning.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from cases import each
from examples import share
from hypothesis import given, settings
from hypothesis import strategies as st

from .support import REGISTRY, answers, called, read, told, tool, wire

Arguments = dict[str, Any]
TOOLS = [
    tool("get_weather", city="string", days="integer", units={"type": "array", "items": {"type": "string"}}),
    tool("mcp__files__write", path="string", text="string", options={"type": "object"}),
    tool("now"),
]
VALUES: dict[str, list[Any]] = {
    "city": ["Paris", "北京 🙂", " São Paulo ", 'the "old" town', "a\nb"],
    "days": [1, 0, 12],
    "units": [["°C"], [], ["°C", "mm"]],
    "path": ["a/b.txt", "C:\\temp", "C&A <x>.txt"],
    "text": ["# 标题\n\n- `x < 3`\n", "", '{"a": [1, 2]}', "<b>bold</b> & more", "if a < b and c > d:\n    pass"],
    "options": [{}, {"mode": "a", "deep": {"ü": [True, None]}}],
}
THINK = ("<|open|>think<|sep|>", "<|close|>think<|sep|>")
RESPONSE = ("<|open|>response<|sep|>", "<|close|>response<|sep|>")
END = "<|close|>message<|sep|>"


class Sample(NamedTuple):
    """A text, its calls and its answer, and the field of the reply in which the server left it."""

    text: str
    calls: list[tuple[str, Arguments]]
    answer: str
    field: str = "content"


def make_calls(rng: random.Random) -> list[tuple[str, Arguments]]:
    """Some calls, no two of them alike."""
    calls = []
    for function in rng.sample(TOOLS, rng.choice((1, 1, 2, 3))):
        name = function["function"]["name"]
        keys = function["function"]["parameters"]["properties"]
        calls.append((name, {key: rng.choice(VALUES[key]) for key in keys}))
    return calls


def channels(calls: list[tuple[str, Arguments]], rng: random.Random) -> str:
    """The tools of a message as K3 writes them."""
    space = rng.choice(("", "", "\n", "\n  "))
    drops = rng.choice(("", "", "", "section", "begin", "end", "calls"))
    with_index, as_json, prefix = rng.random() < 0.8, rng.random() < 0.3, rng.choice(("", "", "functions."))
    out = []
    for place, (name, arguments) in enumerate(calls, 1):
        number = f":{place}" if prefix and rng.random() < 0.5 else ""
        index = f' index="{place}"' if with_index else ""
        body = f'<|open|>call tool="{prefix}{name}{number}"{index}<|sep|>{space}'
        if as_json:
            given = json.dumps(arguments, ensure_ascii=False)
            body += f'<|open|>json type="object"<|sep|>{given}<|close|>json<|sep|>{space}'
        else:
            for key, value in arguments.items():
                kind = {str: "string", int: "number", list: "array", dict: "object"}[type(value)]
                given = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                body += f'<|open|>argument key="{key}" type="{kind}"<|sep|>{given}<|close|>argument<|sep|>{space}'
        is_last = place == len(calls)
        out.append(body + ("" if drops == "calls" and not is_last else "<|close|>call<|sep|>"))
    opening = "" if drops in ("section", "begin") else "<|open|>tools<|sep|>"
    closing = "" if drops in ("section", "end") else "<|close|>tools<|sep|>"
    return opening + space + space.join(out) + space + closing


def sections(calls: list[tuple[str, Arguments]], rng: random.Random) -> str:
    """The calls of a message as K2 writes them."""
    space, word = rng.choice(("", "", "\n")), rng.choice(("calls", "calls", "call"))
    drops = rng.choice(("", "", "", "section", "begin", "end"))
    form = rng.choice(("functions.{}:{}", "functions.{}:{}", "{}:{}", "{}"))
    out = [
        f"<|tool_call_begin|>{form.format(name, place)}{space}<|tool_call_argument_begin|>"
        f"{json.dumps(arguments, ensure_ascii=False)}{space}<|tool_call_end|>"
        for place, (name, arguments) in enumerate(calls)
    ]
    opening = "" if drops in ("section", "begin") else f"<|tool_{word}_section_begin|>"
    closing = "" if drops in ("section", "end") else f"<|tool_{word}_section_end|>"
    return opening + space + space.join(out) + space + closing


def sample_k3(rng: random.Random) -> Sample:
    """A reply of K3 whose calls the server did not read."""
    calls = make_calls(rng)
    block, end = channels(calls, rng), rng.choice((END, END, ""))
    answer = rng.choice(("", "", "On it.", "我来查一下。"))
    response = rng.choice((f"{RESPONSE[0]}{answer}{RESPONSE[1]}", f"{RESPONSE[0]}{answer}", answer))
    thought = rng.choice(("I need the tool.", "先查天气，再写文件。\n"))
    match rng.choice(("content", "content", "reasoning", "inside", "all", "split")):
        case "content":
            return Sample(response + block + end, calls, answer)
        case "reasoning":
            return Sample(f"{THINK[0]}{thought}{THINK[1]}{response}{block}{end}", calls, answer)
        case "inside":  # the model never ended its thought
            tail = rng.choice(("", THINK[1], f"{THINK[1]}{RESPONSE[0]}{RESPONSE[1]}"))
            return Sample(f"{THINK[0]}{thought}{block}{tail}{end}", calls, "")
        case "all":  # and the server took all of it for reasoning
            return Sample(thought + response + block + end, calls, "", "reasoning_content")
        case _:
            return Sample(f"{THINK[1]}{response}{block}{end}", calls, answer)


def sample_k2(rng: random.Random) -> Sample:
    """A reply of K2 whose calls the server did not read."""
    calls = make_calls(rng)
    block, answer = sections(calls, rng), rng.choice(("", "", "On it.", "我来查一下。"))
    match rng.choice(("content", "reasoning", "inside", "all", "split")):
        case "content":
            return Sample(answer + block, calls, answer)
        case "reasoning":
            return Sample(f"<think>Hm.</think>{answer}{block}", calls, answer)
        case "inside":
            return Sample(f"<think>Hm. {block}" + rng.choice(("", "</think>")), calls, "")
        case "all":
            return Sample(f"Hm. {block}" + rng.choice(("", "</think>")), calls, "", "reasoning_content")
        case _:
            return Sample(f"</think>{answer}{block}", calls, answer)


MODELS: dict[str, Callable[[random.Random], Sample]] = {
    "moonshotai/kimi-k3": sample_k3,
    "deepinfra/moonshotai/Kimi-K3": sample_k3,
    "fireworks-ai/accounts/fireworks/models/kimi-k3": sample_k3,
    "moonshotai/kimi-k2.5": sample_k2,
}


def splits(text: str, rng: random.Random) -> Iterator[list[str]]:
    """The text as one piece, cut at some places, and now and then in characters."""
    yield [text]
    if rng.random() < 0.2:
        yield list(text)
    for number in (1, 6):
        ends = sorted({0, len(text), *(rng.randrange(len(text)) for _ in range(number))})
        yield [text[start:end] for start, end in pairwise(ends)]


@pytest.mark.sampled
@each("model", MODELS)
def test_calls_that_a_parser_lost_come_back_at_every_split(model: str) -> None:
    rng = random.Random(model)
    number = share(200)
    recovered, lost = 0, []
    for _ in range(number):
        sample = MODELS[model](rng)
        outcomes = []
        for pieces in splits(sample.text, rng):
            events, reply = answers(model, wire(pieces, field=sample.field), TOOLS)
            assert told(events) == (reply.text, reply.reasoning, called(reply)), sample.text
            outcomes.append((called(reply), reply.text, reply.reasoning))
        assert all(outcome == outcomes[0] for outcome in outcomes), sample.text
        found, text, _ = outcomes[0]
        assert all(call in sample.calls for call in found), sample.text  # nothing is invented
        recovered += found == sample.calls
        if found != sample.calls:
            lost.append(sample.text)
        else:
            assert text.strip() == sample.answer, sample.text
    assert recovered >= 0.95 * number, lost[:3]
    assert lost == []


@settings(max_examples=share(60), deadline=None)
@given(st.integers(0, 10**6), st.data())
def test_any_sample_comes_back_however_it_is_cut(seed: int, data: st.DataObject) -> None:
    rng = random.Random(seed)
    model = data.draw(st.sampled_from(sorted(MODELS)))
    sample = MODELS[model](rng)
    at = data.draw(st.integers(0, len(sample.text)))
    _, reply = answers(model, wire([sample.text[:at], sample.text[at:]], field=sample.field), TOOLS)
    assert called(reply) == sample.calls


QUOTES: list[Callable[[str], str]] = [
    lambda block: f"A call looks like this:\n\n```\n{block}\n```\nThat is all.",
    lambda block: f"Write `{' '.join(block.split())}` for it.",
    lambda block: "> " + block.replace("\n", "\n> "),
    lambda block: f"<pre>{block}</pre>",
]


@pytest.mark.sampled
@each("model", MODELS)
def test_no_call_comes_from_a_quotation(model: str) -> None:
    rng = random.Random(model)
    writes = channels if MODELS[model] is sample_k3 else sections
    plain = [("get_weather", {"city": "Paris", "days": 1, "units": []}), ("now", {})]
    for _ in range(share(40) // 4):
        for quote in QUOTES:
            text = quote(writes(plain, rng))
            for pieces in splits(text, rng):
                _, reply = answers(model, wire(pieces), TOOLS)
                assert (called(reply), reply.text) == ([], text)


def test_a_call_in_reasoning_that_an_answer_follows_is_only_thought_of() -> None:
    block = channels([("now", {})], random.Random(1))
    for tail in ("No, I know it.", f"{THINK[1]}{RESPONSE[0]}It is noon.{RESPONSE[1]}{END}"):
        found = read("moonshotai/kimi-k3", f"{THINK[0]}Perhaps {block}{tail}", TOOLS)
        assert called(found) == []


@each("value", ["<b>a</b>", "[1, 2]", '{"a": 1}', "<html>\n<p>"])
def test_a_call_that_ends_inside_of_a_value_is_no_call(value: str) -> None:
    offered = [tool("write", text="string")]
    for text in (
        f"<tool_call>\n<function=write>\n<parameter=text>\n{value}",
        f'<minimax:tool_call>\n<invoke name="write">\n<parameter name="text">{value}',
    ):
        found = read("openai-compatible/m", text, offered)
        assert (called(found), found.text) == ([], text)


def test_a_call_whose_arguments_were_cut_off_is_no_call() -> None:
    text = channels([("get_weather", {"city": "Paris", "days": 1, "units": []})], random.Random(4))
    assert called(read("moonshotai/kimi-k3", text, TOOLS))
    for rule in (text, text.removeprefix("<|open|>tools<|sep|>")):
        for end in range(len(rule[: rule.rindex("call<|sep|>")])):
            found = cut = read("moonshotai/kimi-k3", rule[:end], TOOLS)
            assert called(found) == [], cut.text


def test_every_host_of_the_weights_reads_them() -> None:
    block = channels([("now", {})], random.Random(1))
    for name in REGISTRY.hosts("moonshotai/kimi-k3"):
        assert called(read(name, block, TOOLS)) == [("now", {})], name
