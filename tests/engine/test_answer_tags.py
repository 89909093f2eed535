"""Tags around an answer go, whatever the pieces; the same tags in the middle of an answer stay."""

from __future__ import annotations

import json
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from cases import each
from hypothesis import given
from hypothesis import strategies as st

import cnllm
from cnllm import Model, engine
from cnllm.engine.decode.answer_markup import AnswerTags
from cnllm.protocols.pieces import TextPiece

from .conftest import Home
from .support import cuts, delta, finish, sse, times

TAGS = ["<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"]
OPEN, CLOSE, END = TAGS
CHANNELS = """
reasoning.tags = ["<|open|>think<|sep|>", "<|close|>think<|sep|>"]
reasoning.answer_tags = ["<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"]
[[models."home/m".leaks]]
open = ["<|open|>tools<|sep|>"]
close = ["<|close|>tools<|sep|>", "<|close|>message<|sep|>"]
format = ["channels"]
parts = ["<|open|>", "<|close|>", "<|sep|>"]
"""
"""A model whose thought, answer and calls stand in channels."""
TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}}}},
}
CALL = (
    '<|open|>call tool="get_weather" index="1"<|sep|>'
    '<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|><|close|>call<|sep|>'
)
TOOLS = f"<|open|>tools<|sep|>{CALL}<|close|>tools<|sep|>"
THOUGHT = "<|open|>think<|sep|>Hm.<|close|>think<|sep|>"

bits = st.sampled_from([*TAGS, "<|open|>", "<|close|>", "<", "response", " ", "\n", "a", "好b", "x" * 30])
answers = st.lists(bits | st.text(max_size=4), max_size=10).map("".join)


@pytest.fixture(scope="module")
def model(home: Home) -> Model:
    return home(more=CHANNELS)


def cut_up(text: str, places: list[int]) -> list[str]:
    """A text, cut at these places."""
    ends = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(ends)]


def fed(tags: AnswerTags, text: str) -> str:
    """What the tags let through of a piece."""
    return "".join(item.text for item in tags.feed(TextPiece(text)) if isinstance(item, TextPiece))


def rest(tags: AnswerTags) -> str:
    """What the tags let through at the end."""
    return "".join(item.text for item in tags.release() if isinstance(item, TextPiece))


def stripped(pieces: list[str]) -> str:
    tags = AnswerTags(TAGS)
    return "".join([fed(tags, piece) for piece in pieces]) + rest(tags)


@each(
    "text, kept",
    [
        (f"{OPEN}Hello{CLOSE}{END}", "Hello"),
        (f"\n{OPEN}Hello{CLOSE}\n{END}\n", "Hello"),
        ("Hello", "Hello"),
        (f"Hello{CLOSE}", "Hello"),
        (f"{OPEN}{CLOSE}", ""),
        ("", ""),
        (f"It ends with {CLOSE} and goes on.", f"It ends with {CLOSE} and goes on."),
        (f"It begins with {OPEN} and goes on.", f"It begins with {OPEN} and goes on."),
        (f"{OPEN}a{CLOSE}b{CLOSE}{END}", f"a{CLOSE}b"),
        ("a <|close|>resp", "a <|close|>resp"),
        (f"a{CLOSE}<|close|>mess", f"a{CLOSE}<|close|>mess"),
        (f"{OPEN}{'x' * 5000}{CLOSE}{END}", "x" * 5000),
    ],
)
def test_tags_go_from_both_ends_only(text: str, kept: str) -> None:
    assert stripped([text]) == kept


@times(150)
@given(answers, cuts)
def test_the_pieces_make_no_difference(text: str, places: list[int]) -> None:
    whole = stripped([text])
    assert stripped(cut_up(text, places)) == whole
    assert stripped(list(text)) == whole
    assert whole.replace(OPEN, "").replace(CLOSE, "").replace(END, "").strip() == (
        text.replace(OPEN, "").replace(CLOSE, "").replace(END, "").strip()
    )


