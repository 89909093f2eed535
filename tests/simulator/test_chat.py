"""The dialects, byte by byte: whole bodies, frames, and that both say the same."""

import itertools
import json
from typing import Any

from cases import each

from .support import REGISTRY, Json, ask, choice, events, send, taken, tool

SPOKEN = [n for n in REGISTRY.names() if not n.startswith("other/")]
BODIES = {
    "en": ask(),
    "zh": ask("为什么天空是蓝色的？"),
    "calls": ask("并行查两个", tools=[tool("a"), tool("b")]),
    "cut": ask(max_tokens=3, max_completion_tokens=3),
    "cut-call": ask(tools=[tool()], max_tokens=40, max_completion_tokens=40),
}


def text_of(content: Any) -> str:
    if isinstance(content, list):
        return "".join(p["text"] for p in content if p["type"] == "text")
    return content or ""


def details_text(value: Any) -> str:
    return "".join(d["text"] for d in value) if isinstance(value, list) else value or ""


def musing_of(content: Any) -> str:
    parts = content if isinstance(content, list) else []
    return "".join(details_text(p["musing"]) for p in parts if p["type"] == "musing")


def gathered(frames: list[Json], cumulative: bool) -> Json:
    """The message that a stream's deltas make."""
    out: Json = {"content": "", "thoughts": "", "details": "", "musing": "", "calls": []}
    for frame in frames:
        for found in frame["choices"]:
            delta = found["delta"]
            for key, value in (
                ("content", text_of(delta.get("content"))),
                ("thoughts", delta.get("thoughts") or ""),
                ("details", details_text(delta.get("details"))),
                ("musing", musing_of(delta.get("content"))),
            ):
                out[key] = (value or out[key]) if cumulative else out[key] + value
            for call in delta.get("tool_calls", []):
                if call["index"] == len(out["calls"]):
                    out["calls"].append([call["id"], call["function"]["name"], ""])
                out["calls"][call["index"]][2] += call["function"]["arguments"]
    return out


def flat(message: Json) -> Json:
    calls = message.get("tool_calls", [])
    return {
        "content": text_of(message["content"]),
        "thoughts": message.get("thoughts", ""),
        "details": details_text(message.get("details")),
        "musing": musing_of(message["content"]),
        "calls": [[c["id"], c["function"]["name"], c["function"]["arguments"]] for c in calls],
    }


@each("kind", BODIES)
@each("name", lambda: [n for n in SPOKEN if n != "strict/streams"])
def test_a_stream_says_what_the_whole_says(name: str, kind: str) -> None:
    body = BODIES[kind] | {"stream_options": {"include_usage": True}}
    whole = taken(name, body)
    frames = events(name, body)
    assert gathered(frames, name.startswith("details/")) == flat(whole["choices"][0]["message"])
    [finish] = {c["finish_reason"] for f in frames for c in f["choices"]} - {None}
    assert finish == whole["choices"][0]["finish_reason"]
    assert {(f["id"], f["model"], f["object"]) for f in frames} == {
        (whole["id"], whole["model"], "chat.completion.chunk")
    }


def test_a_whole_body() -> None:
    body = taken("strict/m", ask("hi"))
    assert list(body) == ["id", "object", "created", "model", "system_fingerprint", "choices", "usage"]
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["index"] == 0
    assert list(body["choices"][0]["message"]) == ["role", "content", "thoughts"]


def test_a_stream_in_bytes() -> None:
    status, content = send("plain/m", ask("hi", stream=True, max_tokens=2))
    assert status == 200
    identity = taken("plain/m", ask("hi"))["id"]
    head = (
        f'{{"id":"{identity}","object":"chat.completion.chunk","created":1700000000,"model":"m",'
        '"system_fingerprint":"simulated","choices":'
    )

    def frame(choices: str, more: str = "") -> str:
        return f"data: {head}[{choices}]{more}}}\n\n"

    usage = json.dumps(taken("plain/m", ask("hi", max_tokens=2))["usage"], separators=(",", ":"))
    assert content.decode() == (
        ": keep-alive\n\n"
        + frame('{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}')
        + frame('{"index":0,"delta":{"content":"(Simulated"},"finish_reason":null}')
        + frame('{"index":0,"delta":{"content":" answer)"},"finish_reason":null}')
        + frame('{"index":0,"delta":{},"finish_reason":"length"}')
        + frame("", f',"usage":{usage}')
        + "data: [DONE]\n\n"
    )


