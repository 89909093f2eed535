"""D4-D8: thinking that is lost, doubled, or all there is (D1-D3 belong to tags inside text)."""

import json
from pathlib import Path
from typing import Any

import pytest
from cases import each

import cnllm

from .support import (
    SSE_HEAD,
    Json,
    Server,
    Wire,
    anywhere,
    chunk,
    cli,
    home,
    model,
    ok,
    overlay,
    plan,
    play,
    read_body,
    read_whole,
    sse,
    streamed,
    text_chunks,
    tool,
    whole_body,
)

CALL: Json = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q":"a"}'}}
USAGE: Json = {
    "prompt_tokens": 9,
    "completion_tokens": 50,
    "total_tokens": 59,
    "completion_tokens_details": {"reasoning_tokens": 50},
}


# ── D4 ───────────────────────────────────────────────────────────────────────
FIELDS = [
    ("ollama/qwen3:8b", "reasoning"),
    ("vllm/Qwen/Qwen3-8B", "reasoning"),
    ("vllm/Qwen/Qwen3-8B", "reasoning_content"),
    ("sglang/Qwen/Qwen3-8B", "reasoning_content"),
    ("llamacpp/qwen", "reasoning_content"),
    ("openrouter/moonshotai/kimi-k3", "reasoning"),
    ("groq/openai/gpt-oss-120b", "reasoning"),
    ("cerebras/gpt-oss-120b", "reasoning"),
    ("deepseek/deepseek-flash", "reasoning_content"),
    ("zai/glm-4.7", "reasoning_content"),
    ("moonshotai/kimi-k3", "reasoning_content"),
    ("alibaba/qwen3.7-plus", "reasoning_content"),
    ("xai/grok-4.6", "reasoning_content"),
    ("minimax/MiniMax-M3", "reasoning_content"),
]


def _thinks(target: cnllm.Model, field: str) -> None:
    whole = read_whole(target, {field: "Let me think.", "content": "Blue."})
    assert (whole.reasoning, whole.text) == ("Let me think.", "Blue.")
    deltas = text_chunks("Let me", " think.", field=field) + text_chunks("Blue.") + [chunk(finish="stop")]
    played = play(target, deltas)
    assert (played.reasoning(), played.text()) == ("Let me think.", "Blue.")
    assert (played.reply.reasoning, played.reply.text) == ("Let me think.", "Blue.")


@each("name, field", FIELDS)
def test_D4_reasoning_is_read_from_the_field_the_endpoint_uses(name: str, field: str) -> None:
    _thinks(model(name), field)


@each("field", ["reasoning_content", "reasoning"])
def test_D4_an_endpoint_no_one_described_is_read_tolerantly(field: str) -> None:
    _thinks(anywhere(), field)


@each("field", ["inner_voice", 'inner "voice"', "inner\\voice"])
def test_D4_a_user_declares_a_field_no_one_has_heard_of(tmp_path: Path, field: str) -> None:
    _thinks(home(tmp_path, f"reasoning.fields = ['{field}']"), field)


@each("empty", ["", None])
def test_D4_the_first_field_that_is_not_empty_counts(tmp_path: Path, empty: str | None) -> None:
    target = home(tmp_path, 'reasoning.fields = ["reasoning_content", "reasoning"]')
    whole = read_whole(target, {"reasoning_content": empty, "reasoning": "thought", "content": "x"})
    assert whole.reasoning == "thought"
    deltas = [chunk({"reasoning_content": empty, "reasoning": "thought", "content": ""}), *text_chunks("x")]
    assert play(target, [*deltas, chunk(finish="stop")]).reply.reasoning == "thought"


# ── D5 ───────────────────────────────────────────────────────────────────────
def _detail(text: str) -> Json:
    return {"type": "reasoning.text", "text": text, "index": 0, "format": "unknown", "id": "r-1"}