@times(40)
@given(places=cuts)
def test_a_reply_in_channels_is_thought_answer_and_call(model: Model, places: list[int]) -> None:
    text = f"{THOUGHT}{OPEN}Let me see.{CLOSE}{TOOLS}{END}"
    filter_ = cnllm.Sanitizer(model, [TOOL])
    shown = "".join(map(filter_.feed, cut_up(text, places)))
    found = filter_.close()
    assert (shown + found.rest, found.reasoning) == ("Let me see.", "Hm.")
    assert [(call.name, call.arguments) for call in found.tool_calls] == [("get_weather", {"city": "Paris"})]


@times(40)
@given(places=cuts)
def test_an_answer_begins_anew_behind_a_stray_tag_of_reasoning(model: Model, places: list[int]) -> None:
    for first in ("A", f"{OPEN}A{CLOSE}", f"{OPEN}A"):
        sanitizer = cnllm.Sanitizer(model)
        text = f"{first}<|close|>think<|sep|>{OPEN}B{CLOSE}"
        shown = "".join(map(sanitizer.feed, cut_up(text, places)))
        assert shown + sanitizer.close().rest == "AB"


def test_a_call_that_was_cut_off_is_no_call(model: Model) -> None:
    for end in range(len("<|open|>tools<|sep|>") + 8, TOOLS.index("call<|sep|><|close|>tools"), 7):
        found = cnllm.sanitize(model, f"{OPEN}Let me see.{CLOSE}{TOOLS[:end]}", [TOOL])
        assert found.tool_calls == []
        assert found.text.startswith("Let me see.")


def test_a_quoted_call_stays_text(model: Model) -> None:
    text = f"A call looks like this:\n```\n{TOOLS}\n```\nThat is all."
    found = cnllm.sanitize(model, f"{OPEN}{text}{CLOSE}{END}", [TOOL])
    assert (found.text, found.tool_calls) == (text, [])


