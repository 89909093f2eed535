"""Keys with limits over HTTP: what a client is refused in its own protocol, what it pays, and what stays secret."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from examples import SHARE
from msgspec.structs import replace

import cnllm
from cnllm.estimates.money import UNITS, format_units, units_of
from cnllm.gateway.access import digest
from cnllm.gateway.endpoint_addresses import EndpointAddresses, bases_of
from cnllm.gateway.failures import failure_headers, failure_of
from cnllm.gateway.limits.book import KeyBook, open_book
from cnllm.gateway.limits.key_use import KeyUse
from cnllm.gateway.limits.keys import KeyRecord, new_key, team_digest
from cnllm.gateway.monitoring.recent import Recent
from cnllm.types.policy import Timeouts

from .limits_support import cny, sqlite_url
from .support import USAGE, Answer, Upstream, error, gateway_for, say

MODEL = "here/priced"
MODELS = """
[providers.here]
extends = "openai-compatible"
base_url = "URL/v1"
keys = ["HERE_KEY"]
[models."here/priced"]
price = { currency = "CNY", input = 2, output = 8 }
limits = { context = 100_000, output = 8_000 }
[models."here/dollars"]
price = { currency = "USD", input = 2, output = 8 }
limits = { context = 100_000, output = 8_000 }
[models."here/unpriced"]
limits = { context = 100_000, output = 8_000 }
"""
COST = USAGE["prompt_tokens"] * 2000 + USAGE["completion_tokens"] * 8000
"""The cost of a reply in units."""
SECRET = "the-key-of-the-provider"

Request = tuple[str, dict[str, Any]]


def requests(model: str = MODEL, *, stream: bool = False, text: str = "Hi", limit: int = 100) -> dict[str, Request]:
    """A request in each protocol."""
    turns = [{"role": "user", "content": text}]
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    gemini = {
        "contents": [{"role": "user", "parts": [{"text": text}]}],
        "generationConfig": {"maxOutputTokens": limit},
    }
    chat = {"model": model, "messages": turns, "max_tokens": limit, "stream": stream}
    return {
        "openai-chat": ("/v1/chat/completions", chat),
        "openai-responses": (
            "/v1/responses",
            {"model": model, "input": text, "max_output_tokens": limit, "stream": stream},
        ),
        "anthropic-messages": ("/v1/messages", chat),
        "gemini": (f"/v1beta/models/{model}:{verb}", gemini),
    }


class Setting:
    """A gateway with a book of keys before an endpoint. No response may show the endpoint's address or key."""

    def __init__(self, upstream: Upstream, http: httpx.Client, book: KeyBook) -> None:
        self.upstream = upstream
        self.http = http
        self.book = book

    def key(self, name: str = "team", **limits: Any) -> str:
        """Make a key."""
        key = new_key()
        self.book.add(digest(key), KeyRecord(name, time.time(), **limits))
        return key

    def send(self, key: str, request: Request, **more: Any) -> httpx.Response:
        """Send a request, and look through the whole response."""
        path, body = request
        response = self.http.post(path, json=body, headers={"authorization": f"Bearer {key}"}, **more)
        self.check(response)
        return response

    def sent(self, key: str, path: str, body: dict[str, Any]) -> socket.socket:
        """Send a request, and return its connection before the answer."""
        client = socket.create_connection(("127.0.0.1", self.http.base_url.port or 0), 10)
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n"
        client.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        return client

    def check(self, response: httpx.Response) -> None:
        """No address, key or header of the endpoint is in a response."""
        shown = f"{response.headers.multi_items()} {response.text}"
        for secret in (f":{self.upstream.server_port}", self.upstream.url, SECRET, "secret-header-of-the-endpoint"):
            assert secret not in shown, (response.request.url, shown)

    def use(self, name: str = "team") -> KeyUse:
        """The use of a key, once nothing is open: what became of a request is reported a moment later."""
        last = time.monotonic() + 10
        while True:
            (use,) = [use for use in self.book.uses() if use.record.name == name]
            if not any(use.open.values()) or time.monotonic() > last:
                return use
            time.sleep(0.02)

    def spent(self, name: str = "team") -> int:
        """The money that a key has spent."""
        return self.use(name).spent.get("CNY", 0)

    def settled(self, calls: int) -> KeyUse:
        """The use of the key once so many calls are reported."""
        last = time.monotonic() + 10
        while (use := self.use()).calls < calls and time.monotonic() < last:
            time.sleep(0.02)
        assert use.calls == calls
        return use


@contextlib.contextmanager
def setting(folder: Path, *script: Answer, more: str = "", **options: Any) -> Iterator[Setting]:
    """Run a gateway with a book."""
    upstream = Upstream(*script)
    book = open_book(sqlite_url(folder))
    assert book is not None
    gateway_book = open_book(sqlite_url(folder))
    more = MODELS.replace("URL", upstream.url) + more
    with gateway_for(upstream, folder, "zai", more=more, key_book=gateway_book, **options) as http:
        yield Setting(upstream, http, book)
    upstream.shutdown()
    upstream.server_close()
    book.close()


def sentence(protocol: str, body: dict[str, Any]) -> tuple[str, Any]:
    """The sentence of an error and its kind, out of the shape that the protocol's clients read."""
    if protocol == "gemini":
        return body["error"]["message"], body["error"]["status"]
    if protocol == "anthropic-messages":
        assert body["type"] == "error"
    return body["error"]["message"], body["error"]["type"]


