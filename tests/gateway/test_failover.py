"""The cases of `tests/client/test_failover.py` through the gateway, as a client of chat completions sees them."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from client.peer import DONE, Peer, Reset, Script, Stay, delta, head, piece, refused, stream, usage
from client.routes import ANSWER, PREFILL, broken_chunk, healthy, tokens, two

from cnllm import AsyncClient, Registry
from cnllm.errors import RegistryError
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.model_names import ModelNames
from cnllm.gateway.monitoring.table import parse_scrape
from cnllm.gateway.server import running
from cnllm.registry_files.check import check
from cnllm.types.policy import Retry, Timeouts

KEY = "the-key-of-the-client"
ROUTE = '[gateway.routes.best]\ntargets = ["one/m", "two/m"]\n'


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE_KEY", "sk-one-0123456789")
    monkeypatch.setenv("TWO_KEY", "sk-two-9876543210")


@contextlib.contextmanager
def serving(
    folder: Path, first: list[Script], second: list[Script], rules: str = "", **settings: Any
) -> Iterator[tuple[httpx.Client, Peer, Peer]]:
    timeout = settings.pop("timeout", None)
    with two(folder, first, second, more=ROUTE + rules, **settings) as (registry, one, other):
        client = AsyncClient(registry, timeout=timeout, retry=Retry(attempts=3, base=0.01))
        with (
            running(Gateway(registry, client=client, keys=[KEY])) as url,
            httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=30) as http,
        ):
            yield http, one, other


class Seen:
    """What the client got."""

    def __init__(self, response: httpx.Response) -> None:
        self.status, self.headers, self.content = response.status_code, response.headers, response.text
        lines = [line.removeprefix("data: ") for line in self.content.splitlines() if line.startswith("data: ")]
        self.chunks: list[Any] = [json.loads(line) for line in lines if line != "[DONE]"]
        self.done = lines[-1:] == ["[DONE]"]
        deltas = [choice["delta"] for chunk in self.chunks for choice in chunk.get("choices", ())]
        self.text = "".join(each.get("content") or "" for each in deltas)
        self.models = {chunk["model"] for chunk in self.chunks if "model" in chunk}
        self.usage = [chunk["usage"] for chunk in self.chunks if chunk.get("usage")]


def asked(http: httpx.Client, model: str = "best") -> Seen:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return Seen(http.post("/v1/chat/completions", json=body))


def rescued(
    folder: Path, first: list[Script], attempts: tuple[int, int], second: Script | None = None, **settings: Any
) -> tuple[Seen, Peer, Peer]:
    """Check that the client gets the whole answer, after so many requests to each provider."""
    with serving(folder, first, [healthy() if second is None else second], **settings) as (http, one, other):
        seen = asked(http)
        assert (seen.status, seen.text, seen.done) == (200, ANSWER, True), seen.content
        assert (len(one.received), len(other.received)) == attempts
        assert seen.models == {"two/m" if attempts[1] else "one/m"}
        assert seen.headers["x-cnllm-model"] == seen.models.pop()
        return seen, one, other


def test_01_a_rate_limit_with_retry_after_is_waited_for(tmp_path: Path) -> None:
    _, one, _ = rescued(tmp_path, [[refused(429, "slow down", retry_after="1")], healthy()], (2, 0))
    assert one.received[1].at - one.received[0].at >= 1


def test_02_a_lasting_rate_limit_is_not_hammered(tmp_path: Path) -> None:
    rescued(tmp_path, [[refused(429, "slow down")]], (2, 1))


def test_03_one_500_is_tried_again_at_the_same_provider(tmp_path: Path) -> None:
    rescued(tmp_path, [[refused(500, "oops")], healthy()], (2, 0))


def test_04_a_lasting_503_moves_to_the_next_target(tmp_path: Path) -> None:
    seen, _, _ = rescued(tmp_path, [[refused(503, "busy")]], (2, 1))
    assert seen.headers["x-cnllm-notes"].startswith("1; "), "the head of the stream counts why another one answers"


def test_05_a_reset_before_the_headers_is_tried_again(tmp_path: Path) -> None:
    rescued(tmp_path, [[Reset()], healthy()], (2, 0))


def test_06_a_silent_provider_is_asked_once(tmp_path: Path) -> None:
    rescued(tmp_path, [[Stay()]], (1, 1), timeout=Timeouts(first_byte=0.2))


def test_07_a_slow_first_token_ends_at_the_limit(tmp_path: Path) -> None:
    slow: Script = [head(transfer_encoding="chunked") + piece(delta(role="assistant")), Stay()]
    rescued(tmp_path, [slow], (1, 1), rules="first_token = 0.2\n")


def test_08_a_cut_stream_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    cut: Script = [stream(*tokens(0, 9), end=False), Reset()]
    with serving(tmp_path, [cut], [healthy(9)], other=PREFILL) as (http, one, other):
        seen = asked(http)
        assert (seen.text, seen.done, len(one.received), len(other.received)) == (ANSWER, True, 1, 1)
        assert other.received[0].json()["messages"][-1]["partial"] is True
        found = parse_scrape(http.get("/metrics", headers={"accept": "text/plain"}).text, 0.0)
        assert (found.sum("cnllm_cuts_total", None), found.sum("cnllm_recoveries_total", None)) == (1, 1)


def test_09_a_stream_that_stalls_goes_on_elsewhere(tmp_path: Path) -> None:
    stalls: Script = [stream(*tokens(0, 5), end=False), Stay()]
    with serving(tmp_path, [stalls], [healthy()], timeout=Timeouts(idle=0.2)) as (http, _, other):
        seen = asked(http)
        assert (seen.text, seen.done, len(other.received)) == (ANSWER, True, 1)
        assert asked(http).text == ANSWER  # it is alive


def test_10_a_broken_chunk_ends_its_stream(tmp_path: Path) -> None:
    bad: Script = [stream(*tokens(0, 4), broken_chunk(), *tokens(5), delta(finish="stop"), usage(), DONE)]
    with serving(tmp_path, [bad], [healthy()]) as (http, _, _):
        seen = asked(http)
        assert (seen.text, seen.done) == (ANSWER, True)
        assert asked(http).text == ANSWER


def test_11_a_stream_without_its_last_marker_ends_at_once(tmp_path: Path) -> None:
    seen, _, _ = rescued(tmp_path, [[stream(*tokens(), delta(finish="stop"), usage())]], (1, 0))
    assert seen.usage[0]["total_tokens"] == 7


def test_12_too_long_a_context_is_not_sent_there_again(tmp_path: Path) -> None:
    long = refused(400, "This model's maximum context length is 8192 tokens.", "context_length_exceeded")
    rescued(tmp_path, [[long]], (1, 1))


def test_13_a_content_filter_is_the_answer(tmp_path: Path) -> None:
    filtered = refused(400, "Your request was rejected by our safety system.", "content_policy_violation")
    with serving(tmp_path, [[filtered]], [healthy()]) as (http, one, other):
        seen = asked(http)
        assert (seen.status, len(one.received), len(other.received)) == (400, 1, 0)
        assert "rejected by our safety system" in seen.content


def test_14_a_target_that_takes_no_prefill_gets_none(tmp_path: Path) -> None:
    cut: Script = [stream(*tokens(0, 9), end=False), Reset()]
    with serving(tmp_path, [cut], [healthy()]) as (http, _, other):
        seen = asked(http)
        assert (seen.text, seen.done) == (ANSWER, True)
        assert other.received[0].json()["messages"][-1]["role"] == "user"


def test_15_a_target_that_recovers_is_used_again(tmp_path: Path) -> None:
    down: Script = [refused(503, "busy")]
    rules = "cooldown = 1.0\n"
    with serving(tmp_path, [down, down, healthy(model="m")], [healthy()], rules) as (http, one, other):
        assert [asked(http).models for _ in range(3)] == [{"two/m"}] * 3
        assert (len(one.received), len(other.received)) == (2, 3)
        time.sleep(1.05)
        assert [asked(http).models for _ in range(2)] == [{"one/m"}] * 2


def test_16_the_reply_is_that_of_the_target_that_answered(tmp_path: Path) -> None:
    seen, _, other = rescued(tmp_path, [[refused(503, "busy")]], (2, 1))
    assert [counts["total_tokens"] for counts in seen.usage] == [7]
    assert other.received[0].headers["authorization"] == "Bearer sk-two-9876543210"
    with serving(tmp_path, [[refused(503, "busy")]], [healthy()]) as (http, _, _):
        body = {"model": "best", "messages": [{"role": "user", "content": "hi"}]}
        reply = http.post("/v1/chat/completions", json=body)
        assert reply.json()["model"] == reply.headers["x-cnllm-model"] == "two/m"
        log = http.get(reply.headers["x-cnllm-notes"].partition("log=")[2]).text
        assert "target-failed" in log


# ── what is no case of the benchmark ─────────────────────────────────────────


def test_text_that_no_target_can_go_on_from_ends_in_an_error(tmp_path: Path) -> None:
    cut: Script = [stream(*tokens(0, 9), end=False), Reset()]
    another: Script = [stream(delta("Something else"), delta(finish="stop"), usage(), DONE)]
    with serving(tmp_path, [cut], [another]) as (http, _, _):
        seen = asked(http)
        assert seen.text == " ".join(ANSWER.split()[:9])
        assert not seen.done
        assert "error" in seen.content


def test_an_error_of_all_targets_names_them_and_no_address(tmp_path: Path) -> None:
    busy: Script = [refused(503, "busy")]
    with serving(tmp_path, [busy], [busy]) as (http, one, _):
        seen = asked(http)
        assert seen.status == 503
        assert "all targets failed: one/m, two/m" in seen.content
        assert str(one.port) not in seen.content


def test_routes_are_listed_and_checked(tmp_path: Path) -> None:
    with serving(tmp_path, [healthy()], [healthy()]) as (http, _, _):
        assert "best" in [model["id"] for model in http.get("/v1/models").json()["data"]]
    path = tmp_path / "bad.toml"
    path.write_text(
        '[gateway.models]\na = "zai/glm-4.7"\n[gateway.routes.a]\ntargets = ["zai/glm-4.7"]\n'
        '[gateway.routes.b]\ntargets = []\n[gateway.routes.c]\ntargets = ["nobody/x", "zai/glm-4.7"]\nweights = [1]\n'
    )
    problems = [str(problem) for problem in check([str(path)])]
    assert any(":3: " in p and "gateway.models, too" in p for p in problems), problems
    assert any(":5: " in p and "has no targets" in p for p in problems)
    assert any(":7: " in p and "weights" in p for p in problems)
    assert any(":7: " in p and "nobody" in p for p in problems), problems
    path.write_text("[gateway.routes.b]\ntargets = []\n")
    with pytest.raises(RegistryError, match=r"gateway\.routes\.b"):
        ModelNames(Registry.load(str(path)))


def test_a_suspended_model_is_passed_over_and_a_route_without_another_is_503(tmp_path: Path) -> None:
    three = '[gateway.routes.best]\ntargets = ["one/m", "two/m", "one/other"]\nweights = [1, 0, 1]\n'
    three += '[tiers]\ntwo = ["two/m"]\nboth = ["one/m", "two/m"]\n'
    with two(tmp_path, [healthy()], [healthy()], more=three) as (registry, one, other):
        gateway = Gateway(registry, keys=[KEY])
        with (
            running(gateway) as url,
            httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=30) as http,
        ):
            gateway.suspend(["one/m"])
            seen = asked(http)
            assert (seen.status, seen.text, seen.models) == (200, ANSWER, {"one/other"})
            gateway.suspend(["one"])
            for _ in range(2):
                seen = asked(http)
                assert (seen.status, seen.text, seen.models) == (200, ANSWER, {"two/m"})
            assert (len(one.received), len(other.received)) == (1, 2)
            seen = asked(http, model="tier:both")
            assert (seen.status, seen.text, len(one.received), len(other.received)) == (200, ANSWER, 1, 3)
            other.received.pop()
            gateway.suspend(["one/other", "two"])
            seen = asked(http)
            assert (seen.status, seen.models) == (200, {"one/m"})
            gateway.suspend(["one", "two"])
            for name in ("tier:two", "tier:both"):
                refusal = http.post("/v1/chat/completions", json={"model": name, "messages": []})
                assert (refusal.status_code, refusal.json()["error"]["code"]) == (503, "provider_untrusted")
            refusal = http.post("/v1/chat/completions", json={"model": "best", "messages": []})
            assert (refusal.status_code, refusal.json()["error"]["code"]) == (503, "provider_untrusted")
            assert (len(one.received), len(other.received)) == (2, 2)