def test_chinese_is_streamed_by_one_or_two_characters() -> None:
    deltas = [c["delta"].get("content") or "" for f in events("plain/m", ask("天")) for c in f["choices"]]
    assert max(map(len, deltas)) < 13
    assert any(len(d) == 2 for d in deltas)
    assert len(deltas) > 20


# ── usage ────────────────────────────────────────────────────────────────────
def usages(name: str, **more: Any) -> list[tuple[int, str]]:
    """(how far from the end, where) of every usage in a stream."""
    frames = events(name, ask(**more))
    out = []
    for distance, frame in enumerate(reversed(frames)):
        if "usage" in frame:
            out.append((distance, "chunk" if not frame["choices"] else "beside"))
        out += [(distance, "inside") for c in frame["choices"] if "usage" in c]
    return out


def test_usage_stands_where_the_endpoint_puts_it() -> None:
    assert usages("plain/m") == [(0, "chunk")]
    assert usages("strict/m") == [(0, "beside")]
    assert usages("details/m") == [(0, "inside")]
    assert usages("parts/m") == []


def test_usage_comes_only_when_asked_for_where_it_must_be_asked_for() -> None:
    assert usages("tags/m") == []
    assert usages("tags/m", stream_options={"include_usage": True}) == [(0, "chunk")]


def test_usage_under_other_paths_and_counted_apart() -> None:
    usage = taken("details/m", ask())["usage"]
    assert usage["hits"] == 0
    reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
    assert usage["prompt_tokens"] + usage["completion_tokens"] + reasoning == usage["total_tokens"]
    plain = taken("plain/m", ask())["usage"]
    assert usage["prompt_tokens"] == plain["prompt_tokens"]


# ── reasoning ────────────────────────────────────────────────────────────────
def test_reasoning_in_a_field() -> None:
    deltas = [c["delta"] for f in events("strict/m", ask()) for c in f["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert [set(d) for d in deltas[1:3]] == [{"thoughts"}, {"thoughts"}]


def test_reasoning_as_details_all_so_far_in_each_delta() -> None:
    message = choice("details/m", ask())["message"]
    assert isinstance(message["details"][0]["text"], str)
    deltas = [c["delta"] for f in events("details/m", ask()) for c in f["choices"]]
    texts = [d["details"][0]["text"] for d in deltas if "details" in d]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert texts[-1] == message["details"][0]["text"]
    contents = [d["content"] for d in deltas if d.get("content")]
    assert contents[-1] == message["content"]


def test_the_same_reasoning_in_two_fields() -> None:
    message = choice("twins/m", ask())["message"]
    assert message["thoughts"] == message["details"][0]["text"] != ""


def test_reasoning_among_the_parts_of_content() -> None:
    content = choice("parts/m", ask())["message"]["content"]
    assert [p["type"] for p in content] == ["musing", "text"]
    assert content[0]["musing"][0]["type"] == "text"


def test_reasoning_between_tags() -> None:
    content = choice("tags/m", ask())["message"]["content"]
    assert content.startswith("<muse>\n")
    assert "\n</muse>\n\n(Simulated answer)" in content
    opened = choice("tags/open", ask())["message"]["content"]
    assert "<muse>" not in opened
    assert "\n</muse>\n\n" in opened


def test_reasoning_that_was_cut_leaves_its_tag_open() -> None:
    content = choice("tags/m", ask(max_tokens=3))["message"]["content"]
    assert content.startswith("<muse>\n")
    assert "</muse>" not in content


# ── finish and calls ─────────────────────────────────────────────────────────
def test_the_endpoints_own_word_for_the_end() -> None:
    assert choice("details/m", ask())["finish_reason"] == "done"


def test_calls_are_streamed_in_fragments() -> None:
    frames = events("plain/m", ask(tools=[tool()]))
    pieces = [call for f in frames for c in f["choices"] for call in c["delta"].get("tool_calls", [])]
    assert len(pieces) > 3
    assert pieces[0]["function"] == {"name": "search", "arguments": ""}
    assert all(set(p) == {"index", "function"} for p in pieces[1:])


def test_calls_come_in_one_piece_where_they_cannot_be_streamed() -> None:
    frames = events("details/m", ask(tools=[tool()]))
    [piece] = [call for f in frames for c in f["choices"] for call in c["delta"].get("tool_calls", [])]
    assert json.loads(piece["function"]["arguments"])