# ── what passes ──────────────────────────────────────────────────────────────
def test_each_reply_is_charged_by_its_usage_in_every_protocol(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello")) as here:
        key = here.key(models=("here/*",), rpm=100, tpm=100_000, budgets={"CNY": cny("10")})
        count = 0
        for stream in (False, True):
            for request in requests(stream=stream).values():
                assert here.send(key, request).status_code == 200
                count += 1
        use = here.settled(count)
        assert use.spent == {"CNY": count * COST}
        assert use.tokens == count * USAGE["total_tokens"]
        assert len(here.upstream.bodies) == count
        headers = [{name.lower(): value for name, value in sent.items()} for sent in here.upstream.headers]
        assert all(key not in str(sent) for sent in headers), "the client's key does not go to the endpoint"
        shown = here.http.get("/v1/models", headers={"authorization": f"Bearer {key}"})
        here.check(shown)
        assert {card["id"] for card in shown.json()["data"]} == {MODEL, "here/dollars", "here/unpriced"}


def test_a_key_without_limits_has_its_use_counted_too(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello")) as here:
        key = here.key()
        for model in (MODEL, "here/dollars", "here/unpriced"):
            assert here.send(key, requests(model)["openai-chat"]).status_code == 200
        use = here.settled(3)
        assert (use.spent, use.unpriced) == ({"CNY": COST, "USD": COST}, 1)


# ── what is refused ──────────────────────────────────────────────────────────
def test_refusals_have_the_shape_of_the_protocol(tmp_path: Path) -> None:
    """Model, currency, unknown price, budget and limits: status, kind, words, Retry-After; nothing is sent."""
    kinds = {
        "openai-chat": {403: "permission_error", 429: "rate_limit_error"},
        "openai-responses": {403: "permission_error", 429: "rate_limit_error"},
        "anthropic-messages": {403: "permission_error", 429: "rate_limit_error", 402: "billing_error"},
        "gemini": {403: "PERMISSION_DENIED", 429: "RESOURCE_EXHAUSTED"},
    }
    with setting(tmp_path, say("Hello")) as here:
        team = here.key(models=("here/*",), budgets={"CNY": cny("0.001")})
        slow = here.key("slow", rpm=1)
        short = here.key("short", tpm=50)
        assert here.send(slow, requests()["openai-chat"]).status_code == 200
        del here.upstream.bodies[:]
        for stream in (False, True):
            cases: list[tuple[str, dict[str, Request], int, str, bool]] = [
                (team, requests("zai/glm-4.7", stream=stream), 403, "may not use zai/glm-4.7", False),
                (team, requests("here/dollars", stream=stream), 403, "no currency is converted", False),
                (team, requests("here/unpriced", stream=stream), 403, "unknown is not zero", False),
                (team, requests(stream=stream), 429, "0.001 CNY left", True),
                (slow, requests(stream=stream), 429, "1 request a minute", True),
                (short, requests(stream=stream, text="word " * 400), 413, "50 tokens a minute", False),
            ]
            for key, in_protocols, status, words, again in cases:
                for protocol, request in in_protocols.items():
                    response = here.send(key, request)
                    expected = 402 if "CNY left" in words and protocol == "anthropic-messages" else status
                    assert response.status_code == expected, (protocol, words, response.text)
                    message, kind = sentence(protocol, response.json())
                    assert words in message, (protocol, message)
                    if expected in kinds[protocol]:
                        assert kind == kinds[protocol][expected]
                    assert ("retry-after" in response.headers) is again, (protocol, words)
                    if "a minute" in words and again:
                        assert 50 < int(response.headers["retry-after"]) <= 61
                    if status == 403 or "CNY" in words:
                        assert response.headers["x-should-retry"] == "false"
        assert here.upstream.bodies == []
        assert here.spent() == 0


def test_the_vendors_own_clients_understand_the_refusals(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello")) as here:
        key = here.key(rpm=1, budgets={"CNY": cny("0.02")})
        url = str(here.http.base_url)
        with openai.OpenAI(api_key=key, base_url=f"{url}/v1", max_retries=0) as client:
            client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=9)
            with pytest.raises(openai.RateLimitError) as limited:
                client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=9)
            assert int(limited.value.response.headers["retry-after"]) > 50
        abroad = here.key("abroad", budgets={"CNY": cny("0.02")})
        with (
            openai.OpenAI(api_key=abroad, base_url=f"{url}/v1", max_retries=0) as client,
            pytest.raises(openai.PermissionDeniedError),
        ):
            client.responses.create(model="here/dollars", input="Hi")
        spent = here.key("spent", budgets={"CNY": 1})
        with anthropic.Anthropic(api_key=spent, base_url=url, max_retries=2) as other:
            with pytest.raises(anthropic.APIStatusError, match="budget of the key spent") as refused:
                other.messages.create(model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
            assert refused.value.status_code == 402


def test_a_revoked_key_is_refused_within_a_second(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello")) as here:
        key = here.key(rpm=100_000)
        assert here.send(key, requests()["openai-chat"]).status_code == 200
        here.book.revoke("team")
        revoked = time.monotonic()
        while (response := here.send(key, requests()["openai-chat"])).status_code == 200:
            assert time.monotonic() - revoked < 15  # one second, and what a busy machine adds
        assert response.status_code == 401
        for request in requests().values():
            assert here.send(key, request).status_code == 401
            assert here.send(new_key(), request).status_code == 401
        new = here.key()
        assert here.send(new, requests()["openai-chat"]).status_code == 200, "a new key is valid at once"


@pytest.mark.parametrize("change", [{"revoked": 1.0}, {"expires": 1.0}, {"models": ("elsewhere/*",)}])
def test_the_rights_of_a_key_are_those_of_the_moment_when_the_body_is_there(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    with setting(tmp_path, say("Hello")) as here:
        path, body = requests()["openai-chat"]
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {here.key()}\r\n"
        with socket.create_connection(("127.0.0.1", here.http.base_url.port or 0), 10) as client:
            client.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content[:9])
            time.sleep(0.2)  # it is let in
            here.book.change("team", lambda record: replace(record, **change))
            time.sleep(1.0)
            client.sendall(content[9:])
            status = int(client.recv(65536).split()[1])
        assert (status, here.upstream.bodies) == (403 if "models" in change else 401, [])


def test_a_book_alone_lets_nobody_in_without_a_key(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello"), keys=()) as here:
        assert here.http.get("/v1/models", headers={"authorization": ""}).status_code == 401
        assert here.http.get("/v1/models", headers={"x-api-key": here.key()}).status_code == 200


def test_tokens_count_by_the_endpoints_own_count(tmp_path: Path) -> None:
    """Replies that are on their way count for a long reply, and afterwards for what they were."""
    waits = threading.Event()
    total = USAGE["total_tokens"]
    with setting(tmp_path, Answer([{"content": "one"}], wait=waits, lasts=False), say("Hello")) as here:
        key = here.key(tpm=2 * total + 700)
        path, body = requests(stream=True, limit=300)["openai-chat"]
        with here.http.stream("POST", path, json=body, headers={"authorization": f"Bearer {key}"}) as response:
            pieces = response.iter_bytes()  # held: without it the connection would be closed
            next(pieces)
            assert here.send(key, requests(limit=300)["openai-chat"]).status_code == 200
            here.settled(1)
            held = here.send(key, requests(text="word " * 1300, limit=300)["openai-chat"])
            assert held.status_code == 429, "the reply on its way counts"
        waits.set()
        assert here.settled(2).tokens == total
        assert here.send(key, requests(limit=300)["openai-chat"]).status_code == 200
        assert here.settled(3).tokens == 2 * total
        again = here.send(key, requests(text="word " * 1000, limit=300)["openai-chat"])
        assert again.status_code == 429
        assert 50 < int(again.headers["retry-after"]) <= 61


@pytest.mark.parametrize(
    ("counts", "least"), [({"prompt_tokens": 0, "completion_tokens": 0}, 1250), ({}, USAGE["total_tokens"])]
)
def test_a_total_of_zero_frees_no_tokens_of_a_limit(tmp_path: Path, counts: dict[str, int], least: int) -> None:
    with setting(tmp_path, say("word " * 1000, counts={**counts, "total_tokens": 0})) as here:
        key = here.key(tpm=1500)
        assert here.send(key, requests(limit=300)["openai-chat"]).status_code == 200
        assert here.settled(1).tokens >= least


def test_a_route_leads_to_no_model_that_the_key_does_not_allow(tmp_path: Path) -> None:
    route = '\n[gateway.routes.best]\ntargets = ["here/priced", "here/dollars"]\n'
    limits: list[tuple[dict[str, Any], int, list[str]]] = [
        ({}, 200, ["priced", "dollars"]),
        ({"models": ("here/*",)}, 200, ["priced", "dollars"]),
        ({"models": ("here/priced",)}, 503, ["priced"]),
        ({"budgets": {"CNY": cny("1")}}, 503, ["priced"]),  # reserved for one model, and nothing is for another one
        ({"models": ("here/dollars",)}, 503, ["dollars"]),  # the first one that the key may use
        ({"budgets": {"USD": cny("1")}}, 503, ["dollars"]),
        ({"models": ("here/unpriced",)}, 403, []),
    ]
    for index, (limit, expected, asked) in enumerate(limits):
        with setting(tmp_path, error(503, "busy"), say("Hello"), more=route) as here:
            response = here.send(here.key(f"k{index}", **limit), requests("best")["openai-chat"])
            assert response.status_code == expected, (limit, response.text)
            assert [body["model"] for body in here.upstream.bodies] == asked, limit


# ── what costs nothing, and what may have cost something ─────────────────────
OTHER = """
[providers.there]
protocol = "anthropic-messages"
base_url = "URL/v1"
[models."there/priced"]
price = { currency = "CNY", input = 2, output = 8 }
limits = { context = 100_000, output = 8_000 }
"""


@pytest.mark.parametrize(
    ("protocol", "model", "extra"),
    [
        ("openai-chat", MODEL, {"models": ["dollars"]}),
        ("anthropic-messages", "there/priced", {"fallbacks": [{"model": "dear"}]}),
    ],
)
@pytest.mark.parametrize("limits", [{"models": ("*/priced",)}, {"budgets": {"CNY": cny("9")}}, {"rpm": 9}])
def test_the_endpoint_gets_no_further_models_from_a_key_that_may_use_some_only(
    tmp_path: Path, protocol: str, model: str, extra: dict[str, Any], limits: dict[str, Any]
) -> None:
    upstream = Upstream(say("Hello"))
    with setting(tmp_path, say("Hello"), more=OTHER.replace("URL", upstream.url)) as here:
        path, body = requests(model)[protocol]
        key = here.key(**limits)
        response = here.send(key, (path, {**body, **extra, "metadata": {"user_id": "me"}}))
        (sent,) = here.upstream.bodies or upstream.bodies
        assert sent["metadata"] == {"user_id": "me"}
        assert ({*extra} <= {*sent}) is ("rpm" in limits)
        log = here.http.get(
            f"/v1/requests/{response.headers['x-request-id']}", headers={"authorization": f"Bearer {key}"}
        ).json()
        assert ("target-passed-over" in [note["code"] for note in log["notes"]]) is ("rpm" not in limits)
    upstream.shutdown()
    upstream.server_close()


@pytest.mark.parametrize(("advisor", "status"), [("dear", 403), ("cheap/priced", 200)])
def test_a_tool_of_the_endpoint_asks_no_model_that_the_key_does_not_allow(
    tmp_path: Path, advisor: str, status: int
) -> None:
    upstream = Upstream(say("Hello"))
    with setting(tmp_path, say("Hello"), more=OTHER.replace("URL", upstream.url)) as here:
        path, body = requests("there/priced")["anthropic-messages"]
        tool = {"type": "advisor_20260301", "name": "advisor", "model": advisor}
        refused = here.send(here.key(models=("*/priced",)), (path, {**body, "tools": [tool]}))
        assert (refused.status_code == 403, len(upstream.bodies)) == (status == 403, int(status == 200))
        assert ("may not use there/dear" in refused.text) is (status == 403)
        free = len(upstream.bodies)
        here.send(here.key("free"), (path, {**body, "tools": [tool]}))
        assert upstream.bodies[free]["tools"] == [tool]
    upstream.shutdown()
    upstream.server_close()


def test_a_tier_is_a_model_that_the_key_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE_KEY", "k")  # a tier takes models with a key
    more = (
        '\n[models."here/other"]\nprice = { currency = "USD", input = 2, output = 8 }\n'
        '[gateway.models]\nmine = "tier:fast"\n'
        '[gateway.routes.last]\ntargets = ["here/unpriced", "tier:fast"]\n'
        '[gateway.routes.first]\ntargets = ["tier:fast", "here/unpriced?protocol=openai-chat"]\n'
        '[tiers]\nfast = ["here/priced", "here/dollars", "here/other"]\n'
    )
    limits: list[tuple[str, dict[str, Any], int, list[str]]] = [
        ("tier:fast", {}, 200, ["priced"]),
        ("tier:fast", {"models": ("here/dollars",)}, 200, ["dollars"]),
        ("mine", {"models": ("here/other", "here/dollars")}, 200, ["dollars"]),
        ("tier:fast", {"budgets": {"USD": cny("1")}}, 200, ["dollars"]),
        ("tier:fast", {"models": ("here/other",), "budgets": {"USD": cny("1")}}, 200, ["other"]),
        ("tier:fast", {"models": ("here/other",), "budgets": {"CNY": cny("1")}}, 403, []),
        ("tier:fast", {"models": ("here/unpriced",)}, 403, []),
        ("last", {"models": ("here/other",)}, 200, ["other"]),
        ("first", {"models": ("here/other",)}, 200, ["other"]),
        ("first", {"models": ("here/unpriced",)}, 200, ["unpriced"]),
        ("first", {"models": ("here/nothing",)}, 403, []),
        # none that it may use is charged in its currency, and the one that is charged so is not allowed
        ("first", {"models": ("here/other",), "budgets": {"CNY": cny("1")}}, 403, []),
    ]
    with setting(tmp_path, more=more) as here:
        for index, (name, limit, expected, asked) in enumerate(limits):
            here.upstream.script[:] = [say("Hello")]
            here.upstream.bodies.clear()
            key = here.key(f"k{index}", **limit)
            response = here.send(key, requests(name)["openai-chat"])
            assert response.status_code == expected, (name, limit, response.text)
            assert [body["model"] for body in here.upstream.bodies] == asked, (name, limit)
            head = {"authorization": f"Bearer {key}"}
            is_allowed = "budgets" in limit or expected == 200
            assert here.http.get(f"/v1/models/{name}", headers=head).status_code == (200 if is_allowed else 403), limit
            names = [entry["id"] for entry in here.http.get("/v1/models", headers=head).json()["data"]]
            assert name.startswith("tier:") or (name in names) == is_allowed, (name, limit)


def test_a_route_goes_on_behind_a_tier_in_which_no_model_fits(tmp_path: Path) -> None:
    more = (
        '\n[providers.far]\nextends = "openai-compatible"\nbase_url = "https://far.invalid/v1"\nkeys = ["FAR_KEY"]\n'
        '[tiers]\nfar = ["far/m"]\n[gateway.routes.best]\ntargets = ["tier:far", "here/priced"]\nweights = [1, 1]\n'
    )
    with setting(tmp_path, say("Hello"), more=more) as here:
        response = here.send(key := here.key(), requests("best")["openai-chat"])
        assert response.status_code == 200, response.text
        log = here.http.get(
            f"/v1/requests/{response.headers['x-request-id']}", headers={"authorization": f"Bearer {key}"}
        )
        (note,) = [note for note in log.json()["notes"] if note["code"] == "target-passed-over"]
        assert (note["said"], "FAR_KEY is not set" in note["did"]) == ("tier:far", True)


def test_what_the_endpoint_refused_costs_nothing(tmp_path: Path) -> None:
    answers = [error(status, "no") for status in (400, 401, 429, 500, 503)]
    with setting(tmp_path, *answers, say("Hello")) as here:
        key = here.key(budgets={"CNY": cny("0.02")})
        for _ in answers:
            assert here.send(key, requests()["openai-chat"]).status_code >= 400
        assert here.send(key, requests()["openai-chat"]).status_code == 200
        assert here.settled(1).spent == {"CNY": COST}


def test_an_endpoint_that_cannot_be_reached_costs_nothing(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello")) as here:
        key = here.key(budgets={"CNY": cny("1")})
        here.upstream.shutdown()
        here.upstream.server_close()
        for stream in (False, True):
            for request in requests(stream=stream).values():
                response = here.send(key, request)
                assert response.status_code == 502
                assert "no connection to the endpoint of here" in response.text
        assert here.spent() == 0


def test_a_reply_that_is_cut_or_given_up_is_charged_in_full(tmp_path: Path) -> None:
    waits = threading.Event()
    deltas = [{"content": "one"}, {"content": "two"}]
    script = [Answer(deltas, cut=True), Answer(deltas, wait=waits), say("Hello")]
    with setting(tmp_path, *script) as here:
        key = here.key(budgets={"CNY": cny("10")})
        request = requests(stream=True)["anthropic-messages"]
        here.send(key, request)
        full = here.settled(1).spent["CNY"]
        assert full > COST, "nobody knows what the endpoint counted"
        path, body = request
        with here.http.stream("POST", path, json=body, headers={"authorization": f"Bearer {key}"}) as response:
            for piece in response.iter_text():
                if "one" in piece:
                    break
        waits.set()
        assert here.settled(2).spent["CNY"] == 2 * full


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_while_a_refused_request_waits_pays_nothing(
    tmp_path: Path, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "cnllm")
    refused = error(429, "slow down", **{"retry-after": "20"})
    with setting(tmp_path, refused, attempts=3, admin_key="the-operator") as here:
        key = here.key(budgets={"CNY": cny("1")}, tpm=100_000)
        path, body = requests(stream=stream)["openai-chat"]
        with here.sent(key, path, body):
            last = time.monotonic() + 10
            while "RetryScheduled" not in caplog.text and time.monotonic() < last:
                time.sleep(0.02)
        use = here.use()
        while (use.minute_tokens or any(use.open.values())) and time.monotonic() < last:
            use = here.use()
        assert len(here.upstream.bodies) == 1
        assert (use.spent, any(use.open.values()), use.minute_tokens) == ({}, False, 0)
        metrics = here.http.get("/metrics", headers={"authorization": "Bearer the-operator"}).text
        assert 'outcome="client-has-gone"' in metrics
        assert "cnllm_cost_unknown_total{" not in metrics


def test_what_a_cut_reply_has_certainly_cost_is_charged_above_its_reservation(tmp_path: Path) -> None:
    counts = {"usage": {"prompt_tokens": 1_000_000}}
    with setting(tmp_path, Answer([{"content": "one"}], cut=True, beside=counts)) as here:
        key = here.key(budgets={"CNY": cny("10")})
        here.send(key, requests(stream=True)["openai-chat"])
        assert here.settled(1).spent["CNY"] >= cny("2")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse what a full queue cannot hold")
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_before_there_is_a_connection_pays_nothing(tmp_path: Path, stream: bool) -> None:
    with socket.socket() as full, contextlib.ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):  # more than it takes: the next one waits
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(full.getsockname())
        more = MODELS.replace("here", "full").replace("URL", f"http://127.0.0.1:{full.getsockname()[1]}")
        with setting(tmp_path, say("Hello"), more=more) as here:
            key = here.key(budgets={"CNY": cny("1")}, tpm=100_000)
            path, body = requests("full/priced", stream=stream)["openai-chat"]
            last = time.monotonic() + 10
            with here.sent(key, path, body):
                while not any(use.open.get("CNY") for use in here.book.uses()) and time.monotonic() < last:
                    time.sleep(0.02)
            use = here.use()
            while (use.minute_tokens or any(use.open.values())) and time.monotonic() < last:
                use = here.use()
            assert (use.spent, any(use.open.values()), use.minute_tokens) == ({}, False, 0)


def test_a_lost_request_is_sent_again_only_where_the_budget_has_room(tmp_path: Path) -> None:
    """The endpoint may have charged each of them."""
    with setting(tmp_path, Answer(lost=True), attempts=3) as here:
        rich, poor = here.key("rich", budgets={"CNY": cny("1")}), here.key("poor", budgets={"CNY": cny("0.0045")})
        request = requests()["openai-chat"]
        assert here.send(poor, request).status_code == 502
        assert len(here.upstream.bodies) == 1
        one = here.spent("poor")
        assert cny("0.00225") < one <= cny("0.0045")
        assert here.send(rich, request).status_code == 502
        assert len(here.upstream.bodies) == 1 + 3
        assert here.spent("rich") == 3 * one
        assert [use.calls for use in here.book.uses()] == [1, 1]
        here.upstream.script = [Answer(lost=True), say("Hello")]
        last = here.key("last", budgets={"CNY": cny("1")})
        assert here.send(last, request).status_code == 200
        assert here.spent("last") == 2 * one, "what the lost one cost is not known"


@pytest.mark.parametrize(("money", "sent"), [("0.007", 2), ("1", 4)])
def test_requests_after_a_cut_stream_hold_to_the_budget(tmp_path: Path, money: str, sent: int) -> None:
    """The reservation has the stream and one more request."""
    again = '[providers.here.stream]\nif_cut = "again-whole"\n'
    script = [Answer([{"content": "one"}], cut=True), Answer([{"content": "one"}], torn=True)]
    with setting(tmp_path, *script, more=again) as here:
        key = here.key(budgets={"CNY": cny(money)})
        here.send(key, requests(stream=True)["openai-chat"])
        assert len(here.upstream.bodies) == sent
        assert sent * cny("0.002") < here.settled(1).spent["CNY"] <= cny(money)


def test_a_budget_holds_for_many_calls_at_once(tmp_path: Path) -> None:
    """Fifty clients at once: those that are sent cost no more than the budget, to the unit."""
    with setting(tmp_path, say("Hello"), timeout=Timeouts(connect=20)) as here:
        key = here.key(budgets={"CNY": cny("0.05")})
        path, body = requests()["openai-chat"]
        codes: list[int] = []

        def send() -> None:
            response = here.http.post(path, json=body, headers={"authorization": f"Bearer {key}"})
            codes.append(response.status_code)

        threads = [threading.Thread(target=send) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(codes) == {200, 429}
        use = here.settled(codes.count(200))
        assert use.spent["CNY"] == COST * codes.count(200) <= cny("0.05")
        assert len(here.upstream.bodies) == codes.count(200)


# ── what stays secret ────────────────────────────────────────────────────────
@pytest.mark.sampled
def test_no_response_shows_the_address_or_the_key_of_an_endpoint(tmp_path: Path) -> None:
    """The endpoint echoes both wherever it can: in errors of every status, and in headers."""
    upstream_port = "PORT"
    echo = (
        f"POST http://127.0.0.1:{upstream_port}/v1/chat/completions with Bearer {SECRET} at 127.0.0.1:{upstream_port}"
    )
    headers = {"x-upstream": "secret-header-of-the-endpoint", "location": "http://secret-header-of-the-endpoint/"}
    statuses = (302, 400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 502, 503, 529)
    with setting(tmp_path, say("Hello")) as here:
        key = here.key(models=("here/*",), budgets={"CNY": cny("100")})
        said = echo.replace("PORT", str(here.upstream.server_port))

        def log(response: httpx.Response) -> None:
            """Look through what the gateway keeps of a request."""
            here.check(here.http.get(f"/v1/requests/{response.headers['x-request-id']}", headers={"x-api-key": key}))

        for status in statuses[:: min(SHARE, 4)]:
            bodies: list[Any] = [{"error": {"message": said, "code": said}}, {"message": said}, said]
            for body in bodies:
                here.upstream.script[:] = [Answer(status=status, body=body, headers=headers)]
                for stream in (False, True):
                    for request in requests(stream=stream).values():
                        response = here.send(key, request)
                        assert response.status_code >= 400
                        log(response)
        here.upstream.script[:] = [say("Hello", headers=headers)]
        for stream in (False, True):
            for request in requests(stream=stream).values():
                response = here.send(key, request)
                assert response.status_code == 200
                log(response)
        for path in ("/v1/models", "/v1/models/here/priced", "/v1/requests/none", "/nothing", "/healthz"):
            for shape in (
                {"x-api-key": key},
                {"x-goog-api-key": key},
                {"x-api-key": key, "anthropic-version": "1"},
                {},
            ):
                here.check(here.http.get(path, headers=shape))


def test_no_answer_about_a_route_shows_the_address_of_any_target(tmp_path: Path) -> None:
    targets = """
[providers.gone]
extends = "openai-compatible"
base_url = "http://localhost:9/inside"
[providers.vllm]
extends = "openai-compatible"
base_url = "http://127.0.0.1:9/inside"
[models."here/priced".params]
seed = false
[gateway.routes.last]
targets = ["gone/a", "here/first", "here/priced"]
cooldown = 0
[gateway.routes.none]
targets = ["vllm/a", "gone/a"]
cooldown = 0
"""
    with setting(tmp_path, say("Hello"), more=targets) as here:
        key, port = here.key(), here.upstream.server_port
        said = f"no model at host 127.0.0.1:{port}, see http://127.0.0.1:{port}/v1"
        here.upstream.script[:] = [error(500, said), say("Hello")]
        path, body = requests("last")["openai-chat"]
        response = here.send(key, (path, {**body, "seed": 1}))
        shown = here.http.get(
            f"/v1/requests/{response.headers['x-request-id']}", headers={"authorization": f"Bearer {key}"}
        )
        here.check(shown)
        notes = shown.json()["notes"]
        failed = [note["said"] for note in notes if note["code"] == "target-failed"]
        assert failed[0].startswith("gone/a: TransportError: no connection to the endpoint of gone: ")
        assert failed[1] == (
            "here/first: EndpointError: 500 no model at host the endpoint of here, see the endpoint of here"
        )
        (dropped,) = [note for note in notes if note["code"] == "param-dropped"]
        assert dropped["where"].startswith("overlay-")
        whole = here.send(key, requests("none")["openai-chat"]).json()["error"]["message"]
        assert "vllm/a: TransportError: no connection to the endpoint of vllm: " in whole
        assert "gone/a: TransportError: no connection to the endpoint of gone: " in whole
        assert ":9" not in f"{whole} {notes}"


def test_a_key_that_a_whole_route_lacks_is_the_business_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    monkeypatch.delenv("MISTRAL_API_KEY", raising=False)
    with cnllm.Client(cnllm.Registry.load()) as client, pytest.raises(cnllm.NoTarget, match="no target") as caught:
        client.call("deepseek/deepseek-v4-pro", "Hi", fallback=["mistral/mistral-large-4"])
    assert "export" in str(caught.value.hint)
    failure = failure_of(caught.value, "openai-chat")
    assert "export" not in failure.message
    assert (failure.status, failure.code) == (502, "provider_key_missing")
    assert (b"x-should-retry", b"false") in failure_headers(failure)


def test_the_name_of_a_provider_is_no_address(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        '[providers.ollama]\nprotocol = "openai-chat"\nbase_url = "http://ollama:11434/v1"\n'
    )
    addresses = EndpointAddresses(bases_of([cnllm.Registry.load(str(tmp_path / "own.toml")).resolve("ollama/a")]))
    said = "ollama/a: no connection to ollama:11434, http://ollama:11434/v1/chat or ollama"
    it = "the endpoint of ollama"
    assert addresses.hide(said) == f"ollama/a: no connection to {it}, {it} or {it}"


def test_amounts_are_exact(tmp_path: Path) -> None:
    assert Decimal(COST) / UNITS == Decimal(USAGE["prompt_tokens"] * 2 + USAGE["completion_tokens"] * 8) / 1_000_000


# ── expiry, teams, soft budgets, assumed prices ──────────────────────────────
def test_a_key_that_has_expired_says_so_in_every_protocol(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello")) as here:
        key = here.key(expires=1_767_225_600.0)
        for protocol, request in requests().items():
            response = here.send(key, request)
            assert response.status_code == 401
            assert "the key team expired at 2026-01-01 00:00 UTC" in sentence(protocol, response.json())[0]
        assert here.upstream.bodies == []


def test_a_team_limits_all_its_keys(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello")) as here:
        limits: dict[str, Any] = {"models": ("here/priced",), "budgets": {"CNY": 2 * COST + 10**6}}
        here.book.add(team_digest("t"), KeyRecord("t", time.time(), kind="team", **limits))
        keys = [here.key(name, team="t") for name in ("ann", "bob")]
        other = here.send(keys[0], requests("here/dollars")["anthropic-messages"])
        assert other.status_code == 403
        assert "the team t may not use here/dollars" in other.text
        shown = here.http.get("/v1/models", headers={"authorization": f"Bearer {keys[0]}"}).json()
        assert [card["id"] for card in shown["data"]] == [MODEL]
        route = [here.send(key, requests(limit=1)["openai-chat"]).status_code for key in keys]
        assert route == [200, 200]
        here.upstream.script[:] = [say("Hello")]
        last = time.monotonic() + 10
        while (use := here.book.uses(teams=True)[0]).calls < 2:
            assert time.monotonic() < last
            time.sleep(0.02)
        assert use.spent == {"CNY": 2 * COST}
        refused = here.send(keys[1], requests()["openai-chat"])
        assert refused.status_code == 429
        assert "the budget of the team t has 0.001 CNY left" in refused.text


def test_a_soft_budget_warns_by_header_log_and_metric(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with setting(tmp_path, say("Hello")) as here:
        key = here.key(budgets={"CNY": cny("1")}, soft_budgets={"CNY": COST + 1}, periods={"CNY": "month"})
        shown = []
        for stream in (False, True, False, True):
            response = here.send(key, requests(stream=stream)["openai-responses"])
            assert response.status_code == 200
            shown.append(response.headers.get("x-cnllm-soft-budget"))
            here.settled(len(shown))
        assert shown[:2] == [None, None]
        for text, count in zip(shown[2:], (2, 3), strict=True):
            spent = format_units(count * COST)
            assert text == f"key team: {spent} of 1.00 CNY (soft budget {format_units(COST + 1)})"
        warned = [record.getMessage() for record in caplog.records if "soft budget" in record.getMessage()]
        assert len(warned) == 1, "the log says it once"
        assert "the soft budget of the key team is spent" in warned[0]
        metrics = here.http.get("/metrics").text
        assert 'cnllm_soft_budget_requests_total{currency="CNY",kind="key",name="team"} 2.0' in metrics


def test_a_price_that_is_not_known_may_be_assumed(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello")) as here:
        key = here.key(budgets={"CNY": cny("1")}, assumed_price=("CNY", 3.0, 9.0))
        assert here.send(key, requests("here/unpriced")["openai-chat"]).status_code == 200
        assert here.send(key, requests()["openai-chat"]).status_code == 200
        assumed = USAGE["prompt_tokens"] * 3000 + USAGE["completion_tokens"] * 9000
        use = here.settled(2)
        assert (use.spent, use.unpriced) == ({"CNY": COST + assumed}, 0)
        dear = here.key("dear", budgets={"CNY": cny("1")}, assumed_price=("CNY", 3e6, 9e6))
        assert here.send(dear, requests("here/unpriced")["openai-chat"]).status_code == 429
        assert here.send(dear, requests()["openai-chat"]).status_code == 200, "a known price is not replaced"


def test_the_bill_of_the_endpoint_counts_and_no_price(tmp_path: Path) -> None:
    rules = 'usage.cost = { path = "cost", currency = "CNY" }\n'
    price = 'price = { currency = "CNY", input = 2, output = 8 }\n'
    more = "".join(
        f'[models."here/{name}"]\nlimits = {{ context = 100_000, output = 8_000 }}\n{rules}{rate}'
        for name, rate in (("billed", ""), ("both", price))
    )
    with setting(tmp_path, say("Hello", counts={"cost": 0.25}), more=more) as here:
        key = here.key(budgets={"CNY": cny("1")}, assumed_price=("CNY", 3.0, 9.0))
        for name in ("billed", "both"):
            assert here.send(key, requests(f"here/{name}")["openai-chat"]).status_code == 200
        assert here.settled(2).spent == {"CNY": cny("0.5")}


def test_a_lost_request_at_an_assumed_price_is_not_free(tmp_path: Path) -> None:
    """What it cost is not known: all that was reserved for it and for the next one is charged."""
    with setting(tmp_path, Answer(lost=True), say("Hello"), attempts=2) as here:
        key = here.key(budgets={"CNY": cny("1")}, assumed_price=("CNY", 2.0, 8.0))
        assert here.send(key, requests("here/unpriced")["openai-chat"]).status_code == 200
        assert here.settled(1).spent["CNY"] > 2 * cny("0.002")
        assert len(here.upstream.bodies) == 2


def test_requests_in_flight_of_a_key_are_limited_until_they_end(tmp_path: Path) -> None:
    waits = threading.Event()
    with setting(tmp_path, Answer([{"content": "one"}], wait=waits), say("Hello")) as here:
        key = here.key(concurrency=1)
        path, body = requests(stream=True)["openai-chat"]
        with here.http.stream("POST", path, json=body, headers={"authorization": f"Bearer {key}"}) as response:
            pieces = response.iter_bytes()  # held: without it the connection would be closed
            next(pieces)
            refused = here.send(key, requests()["anthropic-messages"])
            assert refused.status_code == 429
            assert "the key team may have 1 request in flight" in refused.text
            assert refused.headers["retry-after"] == "1"
        waits.set()
        last = time.monotonic() + 10
        while here.send(key, requests()["openai-chat"]).status_code != 200:  # the client has gone: it is free again
            assert time.monotonic() < last
        assert [here.send(key, requests()["openai-chat"]).status_code for _ in range(5)] == [200] * 5


def test_a_key_with_a_budget_works_with_the_simulator_and_spends_nothing(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello"), simulate=True) as here:
        for name, currency in (("a", "CNY"), ("b", "USD")):
            key = here.key(name, budgets={currency: 1}, soft_budgets={currency: 1})
            for model in ("here/priced", "here/unpriced", "zai/glm-4.7"):
                for request in requests(model).values():
                    response = here.send(key, request)
                    assert response.status_code == 200, response.text
        assert here.upstream.bodies == []
        last = time.monotonic() + 10
        while (uses := here.book.uses())[1].calls < 12 and time.monotonic() < last:
            time.sleep(0.02)
        assert [(use.calls, use.spent, use.unpriced) for use in uses] == [(12, {}, 0)] * 2


def test_the_page_of_the_operator_shows_what_is_used_of_what(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello"), recent=Recent()) as here:
        here.book.add(team_digest("t"), KeyRecord("t", time.time(), kind="team", rpm=7))
        key = here.key(rpm=5, team="t", budgets={"CNY": cny("1")}, periods={"CNY": "day"})
        assert here.send(key, requests()["openai-chat"]).status_code == 200
        here.settled(1)
        assert here.http.get("/ui/keys", headers={"authorization": f"Bearer {key}"}).status_code == 401
        shown = here.http.get("/ui/keys").json()
        (used,), (team,) = shown["keys"], shown["teams"]
        assert (used["minute_requests"], used["rpm"], used["team"], team["minute_requests"]) == (1, 5, "t", 1)
        assert (used["spent"]["CNY"], used["budgets"]["CNY"]) == (format_units(COST), "1.00")
        assert used["period_ends"]["CNY"] - used["period_starts"]["CNY"] == 86_400
        assert "digest" not in used
        assert b"keyRows" in here.http.get("/ui").content
        (entry,) = here.http.get("/ui/requests").json()
        assert (entry["key"], entry["team"]) == (used["name"], "t")
        assert entry["cost"]["currency"] == "CNY"


def test_a_quote_has_what_a_budget_reserves(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hi")) as gateway:
        overlay = tmp_path / "quoted.toml"
        overlay.write_text(MODELS.replace("URL", gateway.upstream.url))
        quote = cnllm.Client(cnllm.Registry.load(str(overlay))).quote(MODEL, "Hi", max_tokens=100)
        assert quote.high is not None
        high = units_of(quote.high)
        too_little, enough = (
            gateway.key("less", budgets={"CNY": high - 1}),
            gateway.key("enough", budgets={"CNY": high}),
        )
        refused = gateway.send(too_little, requests()["openai-chat"])
        assert refused.status_code == 429
        assert format_units(high) in refused.text
        assert gateway.send(enough, requests()["openai-chat"]).status_code == 200
