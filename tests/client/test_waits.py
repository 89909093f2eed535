"""What is decided about a call, without any transport: `Call` driven by hand, with the test's clock and chance."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cnllm
from cnllm import Plan, Retry, Timeouts, TransportError, engine
from cnllm.engine.run.call import Call
from cnllm.engine.run.effects import FinalEvents, ReadBody, Send, SetReadDeadline, Sleep

from .peer import delta, failure, frame, said, whole
from .support import registry

HEADERS = {"content-type": "application/json"}
LOST = TransportError("lost", retryable=True)


def plan(**options: Any) -> Plan:
    model = registry().resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1")
    return engine.build_request(model, "hi", **options)


def call(retry: Retry | None = None, timeouts: Timeouts | None = None, **options: Any) -> Call:
    """A call whose chance is 0 and whose clock stands still, unless said otherwise."""
    inner = {k: options.pop(k) for k in ("clock", "chance") if k in options}
    made = plan(**options)
    return Call(
        made,
        retry=retry or Retry(),
        timeouts=timeouts or Timeouts(),
        replan=plan,
        **{"clock": lambda: 0.0, "chance": lambda: 0.0, **inner},
    )


def naps(retry: Retry, chance: float, *answers: Any) -> tuple[list[float], cnllm.Reply]:
    """The sleeps of a whole call that meets these heads; a head with a body is (status, headers, body)."""
    steps = call(retry, chance=lambda: chance).complete()
    taken: list[float] = []
    pending = list(answers)
    body = b""
    done: Any = None
    while True:
        try:
            step = steps.send(done)
        except StopIteration as stop:
            return taken, stop.value
        done = None
        match step:
            case Send():
                met = pending.pop(0)
                if isinstance(met, TransportError):
                    done = met
                else:
                    status, headers, body = met
                    done = status, headers
            case ReadBody():
                done = body, None
            case Sleep():
                taken.append(step.seconds)


OK = (200, HEADERS, whole())


@given(
    base=st.floats(0, 10),
    cap=st.floats(0, 100),
    chance=st.floats(0, 1, exclude_max=True),
    failures=st.integers(1, 8),
)
def test_waits_double_up_to_the_cap_with_bounded_jitter(base: float, cap: float, chance: float, failures: int) -> None:
    taken, _ = naps(Retry(attempts=failures + 1, base=base, cap=cap), chance, *[LOST] * failures, OK)
    assert len(taken) == failures
    for number, seconds in enumerate(taken):
        longest = min(cap, base * 2**number)
        assert longest / 2 <= seconds <= longest


@given(asked=st.integers(0, 60), base=st.floats(0, 10), chance=st.floats(0, 1, exclude_max=True))
def test_what_the_endpoint_asks_for_is_never_cut_short_and_little_is_added(
    asked: int, base: float, chance: float
) -> None:
    busy = (429, {**HEADERS, "retry-after": str(asked)}, failure("busy"))
    taken, _ = naps(Retry(base=base), chance, busy, OK)
    assert asked <= taken[0] <= asked + min(base, 1)


def test_two_callers_do_not_come_back_at_once() -> None:
    busy = (429, {**HEADERS, "retry-after": "2"}, failure("busy"))
    assert naps(Retry(), 0.1, busy, OK)[0] != naps(Retry(), 0.9, busy, OK)[0]
    assert naps(Retry(), 0.1, LOST, OK)[0] != naps(Retry(), 0.9, LOST, OK)[0]


def test_a_cap_is_itself_still_waited_for() -> None:
    busy = (429, {**HEADERS, "retry-after": "3"}, failure("busy"))
    assert naps(Retry(cap=3.0), 0.0, busy, OK)[0] == [3.0]
    with pytest.raises(cnllm.RateLimited):
        naps(Retry(cap=2.9), 0.0, busy, OK)


def test_progress_is_measured_by_the_clock_and_by_what_the_model_says() -> None:
    now = 0.0
    steps = call(timeouts=Timeouts(progress=10), stream=True, clock=lambda: now).stream()
    assert isinstance(next(steps), Send)
    assert steps.send((200, {"content-type": "text/event-stream"})) == []
    for at, chunk, events in [
        (9.0, b": thinking\n\n", 0),
        (9.5, delta("The"), 1),
        (19.0, b": thinking\n\n", 0),
        (19.4, delta(reasoning_content="hm"), 1),
        (20.0, delta(""), 0),
        (29.9, b": thinking\n\n", 0),
    ]:
        now = at
        assert len(steps.send(chunk)) == events
    now = 30.1
    assert isinstance(steps.send(b": thinking\n\n"), FinalEvents)
    with pytest.raises(cnllm.IdleTimeout) as caught:
        steps.send(None)
    assert caught.value.reply is not None
    assert (caught.value.reply.text, caught.value.reply.reasoning) == ("The", "hm")


def test_a_reader_that_takes_its_time_is_not_the_models_silence() -> None:
    now = 0.0
    steps = call(timeouts=Timeouts(progress=10), stream=True, clock=lambda: now).stream()
    next(steps)
    steps.send((200, {}))
    assert len(steps.send(delta("Shall I?"))) == 1
    now = 1000.0  # the reader was asked, and went for a coffee
    for chunk, events in [(b": thinking\n\n", 0), (b": thinking\n\n", 0), (delta("Yes."), 1)]:
        assert len(steps.send(chunk)) == events


def test_without_a_limit_on_progress_comments_may_come_for_ever() -> None:
    now = 0.0
    steps = call(timeouts=Timeouts(progress=None), stream=True, clock=lambda: now).stream()
    next(steps)
    steps.send((200, {}))
    for _ in range(100):
        now += 1000
        assert steps.send(b": thinking\n\n") == []


def test_after_a_finish_reading_is_hurried_once() -> None:
    steps = call(stream=True).stream()
    next(steps)
    events = steps.send((200, {}))
    hurries = 0
    for chunk in [*said("The sky")][:-1]:
        step = steps.send(chunk)
        if isinstance(step, SetReadDeadline):
            hurries += 1
            assert step.seconds is not None
            assert 1 <= step.seconds <= 3
            step = steps.send(None)
        events += step
    assert hurries == 1
    assert isinstance(steps.send(None), FinalEvents)
    with pytest.raises(StopIteration) as stop:
        _drive(steps, [])
    assert stop.value.value.usage.total == 7


@given(st.lists(st.sampled_from([b": c\n\n", delta("x"), frame("[DONE]"), b"data: {\n\n", b"junk"]), max_size=8))
def test_whatever_comes_the_steps_end(chunks: list[bytes]) -> None:
    with pytest.raises((StopIteration, cnllm.CnllmError)):
        _drive(call(Retry(attempts=2), stream=True).stream(), chunks)


def _drive(steps: Any, chunks: list[bytes]) -> None:
    fed = iter(chunks)
    done: Any = None
    for _ in range(100):
        match steps.send(done):
            case Send():
                done, fed = (200, {}), iter(chunks)
            case list() as events if not isinstance(events, FinalEvents):
                done = next(fed, None)
            case _:
                done = None
