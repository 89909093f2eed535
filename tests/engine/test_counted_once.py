"""What a host sends twice counts once, and the word of the end is enough."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from note_rules import check_notes

from cnllm import Media, Model, ReasoningDelta, Registry, Reply, StreamCut, TextDelta, engine
from cnllm.protocols import PROTOCOLS

from .conftest import Home

WORDS = "I think about it, then I answer it well."
URL = "http://127.0.0.1:1/v1"
SPLITS = (0, 1, 7, 64)


DETAILS = """
reasoning.mode = "always"
reasoning.default = "on"
reasoning.replay = "always"
reasoning.replay_as = "details"
reasoning.replay_field = "reasoning_details"
"""
OFF_PEAK = """
[models."home/m".price]
currency = "USD"
input = 0.30
output = 1.20
off_peak = { peak = ["Mon-Fri 09:00-12:00", "Mon-Fri 14:00-18:00"], zone = "+08:00", input = 0.15, output = 0.60 }
"""


@pytest.fixture(scope="module")
def models(home: Home) -> dict[str, Model]:
    registry = Registry.load()
    return {p: registry.resolve("openai-compatible/x", base_url=URL, protocol=p) for p in PROTOCOLS} | {
        "details": home(more=DETAILS),
        "off-peak": home(more=OFF_PEAK),
    }


def frames(chunks: list[Any], end: bytes = b"data: [DONE]\n\n") -> bytes:
    return b"".join(b"data: " + json.dumps(c).encode() + b"\n\n" for c in chunks) + end


def chunk(delta: dict[str, Any] | None = None, text: str | None = None, **choice: Any) -> dict[str, Any]:
    if text is not None:
        choice["text"] = text
    return {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta or {}, **choice}]}


STOP = chunk(finish_reason="stop")


def read(model: Model, chunks: list[Any], size: int = 0, **options: Any) -> Reply:
    """The reply of a stream in pieces of this size; its events say the same."""
    plan = engine.build_request(model, "hi", stream=True, **options)
    parser = engine.StreamParser(model, plan=plan)
    body = frames(chunks)
    events = []
    for at in range(0, len(body), size or len(body)):
        events += parser.feed(body[at : at + (size or len(body))])
    events += parser.end()
    reply = parser.close()
    check_notes(reply.notes)
    assert "".join(e.text for e in events if type(e) is TextDelta) == reply.text
    assert "".join(e.text for e in events if type(e) is ReasoningDelta) == reply.reasoning
    return reply


LEGACY: dict[str, tuple[list[Any], str]] = {
    "both in each chunk": ([chunk({"content": "Hel"}, "Hel"), chunk({"content": "lo"}, "lo"), STOP], "Hello"),
    "the older one alone": ([chunk(text="Hel"), chunk(text="lo"), STOP], "Hello"),
    "content later, whole": ([chunk(text="Hel"), chunk(text="lo"), chunk({"content": "Hello"}), STOP], "Hello"),
    "content a chunk late": (
        [chunk(text="Hel"), chunk({"content": "Hel"}, "lo"), chunk({"content": "lo"}), STOP],
        "Hello",
    ),
    "content later, in pieces": (
        [chunk(text="Hello"), *[chunk({"content": c}) for c in "Hello you"], STOP],
        "Hello you",
    ),
    "content goes on": ([chunk(text="Hel"), chunk({"content": "lo"}), STOP], "Hello"),
    "content as parts": ([chunk({"content": [{"type": "text", "text": "Hello"}]}, "Hello"), STOP], "Hello"),
    "a message beside it": ([chunk(text="Hello"), chunk(message={"content": "Hello"}), STOP], "Hello"),
    "the thinking, too": (
        [chunk({"reasoning_content": "hm"}, "hm"), chunk({"content": "Hello"}, "Hello"), STOP],
        "Hello",
    ),
}


def test_text_in_the_older_field_counts_only_without_content(models: dict[str, Model]) -> None:
    for name, (chunks, text) in LEGACY.items():
        for size in SPLITS:
            assert read(models["openai-chat"], chunks, size).text == text, (name, size)
    for message, text in (({"content": "Hello"}, "Hello"), ({"content": None}, "older"), ({}, "older")):
        body = {"choices": [{"index": 0, "text": "older" if text == "older" else "Hello", "message": message}]}
        assert engine.parse_response(models["openai-chat"], 200, {}, json.dumps(body).encode()).text == text


def thinking(**delta: Any) -> dict[str, Any]:
    return chunk(delta)


def pieces(size: int) -> list[str]:
    return [WORDS[at : at + size] for at in range(0, len(WORDS), size)]


def details(text: str) -> list[Any]:
    return [{"type": "reasoning.text", "text": text}]


YES = thinking(content="Yes")


def twice() -> dict[str, list[Any]]:
    tagged = f"<think>{WORDS}</think>Yes"
    halves = [*pairwise([0, 9, 20, len(WORDS)])]
    return {
        "the same field whole": [
            *[thinking(reasoning_content=p) for p in pieces(4)],
            YES,
            thinking(reasoning_content=WORDS),
        ],
        "a message whole": [
            *[thinking(reasoning_content=p) for p in pieces(4)],
            chunk(message={"reasoning_content": WORDS, "content": "Yes"}),
        ],
        "two fields in turn": [t for p in pieces(5) for t in (thinking(reasoning=p), thinking(reasoning_content=p))]
        + [YES],
        "two fields in one chunk": [*[thinking(reasoning=p, reasoning_content=p) for p in pieces(5)], YES],
        "each ahead in turn": [
            *[
                thinking(**{f: WORDS[a:b]})
                for (a, b), f in ((h, f) for h in halves for f in ("reasoning", "reasoning_content"))
            ],
            YES,
        ],
        "one overtakes": [
            thinking(reasoning=WORDS[:4]),
            thinking(reasoning_content=WORDS[:9]),
            thinking(reasoning=WORDS[4:30]),
            thinking(reasoning_content=WORDS[9:]),
            thinking(reasoning=WORDS[30:]),
            YES,
        ],
        "the other one whole at the end": [
            *[thinking(reasoning=p) for p in pieces(6)],
            YES,
            thinking(reasoning_content=WORDS),
        ],
        "details and tags at once": [
            thinking(reasoning_details=details(WORDS), content=f"<think>\n{WORDS}\n</think>\n\nYes")
        ],
        "details and tags side by side": [
            *[
                thinking(reasoning_details=details(p), content=("" if i else "<think>\n") + p)
                for i, p in enumerate(pieces(3))
            ],
            thinking(content="\n</think>\nYes"),
        ],
        "tags, then the details": [*[thinking(content=p) for p in tagged], thinking(reasoning_details=details(WORDS))],
        "once": [*[thinking(reasoning=p) for p in pieces(6)], YES],
        "one field goes on in the other": [thinking(reasoning=WORDS[:9]), thinking(reasoning_content=WORDS[9:]), YES],
    }


def test_thinking_that_comes_twice_counts_once(models: dict[str, Model]) -> None:
    for name, chunks in twice().items():
        for size in SPLITS:
            reply = read(models["openai-chat"], [*chunks, STOP], size)
            assert (reply.reasoning.strip(), reply.text) == (WORDS, "Yes"), (name, size)
    for message in (
        {"reasoning_details": details(WORDS), "content": f"<think>\n{WORDS}\n</think>\n\nYes"},
        {"reasoning": WORDS, "reasoning_content": WORDS, "reasoning_details": details(WORDS), "content": "Yes"},
    ):
        body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
        reply = engine.parse_response(models["openai-chat"], 200, {}, body)
        assert (reply.reasoning, reply.text) == (WORDS, "Yes")


def test_a_short_detail_that_comes_again_as_a_snapshot_goes_back_once(home: Home) -> None:
    model = home("stream.deltas = 'cumulative'", more=DETAILS)
    detail = {"type": "reasoning.text", "index": 0}
    steps = [{**detail, "text": text} for text in ("Hm", "Hm, so", "Hm, so")]
    reply = read(model, [*[thinking(reasoning_details=[step]) for step in steps], chunk({"content": "Yes."}), STOP])
    assert reply.reasoning == "Hm, so"
    [seal] = [part.seal for part in reply.message.parts if part.seal is not None]
    assert seal.data == [{**detail, "text": "Hm, so"}]


def test_details_that_come_again_as_a_whole_go_back_once(models: dict[str, Model]) -> None:
    chunks = [thinking(reasoning_details=details(p)) for p in pieces(9)]
    reply = read(models["details"], [*chunks, YES, thinking(reasoning_details=details(WORDS)), STOP])
    plan = engine.build_request(models["details"], ["hi", reply.message, "go on"])
    assert [d["text"] for d in plan.body["messages"][1]["reasoning_details"]] == [WORDS]


LINE = "*" * 24
GROWING: dict[str, list[str]] = {
    "behind another text": ["A triangle:", *("\n" + LINE + "*" * n for n in range(6)), "\n", "Done."],
    "from the beginning": [*(LINE + "*" * n for n in range(6)), "*", "Done."],
    "behind a space": [" ", *(LINE + "*" * n for n in range(6)), "Done."],
}


@pytest.mark.parametrize("pieces", GROWING.values(), ids=GROWING)
@pytest.mark.parametrize("field", ["content", "reasoning_content"])
def test_deltas_that_repeat_the_last_one_and_more_are_deltas(
    models: dict[str, Model], field: str, pieces: list[str]
) -> None:
    body = frames([*(chunk({field: piece}) for piece in pieces), *([YES] if field != "content" else []), STOP])
    for size in SPLITS:
        parser = engine.StreamParser(models["openai-chat"])
        for at in range(0, len(body), size or len(body)):
            parser.feed(body[at : at + (size or len(body))])
        reply = parser.close()
        assert (reply.text if field == "content" else reply.reasoning) == "".join(pieces)


def test_many_snapshots_are_snapshots_whatever_follows(models: dict[str, Model]) -> None:
    words = [LINE + "".join(f" {n}" for n in range(count)) for count in range(50)]
    reply = engine.StreamParser(models["openai-chat"])
    reply.feed(frames([*(chunk({"content": word}) for word in words), chunk({"content": "End."}), STOP]))
    assert reply.close().text == words[-1] + "End."


def test_other_thinking_between_tags_that_begins_alike_is_whole(models: dict[str, Model]) -> None:
    for first in ("The user wants a poem.", "The user asks for a poem about the sea and a boat on it."):
        other = [*first[:-9], "story."]
        chunks = [
            thinking(reasoning_content=first),
            *(chunk({"content": p}) for p in ("<think>", *other, "</think>ok")),
        ]
        for size in SPLITS:
            reply = read(models["openai-chat"], [*chunks, STOP], size)
            assert (reply.reasoning, reply.text) == (first + "".join(other), "ok")


def test_a_piece_of_thinking_that_equals_the_first_one_is_no_repetition(models: dict[str, Model]) -> None:
    piece = "Wait, let me check this step again. "
    twice = [thinking(reasoning_content=piece), thinking(reasoning_content=piece), YES, STOP]
    assert read(models["openai-chat"], twice).reasoning == piece * 2
    again = [thinking(reasoning_content=piece), YES, thinking(reasoning_content=piece), STOP]
    assert read(models["openai-chat"], again).reasoning == piece


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_what_the_deltas_lack_of_the_message_beside_the_last_one_is_added(models: dict[str, Model]) -> None:
    model = models["openai-chat"]
    message = {
        "content": "Hello",
        "reasoning_content": "Hm.",
        "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}],
    }
    for size in SPLITS:
        last = chunk(message={**message, "tool_calls": [CALL]}, finish_reason="stop")
        reply = read(model, [chunk({"content": "He"}), last], size)
        assert (reply.text, reply.reasoning, sum(type(part) is Media for part in reply.message.parts)) == (
            "Hello",
            "Hm.",
            1,
        )
        assert [call.name for call in reply.tool_calls] == ["f"]
        all_came = [
            thinking(reasoning_content="Hm."),
            chunk({"content": "Hello", "tool_calls": [{**CALL, "index": 0}]}),
        ]
        reply = read(model, [*all_came, last], size)
        assert (reply.text, reply.reasoning, len(reply.tool_calls)) == ("Hello", "Hm.", 1)
        reply = read(
            model, [chunk({"content": "Yes"}), chunk(message={"content": "<t>Hm</t>Yes"}, finish_reason="stop")]
        )
        assert (reply.text, reply.finish) == ("Yes", "stop")
        assert "text-differs" in [note.code for note in reply.notes]


def test_other_thinking_in_another_field_is_kept(models: dict[str, Model]) -> None:
    reply = read(models["openai-chat"], [thinking(reasoning="One."), thinking(reasoning_content="Two."), YES, STOP])
    assert reply.reasoning == "One.Two."


@pytest.mark.parametrize(
    "tail", [b"data: [DONE]", b"data: [DONE]\n", b"data:[DONE]\r\n", b"data: [DONE]\r", b"data: [DONE]  "]
)
def test_the_closing_word_ends_a_stream_at_once(models: dict[str, Model], tail: bytes) -> None:
    model = models["openai-chat"]
    for size in (1, 3, 1000):
        for begin in (frames([YES, STOP], b""), frames([YES, STOP], b"")[:-1]):  # the second: no blank line before it
            parser = engine.StreamParser(model)
            body = begin + tail
            for at in range(0, len(body), size):
                assert not parser.done
                parser.feed(body[at : at + size])
                if parser.done:
                    break
            assert parser.done
            assert parser.close().text == "Yes"
    parser = engine.StreamParser(model)
    parser.feed(frames([thinking(content="data: [DONE]")], b"data: [DON"))  # not yet
    assert not parser.done
    with pytest.raises(StreamCut):
        parser.close()


ZEROS: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "total_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    },
    "openai-responses": {
        "status": "completed",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}],
        "usage": {
            "input_tokens": 0,
            "output_tokens": 0,
            "total_tokens": 0,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    },
    "anthropic-messages": {
        "type": "message",
        "content": [{"type": "text", "text": "a"}],
        "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 0,
            "output_tokens": 0,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
        },
    },
    "gemini": {
        "candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": 0,
            "candidatesTokenCount": 0,
            "totalTokenCount": 0,
            "cachedContentTokenCount": 0,
            "thoughtsTokenCount": 0,
        },
    },
}


def test_zeros_alone_are_no_report_for_a_reply_with_text(models: dict[str, Model]) -> None:
    for protocol, body in ZEROS.items():
        reply = engine.parse_response(models[protocol], 200, {}, json.dumps(body).encode())
        assert (reply.usage.total, reply.cost) == (0, None), protocol
    streamed = read(models["openai-chat"], [YES, STOP, {"choices": [], "usage": ZEROS["openai-chat"]["usage"]}])
    assert (streamed.usage.total, streamed.cost) == (0, None)


def test_hours_decide_the_price(models: dict[str, Model]) -> None:
    body: dict[str, Any] = {
        "choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1_000_000, "completion_tokens": 0},
    }
    monday = 1795363200  # 2026-11-23, 00:00 in Beijing
    amounts = {}
    for hour in (8.99, 9, 11.99, 12, 13.99, 14, 17.99, 18, 24 * 5 + 10, None):
        body["created"] = None if hour is None else int(monday + hour * 3600)
        reply = engine.parse_response(models["off-peak"], 200, {}, json.dumps(body).encode())
        assert reply.cost is not None
        amounts[hour] = float(reply.cost.amount)
        assert ("price-peak" in {note.code for note in reply.notes}) == (hour is None)
    peak = {9, 11.99, 14, 17.99}
    assert amounts == {hour: 0.30 if hour in peak else 0.15 for hour in amounts}
    assert reply.cost is not None
    assert "hours" in reply.cost.missing