MIRRORS = [
    ("openrouter/moonshotai/kimi-k3", ("reasoning", "details")),
    ("minimax/MiniMax-M3", ("reasoning_content", "details")),
    ("vllm/Qwen/Qwen3-8B", ("reasoning", "reasoning_content")),
    ("openai-compatible", ("reasoning", "reasoning_content")),
    ("openai-compatible", ("reasoning", "reasoning_content", "details")),
]


def _mirrored(text: str, fields: tuple[str, ...]) -> Json:
    return {
        ("reasoning_details" if field == "details" else field): ([_detail(text)] if field == "details" else text)
        for field in fields
    }


def _target(name: str) -> cnllm.Model:
    return anywhere() if name == "openai-compatible" else model(name)


def _replayed(message: Json) -> set[str]:
    """The reasoning that a wire message carries, one entry for each field that carries any."""
    found = {message[field] for field in ("reasoning", "reasoning_content") if message.get(field)}
    details = "".join(part.get("text", "") for part in message.get("reasoning_details") or [])
    return found | ({details} if details else set())


@each("name, fields", MIRRORS)
def test_D5_mirrored_reasoning_is_counted_once_and_replayed_as_received(name: str, fields: tuple[str, ...]) -> None:
    target = _target(name)
    whole = read_whole(
        target, {**_mirrored("Let me think.", fields), "content": None, "tool_calls": [CALL]}, "tool_calls"
    )
    deltas = [chunk(_mirrored("Let me", fields)), chunk(_mirrored(" think.", fields))]
    deltas += [chunk({"tool_calls": [{"index": 0, **CALL}]}), chunk(finish="tool_calls")]
    played = play(target, deltas)
    assert played.reasoning() == "Let me think."
    for reply in (whole, played.reply):
        assert reply.reasoning == "Let me think."
        turns = [{"role": "user", "content": "a"}, reply.message]
        turns.append({"role": "tool", "tool_call_id": "c1", "content": "found"})
        sent = plan(target, turns, tools=[tool()]).body["messages"][1]
        assert _replayed(sent) <= {"Let me think."}
        if name.startswith(("openrouter", "minimax")):
            assert _replayed(sent) == {"Let me think."}, sent


def test_D5_a_second_field_that_starts_later_adds_nothing() -> None:
    deltas = [
        chunk({"reasoning": "Let me"}),
        chunk({"reasoning": " think.", "reasoning_content": " think."}),
        *text_chunks("x"),
        chunk(finish="stop"),
    ]
    assert play(anywhere(), deltas).reply.reasoning == "Let me think."


@each("again", [["Let me", " think."], ["Let me think."], ["Let", " me th", "ink."]])
def test_D5_what_another_field_says_again_in_chunks_of_its_own_adds_nothing(again: list[str]) -> None:
    first = text_chunks("Let me", " think.", field="reasoning_content")
    second = text_chunks(*again, field="reasoning")
    orders = [first + second]
    if len(again) == 2:
        orders.append([first[0], second[0], first[1], second[1]])
    for deltas in orders:
        played = play(anywhere(), [*deltas, *text_chunks("x"), chunk(finish="stop")])
        assert (played.reasoning(), played.reply.reasoning) == ("Let me think.", "Let me think.")


def test_D5_a_repeated_token_is_not_a_mirror() -> None:
    deltas = text_chunks("ha", "ha", "ha", field="reasoning_content") + text_chunks("ho", "ho") + [chunk(finish="stop")]
    played = play("deepseek/deepseek-flash", deltas)
    assert (played.reply.reasoning, played.reply.text) == ("hahaha", "hoho")


# ── D6 ───────────────────────────────────────────────────────────────────────
SNAPSHOTS = ("The", "The sky", "The sky", "The sky is blue.")


def test_D6_declared_snapshots_are_turned_into_increments(tmp_path: Path) -> None:
    flags = 'stream.deltas = "cumulative"\nreasoning.fields = ["reasoning_content"]'
    target = home(tmp_path, flags)
    deltas = text_chunks("I", "I see", "I see.", field="reasoning_content") + text_chunks(*SNAPSHOTS)
    played = play(target, [*deltas, chunk(finish="stop")])
    assert (played.reply.reasoning, played.reply.text) == ("I see.", "The sky is blue.")
    assert (played.reasoning(), played.text()) == ("I see.", "The sky is blue.")


