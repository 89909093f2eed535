"""Endpoints that are none, or break: one clear line, and nothing that was not proven."""

from __future__ import annotations

import contextlib
import datetime
import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from client.proxies import Proxy
from msgspec.structs import replace

from cnllm import Timeouts, probe
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError, EndpointError
from cnllm.transports import default_transport

from .endpoint import KEY, Answer, Handler, Json, body, listing, ok, refused, serving

PAGE = (200, "text/html", b"<!doctype html><html><body>Welcome, please log in</body></html>")
STREAM = b"".join(
    b"data: "
    + json.dumps({"id": "r", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode()
    + b"\n\n"
    for delta, finish in (({"content": "he"}, None), ({"content": "llo"}, None), ({}, "stop"))
)


def posts(answer: Callable[[Json, int], Answer | None]) -> Handler:
    return lambda request, number: listing() if request is None else answer(request, number)


NO_API: list[tuple[str, Handler, str]] = [
    ("a web page", lambda request, number: PAGE, "page"),
    ("a redirect", lambda request, number: (302, "text/html", b""), "redirects"),
    ("a login wall", lambda request, number: (401, "text/html", PAGE[2]), "key"),
    ("ok to everything", lambda request, number: (200, "text/plain", b"ok"), "page"),
    ("ok in JSON", lambda request, number: (200, "application/json", b'{"status": "ok"}'), "no known wire"),
    ("a key without rights", posts(lambda r, n: refused(f"{KEY} may not use this model", 403)), "key"),
    ("a quota that is spent", posts(lambda r, n: refused("quota", 429, code="insufficient_quota")), "quota"),
    ("no credit", posts(lambda r, n: refused("Insufficient balance", 402)), "quota"),
    ("refusals of everything", posts(lambda r, n: refused("bad request")), "refuses a plain request"),
]


@pytest.mark.parametrize(("handler", "word"), [case[1:] for case in NO_API], ids=[case[0] for case in NO_API])
def test_what_is_no_api_gets_one_clear_line(handler: Handler, word: str) -> None:
    with serving(handler) as endpoint, pytest.raises(CnllmError) as caught:
        probe.run(endpoint.url, model="m", api_key=KEY, max_requests=30)
    message = caught.value.message.replace("not with a reply of any known wire", "no known wire")
    assert word in message
    assert "\n" not in message
    assert KEY not in message
    assert isinstance(caught.value, EndpointError)
    assert len(endpoint.requests) <= 12


def test_an_answer_without_an_end_is_left_early() -> None:
    """Every request is answered by a stream of 20 MB; the probe reads little of it, and says so in one line."""
    piece = STREAM.split(b"\n\n")[0] + b"\n\n"

    def handler(request: Json | None, number: int) -> Answer:
        return 200, "text/event-stream", piece * (20_000_000 // len(piece))

    with serving(handler) as endpoint, pytest.raises(EndpointError, match="without an end"):
        probe.run(endpoint.url, model="m", max_requests=30)
    assert len(endpoint.requests) <= 12


def test_a_list_of_models_without_an_end_is_no_empty_list() -> None:
    long = json.dumps({"data": [{"id": "m"}] * 400_000}).encode()
    endless = pytest.raises(EndpointError, match="without an end")
    with serving(lambda r, n: (200, "application/json", long)) as endpoint, endless:
        probe.run(endpoint.url, max_requests=30)
    assert len(endpoint.requests) == 1


class Drip:
    """A transport whose replies do not end: half a minute before each piece. `pieces` counts those of each."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pieces: list[int] = []

    def monotonic(self) -> float:
        return self.now

    def send(self, plan: Plan) -> tuple[int, dict[str, str], Iterator[bytes]]:
        self.pieces.append(0)
        return 200, {"content-type": "text/event-stream"}, self._chunks()

    def _chunks(self) -> Iterator[bytes]:
        while True:
            self.now += 30
            self.pieces[-1] += 1
            yield STREAM.split(b"\n\n")[0] + b"\n\n"


def test_an_answer_that_comes_too_slowly_is_left_after_two_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    drip = Drip()
    monkeypatch.setattr(sys.modules[probe.run.__module__], "time", drip)
    with pytest.raises(EndpointError, match="without an end"):
        probe.run("http://127.0.0.1:9/v1", model="m", transport=drip, max_requests=30)
    assert set(drip.pieces) == {5}


def test_a_request_that_is_never_answered_is_sent_once() -> None:
    answered = Event()

    def handler(request: Json | None, number: int) -> Answer | None:
        if request is not None and "seed" in request:
            answered.wait(30)
            return None
        return listing() if request is None else ok()

    own: Any = default_transport()

    class Hasty:
        """A transport that waits less long."""

        def send(self, plan: Plan) -> Any:
            return own.send(replace(plan, timeouts=Timeouts(first_byte=0.3)))

    with serving(handler) as endpoint, contextlib.closing(own):
        found = probe.run(endpoint.url, api_key=KEY, max_requests=200, transport=Hasty(), sleep=lambda seconds: None)
        answered.set()
        held = [body for request in endpoint.requests if request and "seed" in (body := json.dumps(request))]
    assert len(held) == len(set(held)) > 0
    assert found.stopped == ""
    assert "params.seed" not in {fact.flag for fact in found.facts if fact.answer != "unknown"}


def test_a_server_of_ones_own_gets_no_endless_prompt_unless_it_names_its_window() -> None:
    """It would read the prompt until it has no memory left."""

    def longest(data: bytes) -> int:
        with serving(lambda request, number: (200, "application/json", data) if request is None else ok()) as endpoint:
            probe.run(endpoint.url, api_key=KEY, max_requests=200, sleep=lambda seconds: None)
            return max(len(json.dumps(request)) for request in endpoint.requests)

    assert longest(json.dumps({"data": [{"id": "m"}]}).encode()) < 100_000
    assert 25_000 < longest(json.dumps({"data": [{"id": "m", "max_model_len": 10_000}]}).encode()) < 100_000


def test_nobody_there_is_a_network_error() -> None:
    with pytest.raises(CnllmError, match="no connection to"):
        probe.run("http://127.0.0.1:9", model="m", max_requests=30, sleep=lambda seconds: None)


def values(report: probe.Report) -> dict[str, object]:
    found = {fact.flag: fact.value for fact in report.facts if fact.answer != "unknown"}
    return {flag: value for flag, value in found.items() if not flag.startswith(("finish.", "usage."))}


def test_an_endpoint_that_says_the_same_to_everything_proves_no_effect() -> None:
    with serving(posts(lambda r, n: ok())) as endpoint:
        report = probe.run(endpoint.url, api_key=KEY, max_requests=200)
    assert set(values(report)) <= {"params.logprobs"}
    assert any("the same text" in remark for remark in report.remarks)


def test_an_endpoint_that_streams_whatever_is_asked_is_named() -> None:
    with serving(posts(lambda r, n: (200, "text/event-stream", STREAM))) as endpoint:
        report = probe.run(endpoint.url, api_key=KEY, max_requests=40)
    assert any("streams whatever is asked" in remark for remark in report.remarks)


@pytest.mark.parametrize("last", [None, refused("the service has ended"), refused("boom", 500)])
def test_one_that_dies_in_the_middle_proves_nothing_by_that(last: Answer | None) -> None:
    with serving(posts(lambda r, n: ok() if n < 8 else last)) as endpoint:
        report = probe.run(endpoint.url, api_key=KEY, max_requests=60, sleep=lambda seconds: None)
    assert "refused" not in {fact.answer for fact in report.facts}
    assert report.stopped
    assert "models" in tomllib.loads(report.overlay)


def test_a_quota_that_ends_in_the_middle_ends_the_probe() -> None:
    with serving(posts(lambda r, n: ok() if n < 8 else refused("Insufficient balance", 402))) as endpoint:
        report = probe.run(endpoint.url, api_key=KEY, max_requests=60)
    assert "quota" in report.stopped
    assert report.requests == len(endpoint.requests) < 20


def test_patience_is_not_an_answer() -> None:
    """Each request is first answered with a 429: nothing is refused for that, and every attempt counts."""
    seen: set[str] = set()

    def handler(request: Json | None, number: int) -> Answer:
        key = json.dumps(request, sort_keys=True)
        if key not in seen:
            seen.add(key)
            return refused("Too many requests, slow down", 429)
        return listing() if request is None else ok()

    with serving(handler) as endpoint:
        report = probe.run(endpoint.url, model="m", api_key=KEY, max_requests=30, sleep=lambda seconds: None)
    assert "refused" not in {fact.answer for fact in report.facts}
    assert 29 <= report.requests == len(endpoint.requests) <= 30  # one is kept for a last check


def test_words_of_the_endpoint_stay_text_in_the_file() -> None:
    """A refusal that tries to write TOML, name a host or echo the key gets nowhere."""
    words = f'seed no"]\n[providers.evil]\nbase_url = "https://evil.example"\nkeys=["HOME"] {KEY} \x1b[31m'

    def handler(request: Json, number: int) -> Answer:
        return refused(words) if "seed" in request else ok()

    with serving(posts(handler)) as endpoint:
        report = probe.run(endpoint.url, api_key=KEY, max_requests=200)
    data = tomllib.loads(report.overlay)
    assert values(report)["params.seed"] is False
    assert len(data["providers"]) == 1
    assert KEY not in report.overlay + report.text()
    assert "\x1b" not in report.overlay + report.text()
    assert data["providers"][next(iter(data["providers"]))]["base_url"] == endpoint.url


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in text)


def test_a_key_that_is_echoed_in_escapes_or_in_two_pieces_stands_in_no_file(tmp_path: Path) -> None:
    """The endpoint spells the key in JSON escapes where it refuses, and streams it in two pieces where it answers."""
    events = b"".join(
        f"data: {json.dumps({'id': 'r', 'choices': [{'index': 0, 'delta': delta}]})}\n\n".encode()
        for delta in ({"content": KEY[:9]}, {"content": KEY[9:]})
    )

    def handler(request: Json, number: int) -> Answer:
        if "seed" in request:
            return 400, "application/json", f'{{"error": {{"message": "seed {escaped(KEY)}"}}}}'.encode()
        return 200, "text/event-stream", events + STREAM

    record = tmp_path / "exchanges.jsonl"
    with serving(posts(handler)) as endpoint:
        report = probe.run(endpoint.url, api_key=KEY, max_requests=200, record=record)
    assert values(report)["params.seed"] is False
    assert "seed [redacted]" in report.overlay
    assert KEY not in report.overlay + report.text() + str(report.exchanges)
    assert KEY[9:] not in record.read_text()


def test_a_recording_is_used_for_a_day_whatever_the_clock_and_its_lines_say(tmp_path: Path) -> None:
    record = tmp_path / "exchanges.jsonl"
    with serving(posts(lambda r, n: ok())) as endpoint:

        def count_requests() -> int:
            before = len(endpoint.requests)
            probe.run(endpoint.url, api_key=KEY, max_requests=8, record=record)
            return len(endpoint.requests) - before

        fresh = count_requests()
        lines = [json.loads(line) for line in record.read_text().splitlines()]
        local = datetime.datetime.now().isoformat()
        for when, is_known in ((local, True), ("2099-01-01T00:00:00Z", False), ("0001-01-01T00:00:00+14:00", False)):
            record.write_text("".join(json.dumps({**line, "when": when}) + "\n" for line in lines))
            assert (count_requests() < fresh) is is_known, when
        record.unlink()
        record.mkdir()
        with pytest.raises(CnllmError, match=r"exchanges\.jsonl cannot be read"):
            count_requests()


def test_a_password_that_a_proxy_echoes_stands_in_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with Proxy(b"HTTP/1.1 407 not hunter2-hunter2\r\n\r\n", password="hunter2-hunter2") as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        with pytest.raises(CnllmError, match=r"407 not \[redacted\]"):
            probe.run("https://api.example/v1", model="m", max_requests=30, sleep=lambda seconds: None)


def test_an_id_of_a_model_with_control_characters_is_no_id() -> None:
    ids = json.dumps({"data": [{"id": "m\x1b[31m"}, {"id": "m\n"}, {"id": "m\u202e"}, {"id": "plain"}]}).encode()
    with serving(lambda r, n: (200, "application/json", ids) if r is None else ok()) as endpoint:
        report = probe.run(endpoint.url, api_key=KEY, max_requests=10)
    assert report.found is not None
    assert report.found.id == "plain"


def test_long_answers_whose_tokens_nobody_counts_are_paid_for_by_their_length() -> None:
    with serving(posts(lambda r, n: ok("word " * 4_000))) as endpoint:
        report = probe.run(endpoint.url, api_key=KEY, max_requests=60, price=(1.0, 1.0), max_cost=0.05)
    assert "limit of the cost" in report.stopped
    assert len(endpoint.requests) * 4_000 / 1e6 <= 0.05


@pytest.mark.parametrize("answer", [None, (200, "application/json", b"{")], ids=["broken off", "unreadable"])
def test_what_an_answer_that_did_not_come_may_cost_counts(answer: Answer | None) -> None:
    served: list[int] = []

    def answers(request: Json | None, number: int) -> Answer | None:
        served.append(number)
        return ok() if len(served) == 1 else answer

    with serving(posts(answers)) as endpoint:
        report = probe.run(endpoint.url, api_key=KEY, max_requests=60, price=(0.0, 1.0))
    assert report.spent >= (len(served) - 1) * 500 / 1e6


def test_a_field_with_a_control_character_is_not_taken_for_reasoning() -> None:
    prose = {"think\x1b[31m": "I look for the greeting that fits.", 'think "loud"': "I say it as it is."}
    with serving(posts(lambda r, n: ok(**prose))) as endpoint:
        report = probe.run(endpoint.url, api_key=KEY, max_requests=60)
    assert "\x1b" not in report.overlay + report.text()
    assert "models" in tomllib.loads(report.overlay)


def test_answers_that_are_too_long_together_end_the_probe() -> None:
    """Each is below its own bound; decoded, they stay in memory until the end."""
    long = body(padding="x" * 3_900_000)
    with serving(posts(lambda r, n: (200, "application/json", long))) as endpoint:
        report = probe.run(endpoint.url, api_key=KEY, max_requests=60)
    assert "bytes in all" in report.stopped
    assert len(endpoint.requests) <= 12


def test_a_5xx_that_repeats_its_words_is_a_refusal_and_another_is_none() -> None:
    def handler(request: Json, number: int) -> Answer:
        if "presence_penalty" in request:
            return refused("presence_penalty is broken here", 500)
        return refused(f"boom {number}", 500) if "frequency_penalty" in request else ok()

    with serving(posts(handler)) as endpoint:
        report = probe.run(endpoint.url, api_key=KEY, max_requests=200, sleep=lambda seconds: None)
    found = values(report)
    assert found.get("params.presence_penalty") is False
    assert "params.frequency_penalty" not in found


def test_a_number_of_output_tokens_is_asked_for_one_word_and_left_after_4_kb() -> None:
    long = b"data: " + body("x" * 2000).replace(b'"message"', b'"delta"') + b"\n\n"

    def handler(request: Json, number: int) -> Answer:
        if request.get("stream"):
            return 200, "text/event-stream", long * 500
        return ok()

    with serving(posts(handler)) as endpoint:
        report = probe.run(endpoint.url, api_key=KEY, max_requests=200)
    asked = [e for e in report.exchanges if e.ask.most is not None]
    assert asked
    assert all(e.answer.abandoned for e in asked if e.answer.passed)
