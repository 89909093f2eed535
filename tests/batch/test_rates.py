"""What the registry says of an endpoint's limits, on the wire."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import cnllm
from cnllm.batch.budget import RetryBudget
from cnllm.batch.lanes import read_limits
from cnllm.batch.report import Progress
from cnllm.registry.flags import RateHeaders

from .stub import Answer, Stub, error, reply, stub
from .support import KEY, lines, prompts, registry, rows, run

NAMES = RateHeaders(
    requests="x-limit-requests",
    requests_left="x-left-requests",
    requests_reset="x-reset-requests",
    tokens="x-limit-tokens",
    tokens_left="x-left-tokens",
    tokens_reset="x-reset-tokens",
)
RATES = (
    'rates = { fields = { requests = "X-Limit-Requests", requests_left = "X-Left-Requests", '
    'requests_reset = "X-Reset-Requests" } }'
)


def test_a_limit_of_the_registry_is_held_from_the_first_request_on(tmp_path: Path) -> None:
    with stub() as server:
        run(server, tmp_path, prompts(15), flags="rates = { requests = 1200 }")
        gaps = [later - earlier for earlier, later in zip(server.times, server.times[1:], strict=False)]
        assert server.times[-1] - server.times[0] >= 14 * 0.05 * 0.98 - 0.25
        assert sorted(gaps)[7] > 0.03


def test_a_limit_with_waits_below_a_millisecond_is_held_on_another_loop(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop")
    with stub() as server:
        data = registry(server, tmp_path, "rates = { requests = 20_000 }")
        work = cnllm.batch.run_async(
            prompts(300), "home/m", out=tmp_path / "out.jsonl", concurrency=32, api_keys=(KEY,), registry=data
        )
        uvloop.run(work)
        assert len(lines(tmp_path)) == 300


def test_a_limit_that_headers_tell_is_held(tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer:
        return 200, reply(prompt), {"x-limit-requests": "600", "x-left-requests": "9", "x-reset-requests": "1s"}

    with stub(rule=rule) as server:
        run(server, tmp_path, prompts(30), flags=RATES, concurrency=2)
        assert server.times[-1] - server.times[2] >= 2.0


def test_nothing_is_sent_while_nothing_is_left(tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer:
        left = "0" if len(server.log) == 3 else "9"
        return 200, reply(prompt), {"x-left-requests": left, "x-reset-requests": "700ms"}

    with stub(rule=rule) as server:
        run(server, tmp_path, prompts(6), flags=RATES, concurrency=1)
        assert server.times[3] - server.times[2] >= 0.69
        assert server.refused == 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30.0), ("1m30s", 90.0), ("250ms", 0.25), ("soon", None), ("", None)],
)
def test_the_forms_of_a_reset(text: str, seconds: float | None) -> None:
    headers = {"x-left-tokens": "0", "x-reset-tokens": text, "x-limit-tokens": "4000, 4000;w=60"}
    assert read_limits(headers, NAMES) == (None, 4000.0, seconds)
    for left in ("5", "1"):
        assert read_limits({"x-left-tokens": left, "x-reset-tokens": text}, NAMES).pause is None


def test_a_reset_as_a_date() -> None:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 100))
    pause = read_limits({"x-left-requests": "0", "x-reset-requests": at}, NAMES).pause
    assert pause is not None
    assert 97 < pause < 102


def test_a_request_that_is_sent_again_has_the_same_idempotency_key(tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer | None:
        return (503, error("busy"), {}) if server.log.count(prompt) == 1 else None

    flags = 'idempotency = "X-Idempotency-Key"'
    with stub(rule=rule) as server:
        server.header = "x-idempotency-key"
        run(server, tmp_path, prompts(3), flags=flags)
        keys = server.headers
        assert len(server.log) == len(keys) == 6
        assert len(set(keys)) == 3
        assert all(len({key for key, p in zip(keys, server.log, strict=True) if p == f"p{n}"}) == 1 for n in range(3))
        (tmp_path / "other").mkdir()
        server.headers = []
        run(server, tmp_path / "other", prompts(3), flags=flags)
        assert not set(server.headers) & set(keys), "another output asks on its own account"


def test_a_storm_of_refusals_loses_nothing(tmp_path: Path) -> None:
    """Everything is refused for a second and a half; then it is answered, and each row was answered once."""
    start: list[float] = []

    def rule(prompt: str, server: Stub) -> Answer | None:
        start.append(time.monotonic())
        return (429, error("slow down"), {}) if time.monotonic() - start[0] < 1.5 else None

    with stub(rule=rule) as server:
        report = run(server, tmp_path, prompts(30))
        assert (report.done, report.failed) == (30, 0)
        assert set(server.answered.values()) == {1}
        assert report.refused == server.refused < 60


def test_a_refused_burst_is_known_by_its_code(tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer | None:
        if len(server.log) == 5:
            return 429, error("requests became more too quickly", "TooSteep"), {}
        return None

    with stub(rule=rule, latency=0.005) as server:
        report = run(server, tmp_path, prompts(60), flags='rates = { burst_codes = ["TooSteep"] }')
        assert (report.done, report.refused) == (60, 1)
        assert server.most <= 16


def test_keys_form_a_pool_and_a_bad_one_is_put_aside(tmp_path: Path) -> None:
    good, other, bad = ("sk-good-0123456789", "sk-other-0123456789", "sk-bad-0123456789")

    class ByKey:
        def __call__(self, prompt: str, server: Stub) -> Answer | None:
            return (401, error("invalid api key"), {}) if server.keys[-1] == bad else None

    with stub(latency=0.01, rule=ByKey()) as server:
        report = run(server, tmp_path, prompts(60), api_keys=(bad, good, other))
        assert (report.done, report.failed, report.stopped) == (60, 0, None)
        assert server.keys.count(bad) <= 8
        assert server.keys.count(good) > 10
        assert server.keys.count(other) > 10


def test_each_key_has_its_own_limit(tmp_path: Path) -> None:
    keys = ("sk-good-0123456789", "sk-other-0123456789")
    with stub() as server:
        run(server, tmp_path, prompts(40), api_keys=keys, rpm=300)
        assert 2.4 < server.times[-1] - server.times[0] < 7, "each has 5 a second; one alone would take 8 seconds"


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [(401, "invalid api key", "BadKey"), (402, "insufficient balance", "QuotaExceeded")],
)
def test_a_bad_key_or_an_empty_balance_stops_at_once(tmp_path: Path, status: int, message: str, kind: str) -> None:
    works = True

    def rule(prompt: str, server: Stub) -> Answer | None:
        return None if works or len(server.log) <= 10 else (status, error(message), {})

    source = rows(tmp_path, prompts(500))
    with stub(rule=rule, latency=0.005) as server:
        works = False
        report = run(server, tmp_path, source, concurrency=4)
        assert report.stop_kind == "endpoint"
        assert kind in str(report.stopped)
        assert (report.done, report.failed) == (10, 0)
        assert len(server.log) <= 10 + 4
        assert len(lines(tmp_path)) == 10
        works = True
        again = run(server, tmp_path, source)
        assert (again.done, again.asked, again.unsure) == (500, 490, 0)


def test_a_run_that_waits_for_the_rest_behind_a_bad_key_shows_no_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cnllm.batch.session._PROGRESS_SECONDS", 0.01)
    pauses: list[float] = []

    def on_progress(progress: Progress) -> None:
        if server.refused:
            pauses.append(progress.pause)
        if len(pauses) == 20:
            server.hold.set()

    with stub(rule=lambda prompt, server: (401, error("wrong key"), {}) if prompt == "p1" else None) as server:
        server.hold.clear()
        report = run(server, tmp_path, prompts(2), concurrency=2, on_progress=on_progress)
    assert (report.stop_kind, report.done) == ("endpoint", 1)
    assert {*pauses} == {0.0}


def test_retries_have_a_budget(tmp_path: Path) -> None:
    with stub(rule=lambda prompt, server: (500, error("broken"), {"retry-after": "0"})) as server:
        report = run(server, tmp_path, prompts(100), attempts=5)
        assert report.failed == 100
        assert len(server.log) <= 100 + 21


def test_a_tenth_of_the_requests_and_twenty_may_be_sent_again() -> None:
    budget = RetryBudget()
    assert sum(budget.take() for _ in range(50)) == 20
    for _ in range(105):
        budget.answer()
    assert sum(budget.take() for _ in range(50)) == 10
    for _ in range(10_000):
        budget.answer()
    assert sum(budget.take() for _ in range(1000)) == 200