# Whoever guesses must be sure first, so this is long enough to be sure of.
PIECES = (
    "The user wants to know why the sky is blue, ",
    "which is a question about scattering. ",
    "Short waves scatter more than long ones, ",
    "so from every direction blue light arrives, ",
    "and violet is weaker in sunlight and in the eye. ",
    "That is the answer.",
)
GROWING = tuple("".join(PIECES[: count + 1]) for count in range(len(PIECES)))


@each("form", ["text", "details", "reasoning_content"])
@each("texts", lambda: [GROWING, PIECES, tuple("".join(PIECES))], ids=["growing", "pieces", "letters"])
def test_D6_an_endpoint_known_to_do_both_is_read_right_in_both(form: str, texts: tuple[str, ...]) -> None:
    match form:
        case "text":
            deltas = text_chunks(*texts)
        case "details":
            deltas = [chunk({"reasoning_details": [_detail(text)]}) for text in texts] + text_chunks("x")
        case _:
            deltas = text_chunks(*texts, field=form) + text_chunks("x")
    played = play("minimax/MiniMax-M3", [*deltas, chunk(finish="stop")])
    read = played.reply.text if form == "text" else played.reply.reasoning
    assert read == "".join(PIECES)
    assert (played.text(), played.reasoning()) == (played.reply.text, played.reply.reasoning)


@each("declared", [True, False])
def test_D6_snapshots_do_not_multiply_on_the_way_back(tmp_path: Path, declared: bool) -> None:
    flags = (
        'stream.deltas = "cumulative"\nreasoning.fields = ["reasoning_details"]\nreasoning.shape = "details"\n'
        'reasoning.replay = "always"\nreasoning.replay_as = "details"\nreasoning.replay_field = "reasoning_details"'
    )
    target = home(tmp_path, flags) if declared else model("minimax/MiniMax-M3")
    deltas = [chunk({"reasoning_details": [_detail(text)]}) for text in GROWING]
    deltas += [chunk({"tool_calls": [{"index": 0, **CALL}]}), chunk(finish="tool_calls")]
    reply = play(target, deltas).reply
    assert reply.reasoning == "".join(PIECES)
    turns: list[Any] = [{"role": "user", "content": "a"}, reply.message]
    turns.append({"role": "tool", "tool_call_id": "c1", "content": "found"})
    sent = plan(target, turns, tools=[tool()]).body["messages"][1]
    assert _replayed(sent) == {"".join(PIECES)}


@each("texts", [("ha", "ha", "ha"), ("a", "ab", "abc"), ("\n", "\n"), ("1", "10", "100"), ("go", "go go")])
def test_D6_increments_that_look_like_snapshots_are_kept_elsewhere(texts: tuple[str, ...]) -> None:
    for target in (model("deepseek/deepseek-flash"), anywhere()):
        assert play(target, [*text_chunks(*texts), chunk(finish="stop")]).reply.text == "".join(texts)


# ── D7 ───────────────────────────────────────────────────────────────────────
SPENT: Json = {"content": "", "reasoning_content": "Step one, step two, step"}
SPENDERS = ["zai/glm-4.7", "moonshotai/kimi-k2.6", "deepseek/deepseek-flash"]


def _says_reasoning_ate_it(reply: cnllm.Reply) -> bool:
    return any("reasoning" in f"{note.flag} {note.said} {note.did}".lower() for note in reply.notes)


@each("name", SPENDERS)
def test_D7_a_budget_spent_on_reasoning_is_an_outcome_of_its_own(name: str) -> None:
    whole = read_whole(name, SPENT, "length", usage=USAGE)
    streamed_reply = play(name, [chunk(SPENT), chunk(finish="length", usage=USAGE)]).reply
    for reply in (whole, streamed_reply):
        assert (reply.text, reply.finish, reply.raw_finish) == ("", "length", "length")
        assert reply.reasoning == SPENT["reasoning_content"]
        assert reply.usage.reasoning == 50
        assert _says_reasoning_ate_it(reply), reply.notes


