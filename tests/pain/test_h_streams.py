"""H: streams that hang, are cut, or lie (H11, the repetition guard, belongs to the tool loop)."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from cases import each

import cnllm
from cnllm import Client, Registry, Timeouts

from .support import (
    SSE_HEAD,
    Hold,
    Json,
    Reset,
    Server,
    Sleep,
    Step,
    anywhere,
    call_chunk,
    chunk,
    cli,
    frame,
    http,
    model,
    overlay,
    play,
    read_body,
    read_whole,
    seen,
    seen_async,
    sse,
    text_chunks,
    text_seen,
    whole_body,
)

PARTIAL = sse(text_chunks("The sky", " is"), done=False)
REST = sse([*text_chunks(" blue."), chunk(finish="stop")])
COMMENT = b": keepalive\n\n"
CALL_CUT = call_chunk({"index": 1, "id": "c1", "function": {"name": "write", "arguments": '{"path":"a","text":"ab'}})
CALL_OK = call_chunk({"index": 0, "id": "c0", "function": {"name": "now", "arguments": "{}"}})


def client_of(tmp_path: Path, server: Server, **options: Any) -> Client:
    return Client(Registry.load(str(overlay(tmp_path, base_url=server.url))), **options)


# ── H1 ───────────────────────────────────────────────────────────────────────
def test_H1_done_ends_the_stream_though_the_socket_stays_open(tmp_path: Path) -> None:
    with Server([SSE_HEAD + PARTIAL + REST, Hold()]) as server, client_of(tmp_path, server) as client:
        began = time.monotonic()
        events, reply = seen(client.stream("home/m", "hi", timeout=Timeouts(idle=60, progress=60)))
        assert time.monotonic() - began < 15, "it must not wait for the socket, nor for late usage after [DONE]"
        assert server.holding.wait(15)
    assert (reply.text, reply.finish) == ("The sky is blue.", "stop")
    assert text_seen(events) == reply.text


def test_H1_a_finish_ends_the_stream_soon_though_nothing_follows(tmp_path: Path) -> None:
    body = PARTIAL + sse([*text_chunks(" blue."), chunk(finish="stop")], done=False)
    with Server([SSE_HEAD + body, Hold()]) as server, client_of(tmp_path, server) as client:
        began = time.monotonic()
        _, reply = seen(client.stream("home/m", "hi", timeout=Timeouts(idle=30, progress=30)))
        assert time.monotonic() - began < 10
    assert (reply.text, reply.finish) == ("The sky is blue.", "stop")


def test_H1_usage_that_comes_late_is_still_read(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    late = sse([{"id": "r1", "model": "m", "choices": [], "usage": usage}], done=False)
    body = PARTIAL + sse([*text_chunks(" blue."), chunk(finish="stop")], done=False)
    with (
        Server([SSE_HEAD + body, Sleep(0.2), late, Hold()]) as server,
        client_of(tmp_path, server) as client,
    ):
        _, reply = seen(client.stream("home/m", "hi"))
    assert (reply.usage.input, reply.usage.output, reply.finish) == (3, 4, "stop")


def test_H1_silence_after_partial_output_is_an_idle_timeout_that_keeps_the_text(tmp_path: Path) -> None:
    with Server([SSE_HEAD + PARTIAL, Hold()]) as server, client_of(tmp_path, server) as client:
        events: list[Any] = []
        with pytest.raises(cnllm.IdleTimeout) as caught:
            seen(client.stream("home/m", "hi", timeout=Timeouts(idle=0.3, progress=30)), events)
        assert len(server.received) == 1
    assert text_seen(events) == "The sky is"
    reply = caught.value.reply
    assert reply is not None
    assert (reply.text, reply.finish) == ("The sky is", "cut")


def test_H1_silence_before_the_first_byte_is_a_timeout(tmp_path: Path) -> None:
    with Server([Hold()]) as server, client_of(tmp_path, server, retry=cnllm.Retry(attempts=1)) as client:
        with pytest.raises(cnllm.Timeout) as caught:
            client.call("home/m", "hi", timeout=Timeouts(first_byte=0.3))
        assert caught.value.reply is None


def test_H1_a_whole_reply_may_stall_too(tmp_path: Path) -> None:
    body = whole_body({"content": "x"})
    with (
        Server([http(200, body)[: -len(body)] + body[:20], Hold()]) as server,
        client_of(tmp_path, server, retry=cnllm.Retry(attempts=1)) as client,
        pytest.raises((cnllm.Timeout, cnllm.IdleTimeout)),
    ):
        client.call("home/m", "hi", timeout=Timeouts(idle=0.3, progress=0.3))


def test_H1_the_async_client_keeps_the_same_clocks(tmp_path: Path) -> None:
    async def run(url: str) -> list[Any]:
        registry = Registry.load(str(overlay(tmp_path, base_url=url)))
        events: list[Any] = []
        async with cnllm.AsyncClient(registry) as client:
            stream = client.stream("home/m", "hi", timeout=Timeouts(idle=0.3, progress=30))
            with pytest.raises(cnllm.IdleTimeout):
                await seen_async(stream, events)
        return events

    with Server([SSE_HEAD + PARTIAL, Hold()]) as server:
        assert text_seen(asyncio.run(run(server.url))) == "The sky is"


# ── H2 ───────────────────────────────────────────────────────────────────────
def _chatter(seconds: float, every: float = 0.05) -> list[Step]:
    steps: list[Step] = []
    for _ in range(round(seconds / every)):
        steps += [COMMENT, Sleep(every)]
    return steps


def test_H2_comments_do_not_hide_a_stall(tmp_path: Path) -> None:
    script: list[Step] = [SSE_HEAD + PARTIAL, *_chatter(30)]
    with Server(script) as server, client_of(tmp_path, server) as client:
        began = time.monotonic()
        with pytest.raises((cnllm.Timeout, cnllm.IdleTimeout)) as caught:
            seen(client.stream("home/m", "hi", timeout=Timeouts(idle=20, progress=0.4)))
        assert time.monotonic() - began < 15
        assert len(server.received) == 1
    assert caught.value.reply is not None
    assert caught.value.reply.text == "The sky is"


def test_H2_empty_chunks_are_no_progress_either(tmp_path: Path) -> None:
    empty = frame(chunk({"role": "assistant", "content": ""}))
    script: list[Step] = [SSE_HEAD + PARTIAL]
    for _ in range(400):
        script += [empty, Sleep(0.05)]
    with (
        Server(script) as server,
        client_of(tmp_path, server) as client,
        pytest.raises((cnllm.Timeout, cnllm.IdleTimeout)),
    ):
        seen(client.stream("home/m", "hi", timeout=Timeouts(idle=10, progress=0.4)))


@each("before", [b"", PARTIAL])
def test_H2_long_thinking_behind_comments_is_not_aborted(tmp_path: Path, before: bytes) -> None:
    script: list[Step] = [SSE_HEAD + before, *_chatter(1.5), sse(text_chunks("..."), done=False) + REST]
    with Server(script) as server, client_of(tmp_path, server) as client:
        _, reply = seen(client.stream("home/m", "hi", timeout=Timeouts(idle=0.8, progress=20)))
    assert reply.text.endswith("... blue.")
    assert reply.finish == "stop"


def test_H2_reasoning_is_progress(tmp_path: Path) -> None:
    script: list[Step] = [SSE_HEAD]
    for _ in range(12):
        script += [frame(chunk({"reasoning_content": "hm "})), Sleep(0.1)]
    with Server([*script, REST]) as server:
        path = overlay(tmp_path, 'reasoning.fields = ["reasoning_content"]', base_url=server.url)
        with Client(Registry.load(str(path))) as client:
            _, reply = seen(client.stream("home/m", "hi", timeout=Timeouts(idle=20, progress=0.8)))
    assert reply.reasoning == "hm " * 12


# ── H3 ───────────────────────────────────────────────────────────────────────
def test_H3_arguments_cut_by_length_are_never_executable_nor_repaired() -> None:
    reply = play(anywhere(), [CALL_OK, CALL_CUT, chunk(finish="length")]).reply
    assert (reply.finish, reply.raw_finish) == ("length", "length")
    assert [call.name for call in reply.tool_calls] == ["now"]
    assert [call.name for call in reply.incomplete] == ["write"]
    assert reply.incomplete[0].arguments is None
    assert reply.incomplete[0].raw == '{"path":"a","text":"ab'
    assert reply.incomplete[0].problem


@each("arguments", ['{"path":"a","text":"ab', '{"path":"a"', "{", "", '{"path":"a",'])
def test_H3_the_same_in_a_whole_reply(arguments: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "write", "arguments": arguments}}
    reply = read_whole(anywhere(), {"content": None, "tool_calls": [call]}, "length")
    assert reply.finish == "length"
    assert reply.tool_calls == []
    assert [(c.name, c.arguments, c.raw) for c in reply.incomplete] == [("write", None, arguments)]


def test_H3_a_finish_rewritten_to_tool_calls_does_not_make_it_whole() -> None:
    for reply in (
        play(anywhere(), [CALL_CUT, chunk(finish="tool_calls")]).reply,
        play(anywhere(), [CALL_CUT, chunk(finish="stop")]).reply,
    ):
        calls = [*reply.tool_calls, *reply.incomplete]
        assert [(c.name, c.arguments) for c in calls] == [("write", None)]
        assert calls[0].problem


# ── H4 ───────────────────────────────────────────────────────────────────────
ENDS: dict[str, list[Step]] = {"closed": [], "reset": [Sleep(0.05), Reset()]}


@each("end", ENDS)
def test_H4_a_stream_without_proof_of_its_end_is_cut(tmp_path: Path, end: str) -> None:
    script = [SSE_HEAD + PARTIAL + frame(CALL_OK), *ENDS[end]]
    with Server(script) as server, client_of(tmp_path, server) as client:
        events: list[Any] = []
        with pytest.raises(cnllm.StreamCut) as caught:
            seen(client.stream("home/m", "hi"), events)
        assert len(server.received) == 1
    assert text_seen(events) == "The sky is"
    reply = caught.value.reply
    assert reply is not None
    assert (reply.text, reply.finish, reply.tool_calls) == ("The sky is", "cut", [])
    assert [call.name for call in reply.incomplete] == ["now"]


def test_H4_a_length_that_was_promised_and_not_kept_is_a_cut(tmp_path: Path) -> None:
    head = SSE_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Length: 100000\r\n\r\n")
    with Server([head + PARTIAL]) as server, client_of(tmp_path, server) as client:
        with pytest.raises(cnllm.StreamCut) as caught:
            seen(client.stream("home/m", "hi"))
        assert caught.value.reply is not None
        assert (caught.value.reply.text, caught.value.reply.finish) == ("The sky is", "cut")


def test_H4_keep_hands_the_part_over_as_cut(tmp_path: Path) -> None:
    with Server([SSE_HEAD + PARTIAL]) as server, client_of(tmp_path, server) as client:
        events, reply = seen(client.stream("home/m", "hi", if_cut="keep"))
    assert (reply.text, reply.finish) == ("The sky is", "cut")
    assert events[-1] == cnllm.Finished("cut", None)


@each("end", ENDS)
def test_H4_again_whole_adds_only_what_was_missing(tmp_path: Path, end: str) -> None:
    whole = [http(200, whole_body({"content": "The sky is blue."}))]
    with Server([SSE_HEAD + PARTIAL, *ENDS[end]], whole) as server, client_of(tmp_path, server) as client:
        events, reply = seen(client.stream("home/m", "hi", if_cut="again-whole"))
        assert [bool(request.json().get("stream")) for request in server.received] == [True, False]
    assert (reply.text, reply.finish) == ("The sky is blue.", "stop")
    assert text_seen(events) == "The sky is blue."
    assert not [event for event in events if isinstance(event, cnllm.Restarted)]


def test_H4_again_whole_restarts_where_the_text_differs(tmp_path: Path) -> None:
    whole = [http(200, whole_body({"content": "Rayleigh scattering."}))]
    with Server([SSE_HEAD + PARTIAL], whole) as server, client_of(tmp_path, server) as client:
        events, reply = seen(client.stream("home/m", "hi", if_cut="again-whole"))
    assert [type(event) for event in events].count(cnllm.Restarted) == 1
    assert text_seen(events) == reply.text == "Rayleigh scattering."


def test_H4_the_async_client_says_the_same(tmp_path: Path) -> None:
    async def run(url: str) -> cnllm.Reply | None:
        async with cnllm.AsyncClient(Registry.load(str(overlay(tmp_path, base_url=url)))) as client:
            with pytest.raises(cnllm.StreamCut) as caught:
                await seen_async(client.stream("home/m", "hi"), [])
        reply: cnllm.Reply | None = caught.value.reply
        return reply

    with Server([SSE_HEAD + PARTIAL]) as server:
        reply = asyncio.run(run(server.url))
    assert reply is not None
    assert (reply.text, reply.finish) == ("The sky is", "cut")


def test_H4_the_command_line_prints_the_part_and_exits_3(tmp_path: Path) -> None:
    with Server([SSE_HEAD + PARTIAL]) as server:
        path = overlay(tmp_path, base_url=server.url)
        done = cli("call", "hi", "--model", "home/m", CNLLM_PROVIDERS=str(path))
    assert done.returncode == 3, done.stderr
    assert done.stdout.strip() == "The sky is"
    assert "Traceback" not in done.stderr
    assert 1 <= len([line for line in done.stderr.splitlines() if line.strip()]) <= 4


# ── H5 ───────────────────────────────────────────────────────────────────────
SPELLINGS = {
    "no space": b"data:%s\n\n",
    "space": b"data: %s\n\n",
    "crlf": b"data:%s\r\n\r\n",
    "cr": b"data: %s\r\r",
    "event and id": b"event: message\nid: 1\nretry: 5\ndata:%s\n\n",
    "comment between": b": OPENROUTER PROCESSING\n\ndata: %s\n\n",
    "comment inside": b": x\ndata: %s\n:y\n\n",
}


@each("spelling", SPELLINGS)
@each("name", ["moonshotai/kimi-k3", "alibaba/qwen3.7-plus", "any"])
def test_H5_every_legal_spelling_of_a_frame_is_read(spelling: str, name: str) -> None:
    target = anywhere() if name == "any" else model(name)
    payloads = [json.dumps(p).encode() for p in [*text_chunks("The sky", " is blue."), chunk(finish="stop")]]
    data = b"".join(SPELLINGS[spelling] % payload for payload in [*payloads, b"[DONE]"])
    for body in (data, b"\xef\xbb\xbf" + data, data.rstrip(b"\r\n")):
        for size in (None, 1, 5):
            assert play(target, body, size=size).reply.text == "The sky is blue."


def test_H5_data_over_several_lines_is_one_frame() -> None:
    pretty = json.dumps(chunk({"content": "The sky is blue."}), indent=1)
    data = b"".join(b"data: " + line.encode() + b"\n" for line in pretty.splitlines()) + b"\n"
    assert play(anywhere(), data + sse([chunk(finish="stop")]), size=3).reply.text == "The sky is blue."


# ── H6 ───────────────────────────────────────────────────────────────────────
CJK = "天空是蓝色的，因为瑞利散射。😀👩‍👩‍👧 \u2028\u2029\x85 ｜end▁"


@each("size", [1, 2, 3, 4, 5, 7, 11, 64, 1000])
def test_H6_characters_cut_in_two_by_the_network_stay_whole(size: int) -> None:
    payloads = [
        chunk({"reasoning_content": CJK}),
        *text_chunks(*CJK),
        call_chunk({"index": 0, "id": "c1", "function": {"name": "say", "arguments": json.dumps({"t": CJK})}}),
        chunk(finish="tool_calls"),
    ]
    played = play("deepseek/deepseek-flash", sse(payloads), size=size)
    assert (played.text(), played.reply.text, played.reply.reasoning) == (CJK, CJK, CJK)
    assert played.calls() == [("say", {"t": CJK})]


def test_H6_over_a_socket(tmp_path: Path) -> None:
    data = sse([*text_chunks(*CJK), chunk(finish="stop")])
    pieces: list[Step] = [SSE_HEAD, *(data[i : i + 1] for i in range(len(data)))]
    with Server(pieces) as server, client_of(tmp_path, server) as client:
        assert seen(client.stream("home/m", "hi"))[1].text == CJK


def test_H6_bytes_that_are_no_utf8_lose_themselves_only() -> None:
    data = frame(chunk({"content": "a@b"})).replace(b"@", b"\xe5\xa4") + sse(
        [*text_chunks(" rest"), chunk(finish="stop")]
    )
    reply = play(anywhere(), data, size=1).reply
    assert reply.text.startswith("a")
    assert reply.text.endswith("b rest")


# ── H7 ───────────────────────────────────────────────────────────────────────
ERRORS = [
    (
        "openrouter/moonshotai/kimi-k3",
        {
            "error": {
                "code": 429,
                "message": "Rate limit exceeded",
                "metadata": {"error_type": "rate_limit_exceeded"},
            }
        },
        "Rate limit exceeded",
        "RateLimited",
    ),
    (
        "minimax/MiniMax-M3",
        {"id": "", "choices": None, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}},
        "insufficient balance",
        "QuotaExceeded",
    ),
    (
        "minimax/MiniMax-M3",
        {"choices": None, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}},
        "rate limit",
        "RateLimited",
    ),
    (
        "llamacpp/qwen",
        {"error": {"code": 500, "message": "Failed to parse input at pos 12", "type": "server_error"}},
        "Failed to parse input at pos 12",
        "EndpointError",
    ),
    (
        "zai/glm-4.7",
        {"error": {"code": "1305", "message": "The service may be temporarily overloaded"}},
        "The service may be temporarily overloaded",
        "Overloaded",
    ),
    ("any", {"error": "upstream went away"}, "upstream went away", "EndpointError"),
    ("any", {"object": "error", "message": "no such thing", "code": 400}, "no such thing", "EndpointError"),
]


@each("name, body, message, kind", ERRORS)
@each("form", ["whole", "first chunk", "later chunk"])
def test_H7_an_error_inside_http_200_is_an_error(form: str, name: str, body: Json, message: str, kind: str) -> None:
    target = anywhere() if name == "any" else model(name)
    expected: type[cnllm.EndpointError] = getattr(cnllm, kind)
    before = text_chunks("The sky") if form == "later chunk" else []
    with pytest.raises(expected) as caught:
        _ = read_body(target, body) if form == "whole" else play(target, [*before, body])
    assert caught.value.message == message
    assert caught.value.body
    if form == "later chunk":
        assert caught.value.reply is not None
        assert (caught.value.reply.text, caught.value.reply.finish) == ("The sky", "error")


def test_H7_an_sse_error_field_is_never_an_empty_success() -> None:
    data = b'error: {"code":500,"message":"slot unavailable","type":"server_error"}\n\n'
    for before in (b"", sse(text_chunks("The sky"), done=False)):
        with pytest.raises((cnllm.EndpointError, cnllm.StreamCut)):
            play("llamacpp/qwen", before + data)


def test_H7_a_status_of_success_in_the_envelope_is_no_error() -> None:
    reply = read_whole("minimax/MiniMax-M3", {"content": "x"}, base_resp={"status_code": 0, "status_msg": ""})
    assert reply.text == "x"
    assert read_whole(anywhere(), {"content": "x"}, error=None).text == "x"


def test_H7_an_error_framed_as_sse_under_an_error_status_keeps_its_sentence() -> None:
    body = b'data: {"error":{"message":"Invalid token","code":"invalid_api_key"}}\n\n'
    with pytest.raises(cnllm.EndpointError) as caught:
        read_body(anywhere(), body, 401)
    assert caught.value.message == "Invalid token"
    assert isinstance(caught.value, cnllm.BadKey)


def test_H7_the_command_line_exits_1_when_nothing_came_and_3_when_something_did(tmp_path: Path) -> None:
    error = {"error": {"code": 500, "message": "upstream went away"}}
    for before, status in ((b"", 1), (PARTIAL, 3)):
        with Server([SSE_HEAD + before + sse([error])]) as server:
            path = overlay(tmp_path, base_url=server.url)
            done = cli("call", "hi", "--model", "home/m", CNLLM_PROVIDERS=str(path))
        assert done.returncode == status, done.stderr
        assert "upstream went away" in done.stderr
        assert "upstream went away" not in done.stdout


# ── H8 ───────────────────────────────────────────────────────────────────────
@each("name", ["openrouter/moonshotai/kimi-k3", "zai/glm-4.7", "any"])
@each("choices", [{"choices": None}, {"choices": []}, {}, {"choices": [None]}, {"choices": "no"}])
def test_H8_choices_null_is_a_typed_error_with_the_body(name: str, choices: Json) -> None:
    target = anywhere() if name == "any" else model(name)
    body = {"id": "gen-77", "model": "m", **choices}
    with pytest.raises(cnllm.EndpointError) as caught:
        read_body(target, body)
    assert "gen-77" in str(caught.value.body)
    assert not caught.value.message.lstrip().startswith("{")


@each("name", ["openrouter/moonshotai/kimi-k3", "any"])
def test_H8_choices_null_in_a_stream(name: str) -> None:
    target = anywhere() if name == "any" else model(name)
    nothing = {"id": "gen-77", "model": "m", "choices": None}
    with pytest.raises(cnllm.EndpointError):
        play(target, [nothing])
    lived = play(target, [*text_chunks("The sky"), nothing, *text_chunks(" is blue."), chunk(finish="stop")])
    assert lived.reply.text == "The sky is blue."


@each("body", [b"null", b"[]", b'"text"', b"<html>Bad gateway</html>", b"", b"{"])
def test_H8_a_body_that_is_no_reply_is_a_typed_error(body: bytes) -> None:
    with pytest.raises(cnllm.EndpointError):
        read_body(anywhere(), body)


# ── H9 ───────────────────────────────────────────────────────────────────────
@each("word", ["stop", "other", "unknown", "STOP", "function_call"])
@each("name", ["openrouter/moonshotai/kimi-k3", "any"])
def test_H9_calls_that_are_present_decide(name: str, word: str) -> None:
    target = anywhere() if name == "any" else model(name)
    call = {"id": "c0", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    whole = read_whole(target, {"content": None, "tool_calls": [call]}, word)
    played = play(target, [CALL_OK, chunk(finish=word)])
    assert [e.finish for e in played.events if isinstance(e, cnllm.Finished)] == ["tool_calls"]
    for reply in (whole, played.reply):
        assert (reply.finish, reply.raw_finish) == ("tool_calls", word)
        assert [c.name for c in reply.tool_calls] == ["now"]
    if word == "stop":
        for reply in (whole, played.reply):
            assert any("stop" in str(note.said) and "tool_calls" in str(note.did) for note in reply.notes)


# ── H10 ──────────────────────────────────────────────────────────────────────
@each("name", ["openrouter/moonshotai/kimi-k3", "deepseek/deepseek-flash", "any"])
def test_H10_tool_calls_without_any_call_is_a_stop_and_flagged(name: str) -> None:
    target = anywhere() if name == "any" else model(name)
    whole = read_whole(target, {"content": "Done.", "tool_calls": []}, "tool_calls")
    played = play(target, [*text_chunks("Done."), chunk(finish="tool_calls")])
    assert [e.finish for e in played.events if isinstance(e, cnllm.Finished)] == ["stop"]
    for reply in (whole, played.reply):
        assert (reply.text, reply.finish, reply.raw_finish) == ("Done.", "stop", "tool_calls")
        assert any("tool_calls" in str(note.said) and "stop" in str(note.did) for note in reply.notes)
