"""A tool loop over a route: each step has the whole route, and what is for the first endpoint goes to no other."""

import time
from pathlib import Path
from typing import Any

import pytest
from client.peer import Script, refused
from client.routes import two

import cnllm

from .support import ONCE, Backend, Loops, asks_whole, ran, says_whole

KEY = "sk-given-1112223334"
HEADERS = {"x-secret": "for the first endpoint"}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE_KEY", "sk-one-0123456789")
    monkeypatch.setenv("TWO_KEY", "sk-two-9876543210")


def now() -> int:
    """The time."""
    return 12


@pytest.mark.parametrize("reason", ["cooldown", "weights", "obstacle"])
@pytest.mark.parametrize("place", ["client", "call"])
def test_a_key_for_the_first_endpoint_goes_to_no_other(
    backend: Backend, tmp_path: Path, reason: str, place: str
) -> None:
    flags = "tools.supported = false" if reason == "obstacle" else ""
    steps: list[Script] = [asks_whole(("now", "{}")), says_whole("Noon.")]
    rules = cnllm.Fallback(targets=("two/m",), weights=(0, 1) if reason == "weights" else None)
    ours: dict[str, Any] = {"api_key": KEY} if place == "client" else {}
    theirs: dict[str, Any] = {"api_key": KEY} if place == "call" else {}
    with (
        two(tmp_path, [[refused(503, "busy")]], steps, flags) as (registry, _, other),
        Loops(backend, registry=registry, retry=ONCE, fallback=rules, **ours) as client,
    ):
        if reason == "cooldown":  # it begins with a failure
            other.scripts = (says_whole("Hi."), *steps)
            client.call("one/m", **theirs)
        _, run = ran(client, "run", "one/m", tools=[now], extra_headers=HEADERS, **theirs)
        assert run.reply.text == "Noon."
        received = other.received[-2:]
    assert [request.headers["authorization"] for request in received] == ["Bearer sk-two-9876543210"] * 2
    assert not any("x-secret" in request.headers for request in received)


def test_a_step_goes_to_the_first_model_again_when_it_has_cooled_down(backend: Backend, tmp_path: Path) -> None:
    first: list[Script] = [[refused(503, "busy")], says_whole("Hello."), says_whole("One again.")]
    second: list[Script] = [says_whole("Hi."), asks_whole(("wait", "{}"))]
    rules = cnllm.Fallback(targets=("two/m",), cooldown=2)
    with (
        two(tmp_path, first, second) as (registry, one, other),
        Loops(backend, registry=registry, retry=ONCE, fallback=rules) as client,
    ):

        def wait() -> str:
            """Wait until the first target may be asked again."""
            time.sleep(2.1)
            return "over"

        assert client.call("one/m").text == "Hi."
        _, run = ran(client, "run", "one/m", tools=[wait])
        assert run.reply.text == "Hello."
        assert (len(one.received), len(other.received)) == (2, 2)