def test_D7_an_answer_that_is_merely_cut_by_length_is_not_that_outcome() -> None:
    reply = read_whole("zai/glm-4.7", {"content": "The sky", "reasoning_content": "Hm."}, "length", usage=USAGE)
    assert reply.finish == "length"
    assert not _says_reasoning_ate_it(reply)


def test_D7_it_is_called_once_and_is_no_error() -> None:
    wire = Wire(ok(whole_body(SPENT, "length", usage=USAGE)))
    with cnllm.Client(transport=wire.transport, api_key="k") as client:
        assert client.call("zai/glm-4.7", "a title, please", max_tokens=50).finish == "length"
    assert len(wire.requests) == 1


def test_D7_a_short_call_may_switch_reasoning_off() -> None:
    body = plan("zai/glm-4.7", "a title, please", max_tokens=50, reasoning="off").body
    assert body["thinking"]["type"] == "disabled"
    assert body["max_tokens"] == 50


def test_D7_the_command_line_exits_3_and_says_where_the_tokens_went(tmp_path: Path) -> None:
    script = [SSE_HEAD + sse([chunk(SPENT), chunk(finish="length", usage=USAGE)])]
    with Server(script) as server:
        path = overlay(tmp_path, 'reasoning.fields = ["reasoning_content"]', base_url=server.url)
        done = cli("call", "a title", "--model", "home/m", CNLLM_PROVIDERS=str(path))
    assert done.returncode == 3, done.stderr
    assert done.stdout.strip() == ""
    assert "reasoning" in done.stderr.lower()


# ── D8 ───────────────────────────────────────────────────────────────────────
@each("name", ["zai/glm-4.7", "moonshotai/kimi-k3", "xai/grok-4.6"])
def test_D8_a_turn_of_reasoning_only_is_reported_as_what_it_is(name: str) -> None:
    message = {"content": None, "reasoning_content": "I know the answer."}
    for reply in (read_whole(name, message), play(name, [chunk(message), chunk(finish="stop")]).reply):
        assert reply.text == ""
        assert reply.reasoning == "I know the answer."
        assert reply.finish == "stop"


@each("whole", [True, False])
def test_D8_a_turn_of_reasoning_only_is_not_asked_again(whole: bool) -> None:
    message = {"content": "", "reasoning_content": "I know the answer."}
    answer = ok(whole_body(message)) if whole else streamed([chunk(message), chunk(finish="stop")])
    wire = Wire(answer)
    with cnllm.Client(transport=wire.transport, api_key="k") as client:
        if whole:
            reply = client.call("zai/glm-4.7", "hi")
        else:
            with client.stream("zai/glm-4.7", "hi") as stream:
                for _ in stream:
                    pass
            reply = stream.reply
    assert reply.reasoning == "I know the answer."
    assert len(wire.requests) == 1


@each("message", [{"content": ""}, {"content": None}, {}])
def test_D8_nothing_at_all_is_an_error_of_its_own(message: dict[str, Any]) -> None:
    with pytest.raises(cnllm.EmptyReply):
        read_whole("zai/glm-4.7", message)
    with pytest.raises(cnllm.EmptyReply):
        play("zai/glm-4.7", [chunk(message), chunk(finish="stop")])
    with pytest.raises(cnllm.EndpointError):
        read_body("zai/glm-4.7", json.loads(whole_body(message)) | {"choices": []})


def test_D8_nothing_at_all_is_not_asked_again() -> None:
    wire = Wire(ok(whole_body({"content": ""})))
    with cnllm.Client(transport=wire.transport, api_key="k") as client, pytest.raises(cnllm.EmptyReply):
        client.call("zai/glm-4.7", "hi")
    assert len(wire.requests) == 1