def test_tags_go_from_a_whole_reply_and_from_a_stream_of_tokens(model: Model) -> None:
    pieces = [THOUGHT, OPEN, "Hel", "lo", " there", CLOSE[:7], CLOSE[7:], END]
    body = {"choices": [{"message": {"role": "assistant", "content": "".join(pieces)}, "finish_reason": "stop"}]}
    reply = engine.parse_response(model, 200, {}, json.dumps(body).encode())
    assert (reply.text, reply.reasoning) == ("Hello there", "Hm.")
    parser = engine.StreamParser(model)
    events = []
    for piece in pieces:
        chunk = {"id": "1", "model": "m", "choices": [{"index": 0, "delta": {"content": piece}}]}
        events += parser.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    events += parser.feed(b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
    streamed = parser.close()
    assert (streamed.text, streamed.reasoning) == ("Hello there", "Hm.")
    assert "".join(event.text for event in events if isinstance(event, cnllm.TextDelta)) == "Hello there"


def test_white_space_without_an_end_does_not_wait() -> None:
    tags = AnswerTags(["<answer>", "</answer>"])
    out = "".join(fed(tags, " " * 64) for _ in range(1000))
    waiting = rest(tags)
    assert len(out) + len(waiting) == 64_000
    assert len(waiting) <= 1024


def test_an_opening_tag_alone_is_enough() -> None:
    tags = AnswerTags(["<answer>"])
    assert fed(tags, "<answer>42") + rest(tags) == "42"


@each("pieces", [[f"{OPEN}Hi.{CLOSE}{END}"], [*f"{OPEN}Hi.{CLOSE}{END}"]])
def test_each_tag_that_is_left_out_has_a_note(model: Model, pieces: list[str]) -> None:
    sanitizer = cnllm.Sanitizer(model)
    text = "".join(map(sanitizer.feed, pieces))
    found = sanitizer.close()
    assert text + found.rest == "Hi."
    assert {note.said for note in found.notes} == {OPEN, CLOSE, END}


FORMS = ["<a>", "</a>", "", "<answer>", "</answer>", "<end>", "", "<a>b"]


@each(
    "text, kept",
    [
        ("<a>Hi.</a>", "Hi."),
        ("<answer>Hi.</answer><end>", "Hi."),
        ("Hi.<end>", "Hi."),
        ("<a>bHi.", "Hi."),
        ("<a> <answer>Hi.", " <answer>Hi."),
        ("Hi.<a>", "Hi.<a>"),
        ("Hi.<answer>", "Hi.<answer>"),
        ("<a", "<a"),
        ("", ""),
    ],
)
def test_one_of_several_forms_goes(text: str, kept: str) -> None:
    for size in (1, 2, 100):
        tags = AnswerTags(FORMS)
        assert "".join(fed(tags, text[at : at + size]) for at in range(0, len(text), size)) + rest(tags) == kept


def test_the_tags_of_each_family_go_where_the_id_says_nothing() -> None:
    """A server without a parser may serve a model under any name."""
    path = Path(__file__).parent.parent.parent / "providers.toml"
    families = tomllib.loads(path.read_text(encoding="utf-8"))["families"]
    forms = {name: tags for name, table in families.items() if (tags := table.get("reasoning", {}).get("answer_tags"))}
    assert len(forms) > 5
    model = cnllm.Registry.load().resolve("openai-compatible/any-name", base_url="http://127.0.0.1:1/v1")
    several = [(name, form) for name, tags in forms.items() for form in "\0".join(tags).split("\0\0")]
    for name, (opening, *closing) in ((name, form.split("\0")) for name, form in several):
        said = f"{opening}Hello{''.join(closing)}"
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        reply = engine.parse_response(model, 200, {}, json.dumps({"choices": [choice]}).encode())
        assert (reply.text, reply.reasoning) == ("Hello", ""), name
        parser = engine.StreamParser(model)
        for character in said:
            parser.feed(sse(delta(content=character), done=False))
        parser.feed(sse(finish()))
        parser.end()
        assert parser.close().text == "Hello", name


def test_the_token_that_ends_a_turn_is_no_text() -> None:
    said = "<|START_RESPONSE|>Hello<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"
    choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
    model = cnllm.Registry.load().resolve("vllm/CohereLabs/c4ai-command-r7b-12-2024")
    assert engine.parse_response(model, 200, {}, json.dumps({"choices": [choice]}).encode()).text == "Hello"


def test_a_thought_and_an_answer_in_channels_are_told_apart_where_the_id_says_nothing() -> None:
    model = cnllm.Registry.load().resolve("openai-compatible/any-name", base_url="http://127.0.0.1:1/v1")
    said = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>It is <|return|> here."
    choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
    reply = engine.parse_response(model, 200, {}, json.dumps({"choices": [choice]}).encode())
    assert (reply.text, reply.reasoning) == ("It is <|return|> here.", "Hm.")


PLAIN = [
    ("vllm/baidu/ERNIE-4.5-21B-A3B-Thinking", "response"),
    ("sglang/tencent/Hunyuan-A13B-Instruct", "answer"),
]


def told(model: str, text: str) -> set[tuple[str, str]]:
    """(text, reasoning) of an answer, as a whole and in any two pieces of a stream."""
    found = cnllm.Registry.load().resolve(model)
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    reply = engine.parse_response(found, 200, {}, json.dumps({"choices": [choice]}).encode())
    seen = {(reply.text, reply.reasoning)}
    for at in range(len(text)):
        parser = engine.StreamParser(found)
        for piece in filter(None, (text[:at], text[at:])):
            parser.feed(sse(delta(content=piece), done=False))
        parser.feed(sse(finish()))
        parser.end()
        reply = parser.close()
        seen.add((reply.text, reply.reasoning))
    return seen


@each("model, word", PLAIN)
def test_tags_in_plain_words_go_behind_reasoning_in_the_text(model: str, word: str) -> None:
    answer = f"<{word}>\nIt is 4.\n</{word}>"
    assert told(model, f"<think>\nHm.\n</think>\n{answer}\n") == {("\nIt is 4.\n", "\nHm.\n")}
    assert told(model, f"Hm.\n</think>\n\n{answer}") == {("Hm.\n\nIt is 4.\n", "")}  # the template wrote the first tag


@each("model, word", [*PLAIN, ("vllm/unheard-of", "answer")])
def test_tags_in_plain_words_are_what_the_caller_asked_for_elsewhere(model: str, word: str) -> None:
    for text in (f"<{word}>4</{word}>", f"It is <{word}>4</{word}>", f"```xml\n<{word}>4</{word}>\n```"):
        assert told(model, text) == {(text, "")}
    thought = f"<think>Hm.</think><{word}>4</{word}>"
    assert told("vllm/unheard-of", thought) == {(f"<{word}>4</{word}>", "Hm.")}
