"""What `fallback` does beyond the cases of failover: who can serve a request, keys, cooldowns, and honest ends."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cnllm
from cnllm import Client, Fallback, Retry
from cnllm.client.fallback import Cooldowns
from cnllm.engine.run.retry_policy import draw_order

from .peer import DONE, Reset, Script, answer, call_delta, delta, refused, reply, stream, usage
from .routes import ANSWER, PREFILL, codes, error_frame, healthy, text_of, tokens, two

QUICK = Retry(attempts=3, base=0.01)
CUT: Script = [stream(*tokens(0, 9), end=False), Reset()]
TOOL = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE_KEY", "sk-one-0123456789")
    monkeypatch.setenv("TWO_KEY", "sk-two-9876543210")


def client_of(registry: cnllm.Registry, **options: Any) -> Client:
    return Client(registry, retry=QUICK, **{"fallback": ["two/m"], **options})


def streamed(client: Client, **options: Any) -> tuple[list[Any], cnllm.Reply | None, cnllm.CnllmError | None]:
    events: list[Any] = []
    call = client.stream("one/m", options.pop("messages", "hi"), **options)
    try:
        with call:
            events += call
        return events, call.reply, None
    except cnllm.CnllmError as error:
        return events, None, error


# ── who can serve a request ──────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("flags", "options", "reason"),
    [
        ("tools.supported = false", {"tools": [TOOL]}, "it takes no tools"),
        ('input = ["text"]', {"messages": [{"role": "user", "content": [IMAGE]}]}, "it takes no images"),
        ("limits.context = 100", {"messages": "word " * 1000}, "its window of 100 tokens is too small"),
        ("limits = { context = 9_000, input = 100 }", {"messages": "word " * 1000}, "its window of 100 tokens is too"),
        ('schema.methods = ["prompt"]', {"schema": {"type": "object"}}, "it has no structured output"),
        ('status = { is = "retired" }', {}, "it is retired"),
    ],
)
def test_a_target_that_cannot_is_passed_over(tmp_path: Path, flags: str, options: dict[str, Any], reason: str) -> None:
    with two(tmp_path, [[reply()]], [[reply("{}")]], flags) as (registry, one, other), client_of(registry) as client:
        options = {"messages": "hi", **options}
        got = client.call("one/m", options.pop("messages"), **options)
        assert (len(one.received), len(other.received)) == (0, 1)
        note = next(note for note in got.notes if note.code == "target-passed-over")
        assert note.said == "one/m"
        assert reason in note.did


def test_where_none_can_the_error_names_each_and_nothing_is_sent(tmp_path: Path) -> None:
    with (
        two(tmp_path, [[reply()]], [[reply()]], "tools.supported = false", 'status = { is = "retired" }') as found,
        client_of(found[0]) as client,
    ):
        with pytest.raises(cnllm.NoTarget, match=r"one/m: it takes no tools; two/m: it is retired") as caught:
            client.call("one/m", "hi", tools=[TOOL])
        assert caught.value.targets == (("one/m", "it takes no tools"), ("two/m", "it is retired"))
        assert not found[1].received
        assert not found[2].received


def test_where_no_target_has_a_key_the_hint_says_how_to_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEEPSEEK_API_KEY", "MISTRAL_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with Client(cnllm.Registry.load()) as client, pytest.raises(cnllm.NoTarget) as caught:
        client.call("deepseek/deepseek-v4-pro", "hi", fallback=["mistral/mistral-large-4"])
    assert "DEEPSEEK_API_KEY is not set" in str(caught.value)
    assert "DEEPSEEK_API_KEY" in (caught.value.hint or "")


def test_a_target_without_a_key_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with two(tmp_path, [[reply()]], [[reply()]]) as (registry, _, other), client_of(registry) as client:
        path = tmp_path / "routes.toml"
        path.write_text(path.read_text().replace("http://127.0.0.1", "https://one.invalid", 1))
        monkeypatch.delenv("ONE_KEY")
        from cnllm.registry.trusted_files import trust

        trust(path)
        far = cnllm.Registry.load(str(path))
        with client_of(far) as second:
            assert "ONE_KEY is not set" in str(second.call("one/m", "hi").notes)
        assert len(other.received) == 1
        assert client.registry is registry


def test_an_unknown_name_is_an_error_at_once(tmp_path: Path) -> None:
    with two(tmp_path, [[reply()]], [[reply()]]) as (registry, one, _), client_of(registry) as client:
        with pytest.raises(cnllm.UnknownModel):
            client.call("one/m", "hi", fallback=["nobody/x"])
        assert not one.received
        wrong: Any
        for wrong in ("two/m", 3, [3], {"targets": ["two/m"], "first": 1}):
            with pytest.raises((TypeError, ValueError), match="fallback"):
                client.call("one/m", "hi", fallback=wrong)


# ── what is tried elsewhere ──────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("status", "code", "elsewhere"),
    [
        (401, "invalid_api_key", True),
        (402, "insufficient_balance", True),
        (403, "forbidden", True),
        (404, "model_not_found", True),
        (429, "insufficient_quota", True),
        (500, None, True),
        (529, None, True),
        (400, "invalid_value", False),
        (422, None, False),
    ],
)
def test_which_errors_are_worth_another_target(tmp_path: Path, status: int, code: str | None, elsewhere: bool) -> None:
    with (
        two(tmp_path, [[refused(status, "no", code)]], [[reply(ANSWER)]]) as (registry, _, other),
        client_of(registry) as client,
    ):
        if elsewhere:
            assert client.call("one/m", "hi").text == ANSWER
            assert len(other.received) == 1
        else:
            with pytest.raises(cnllm.BadRequest):
                client.call("one/m", "hi")
            assert not other.received


def test_a_context_that_is_too_long_goes_only_where_there_is_more_room(tmp_path: Path) -> None:
    long: Script = [refused(400, "too long", "context_length_exceeded")]
    windows = "limits.context = 200", "limits.context = 100"
    with two(tmp_path, [long], [[reply()]], *windows) as (registry, _, other), client_of(registry) as client:
        with pytest.raises(cnllm.ContextTooLong) as caught:
            client.call("one/m", "hi")
        assert not other.received
        assert dict(caught.value.targets)["two/m"] == "its window of 100 tokens is no larger than that of one/m"


def test_where_all_fail_the_first_error_names_all(tmp_path: Path) -> None:
    with (
        two(tmp_path, [[refused(503, "busy")]], [[refused(401, "bad key")]]) as (registry, _, _),
        client_of(registry) as client,
        pytest.raises(cnllm.Overloaded) as caught,
    ):
        client.call("one/m", "hi")
    assert caught.value.message == "busy"
    assert [name for name, _ in caught.value.targets] == ["one/m", "two/m"]
    assert "two/m: BadKey: 401 bad key" in str(caught.value.hint)


def test_keys_and_raw_options_stay_with_their_provider(tmp_path: Path) -> None:
    with (
        two(tmp_path, [[refused(503, "busy")]], [[reply()]]) as (registry, one, other),
        client_of(registry, api_key="sk-given-1112223334") as client,
    ):
        got = client.call("one/m", "hi", extra_headers={"X-Own": "a"}, extra_body={"own": 1})
        assert one.received[0].headers["authorization"] == "Bearer sk-given-1112223334"
        assert one.received[0].json()["own"] == 1
        assert other.received[0].headers["authorization"] == "Bearer sk-two-9876543210"
        assert "x-own" not in other.received[0].headers
        assert "own" not in other.received[0].json()
        assert codes(got.notes).count("option-foreign") == 2


def test_parameters_go_where_the_endpoint_may_know_them(tmp_path: Path) -> None:
    with (
        two(tmp_path, [[refused(503, "busy")]], [[reply()]], other='params = { near = "near_to" }') as (
            reg,
            one,
            other,
        ),
        client_of(reg) as client,
    ):
        got = client.call("one/m", "hi", params={"temperature": 0.5, "own": 1, "near": 2}, system="Be brief.")
        first, second = one.received[0].json(), other.received[0].json()
        assert (first["temperature"], first["own"], first["near"]) == (0.5, 1, 2)
        assert (second["temperature"], second["near_to"], "own" in second) == (0.5, 2, False)
        assert codes(got.notes).count("option-foreign") == 1
        assert first["messages"] == second["messages"]
        assert second["messages"][0] == {"role": "system", "content": "Be brief."}


def test_no_key_of_any_target_is_shown(tmp_path: Path) -> None:
    echo = "sk-one-0123456789 and sk-two-9876543210"
    with two(tmp_path, [[refused(503, echo)]], [[reply(echo)]]) as (registry, _, _), client_of(registry) as client:
        got = client.call("one/m", "hi")
        assert "sk-two-9876543210" not in repr(got)
        assert "sk-one-0123456789" not in repr(got)


@pytest.mark.parametrize(
    "spell", [lambda key: "".join(f"\\u{ord(c):04x}" for c in key), lambda key: key.encode().hex()]
)
def test_the_plan_of_a_route_tells_no_key_that_an_endpoint_echoed(tmp_path: Path, spell: Callable[[str], str]) -> None:
    body = b'{"error": {"message": "not %s"}}' % spell("sk-one-0123456789").encode()
    failure: Script = [answer(503, body)]
    with two(tmp_path, [failure], [healthy()]) as (registry, _, _), client_of(registry) as client:
        with client.stream("one/m", "hi") as call:
            list(call)
        note = next(note for note in call.plan.notes if note.code == "target-failed")
        assert note.said == "one/m: Overloaded: 503 not [redacted]"


def test_a_clean_body_of_one_target_vouches_for_no_other(tmp_path: Path) -> None:
    echo = "".join(f"\\u{ord(char):04x}" for char in "sk-one-0123456789")
    bodies: list[Script] = [[answer(200, b'{"odd": "%s"}' % text.encode())] for text in (echo, "nothing")]
    with (
        two(tmp_path, bodies[:1], bodies[1:]) as (registry, _, _),
        client_of(registry) as client,
        pytest.raises(cnllm.EmptyReply) as caught,
    ):
        client.call("one/m", "hi")
    assert caught.value.reply is not None
    assert caught.value.reply.raw == {"odd": "[redacted]"}


# ── after the first token ────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "script",
    [
        [stream(delta("Let me see."), call_delta(id="c1", name="search", arguments='{"q"'), end=False), Reset()],
        [stream(delta(reasoning_content="I think"), delta("So"), end=False), Reset()],
    ],
)
def test_a_call_or_reasoning_is_never_continued(tmp_path: Path, script: Script) -> None:
    with (
        two(tmp_path, [script], [healthy()], PREFILL, PREFILL) as (registry, _, other),
        client_of(registry) as client,
    ):
        events, got, error = streamed(client, tools=[TOOL])
        assert got is None
        assert isinstance(error, cnllm.StreamCut | cnllm.TransportError)
        assert error.reply is not None
        assert not error.reply.tool_calls
        assert text_of(events) == error.reply.text
        assert not other.received


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("size", [5, 9, 17])
def test_the_target_that_goes_on_gets_no_key_that_the_first_one_echoed(
    tmp_path: Path, size: int, *, is_async: bool
) -> None:
    key = "sk-one-0123456789"
    echo = stream(delta("Your key is "), delta(key[:size]), delta(key[size:] + ", and"), end=False)
    rest = stream(delta(" it works."), delta(finish="stop"), usage(), DONE)

    async def read(registry: cnllm.Registry) -> tuple[list[Any], cnllm.Reply]:
        async with cnllm.AsyncClient(registry, retry=QUICK, fallback=["two/m"]) as client:
            call = client.stream("one/m", "hi")
            return [event async for event in call], call.reply

    with two(tmp_path, [[echo, Reset()]], [[rest]], other=PREFILL) as (registry, _, other):
        if is_async:
            events, got = asyncio.run(read(registry))
        else:
            with client_of(registry) as client, client.stream("one/m", "hi") as call:
                events, got = list(call), call.reply
        assert len(other.received) == 1
        assert other.received[0].json()["messages"][-1]["content"] == "Your key is [redacted], and"
        assert text_of(events) == got.text == "Your key is [redacted], and it works."


def test_an_error_in_the_middle_of_a_stream_is_a_cut(tmp_path: Path) -> None:
    script: Script = [stream(*tokens(0, 4), error_frame("the engine crashed"), end=False), Reset()]
    with two(tmp_path, [script], [healthy(4)], other=PREFILL) as (registry, _, other), client_of(registry) as client:
        events, got, _ = streamed(client)
        assert got is not None
        assert text_of(events) == got.text == ANSWER
        assert got.finish == "stop"
        assert len(other.received) == 1


def test_another_text_is_an_honest_end(tmp_path: Path) -> None:
    another: Script = [stream(delta("A gateway is"), delta(" bad"), delta(finish="stop"), usage(), DONE)]
    with two(tmp_path, [CUT], [another]) as (registry, _, _), client_of(registry) as client:
        events, got, error = streamed(client)
        assert got is None
        assert isinstance(error, cnllm.StreamCut)
        assert error.reply is not None
        assert text_of(events) == error.reply.text == " ".join(ANSWER.split()[:9])
        assert error.reply.finish == "cut"
        assert dict(error.targets)["two/m"] == "its reply is another one"
        assert not any(isinstance(event, cnllm.Restarted) for event in events)


def test_a_target_that_repeats_the_beginning_repeats_nothing_to_the_caller(tmp_path: Path) -> None:
    with two(tmp_path, [CUT], [healthy()], other=PREFILL) as (registry, _, other), client_of(registry) as client:
        events, got, _ = streamed(client)
        assert other.received[0].json()["messages"][-1]["role"] == "assistant"
        assert got is not None
        assert text_of(events) == got.text == got.message.text == ANSWER


def test_the_same_target_goes_on_where_it_takes_a_beginning(tmp_path: Path) -> None:
    with (
        two(tmp_path, [CUT, healthy(9)], [healthy()], PREFILL) as (registry, one, other),
        client_of(registry) as client,
    ):
        events, got, _ = streamed(client)
        assert got is not None
        assert text_of(events) == got.text == ANSWER
        assert (len(one.received), len(other.received)) == (2, 0)
        assert got.usage.output is None  # that of the part that was cut is unknown


def test_two_cuts_deliver_each_word_once(tmp_path: Path) -> None:
    second: Script = [stream(*tokens(9, 11), end=False), Reset()]
    with two(tmp_path, [CUT], [second], other=PREFILL) as (registry, _, _), client_of(registry) as client:
        events, got, error = streamed(client)
        assert got is None
        assert error is not None
        assert error.reply is not None
        assert text_of(events) == error.reply.text == " ".join(ANSWER.split()[:11])


@pytest.mark.parametrize("prefill", [True, False])
def test_another_target_repeats_nothing_after_two_cuts_of_the_first_one(tmp_path: Path, prefill: bool) -> None:
    second: Script = [stream(*tokens(9, 11), end=False), Reset()]
    with (
        two(tmp_path, [CUT, second], [healthy(11 if prefill else 0)], PREFILL, PREFILL if prefill else "") as peers,
        client_of(peers[0]) as client,
    ):
        events, got, _ = streamed(client)
        assert got is not None
        assert text_of(events) == got.text == got.message.text == ANSWER
        assert [len(peer.received) for peer in peers[1:]] == [2, 1]


def test_a_whole_reply_that_breaks_off_is_asked_for_elsewhere(tmp_path: Path) -> None:
    half = reply(ANSWER)[:-40]
    with two(tmp_path, [[half, Reset()]], [[reply(ANSWER)]]) as (registry, _, _), client_of(registry) as client:
        assert client.call("one/m", "hi").text == ANSWER


def test_a_stopped_call_keeps_what_came(tmp_path: Path) -> None:
    with two(tmp_path, [CUT], [healthy(9)], other=PREFILL) as (registry, _, _), client_of(registry) as client:
        with client.stream("one/m", "hi") as call:
            for event in call:
                if isinstance(event, cnllm.TextDelta) and event.text == " day":
                    break
            partial = call.stop()
        assert partial is not None
        assert partial.text.startswith(" ".join(ANSWER.split()[:7]))
        assert partial.finish == "cut"


# ── tool loops, order and cooldowns ──────────────────────────────────────────


def test_a_tool_loop_takes_its_steps_on_the_target_that_answers(tmp_path: Path) -> None:
    def search() -> str:
        """Search."""
        return "found"

    calls: Script = [
        stream(call_delta(id="c1", name="search", arguments="{}"), delta(finish="tool_calls"), usage(), DONE)
    ]
    with two(tmp_path, [[refused(503, "busy")]], [calls, healthy()]) as (registry, one, other):
        with client_of(registry) as client, client.run_stream("one/m", "hi", tools=[search]) as run:
            for _ in run:
                pass
        assert run.reply.text == ANSWER
        assert (len(one.received), len(other.received)) == (2, 2)  # the first target cools down in the second step


def test_a_cooldown_lets_one_request_through_and_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cnllm.client.fallback._MOST_TARGETS", 2)
    now = 0.0
    state = Cooldowns(lambda: now)
    state.fail("a", 10)
    assert not state.acquire("a")
    now = 10.0
    granted: list[bool] = []
    threads = [threading.Thread(target=lambda: granted.append(state.acquire("a"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(granted) == [False] * 7 + [True]
    state.succeed("a")
    assert state.acquire("a")
    for name in "bcd":
        state.fail(name, 10)
    assert [state.acquire(name) for name in "bcd"] == [True, False, False]


def test_targets_that_all_cool_down_are_asked_all_the_same(tmp_path: Path) -> None:
    busy: Script = [refused(401, "no")]
    with two(tmp_path, [busy, [reply()]], [busy]) as (registry, one, _), client_of(registry) as client:
        with pytest.raises(cnllm.BadKey):
            client.call("one/m", "hi")
        assert client.call("one/m", "hi").text == "The sky is blue."
        assert len(one.received) == 2


def test_the_order_follows_the_weights() -> None:
    assert draw_order(None, 3, lambda: 0.9) == [0, 1, 2]
    assert draw_order([1, 3], 2, lambda: 0.2) == [0, 1]
    assert draw_order([1, 3], 2, lambda: 0.3) == [1, 0]
    assert draw_order([0, 1, 1], 3, lambda: 0.99) == [2, 1, 0]


def test_weights_share_the_requests(tmp_path: Path) -> None:
    with two(tmp_path, [[reply()]], [[reply()]]) as (registry, one, other):
        rules = Fallback(targets=("two/m",), weights=(0, 1))
        with client_of(registry, fallback=rules) as client:
            client.call("one/m", "hi")
        assert (len(one.received), len(other.received)) == (0, 1)
    for wrong in ((1,), (0, 0), (-1, 2), (True, 1)):
        with pytest.raises((ValueError, TypeError), match="weights"):
            Fallback(targets=("two/m",), weights=wrong)


def test_a_call_can_do_without_and_the_plan_is_that_of_the_first(tmp_path: Path) -> None:
    with two(tmp_path, [[refused(401, "no")]], [[reply()]]) as (registry, _, other), client_of(registry) as client:
        with pytest.raises(cnllm.BadKey):
            client.call("one/m", "hi", fallback=[])
        assert not other.received
        assert client.plan("one/m", "hi", fallback=["two/m"]).model.name == "one/m"


def test_a_target_that_is_named_twice_is_asked_once_unless_it_has_weights(tmp_path: Path) -> None:
    busy: Script = [refused(503, "busy")]
    for weights, count in ((None, 1), ((1, 0, 0), 2)):
        with two(tmp_path, [busy] * 9, [busy] * 9) as (registry, _, other):
            rules = Fallback(targets=("two/m", "two/m"), weights=weights)
            with Client(registry, retry=Retry(attempts=1), fallback=rules) as client, pytest.raises(cnllm.CnllmError):
                client.call("one/m", "hi")
            assert len(other.received) == count, weights
