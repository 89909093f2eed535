"""What a request leaves behind is freed with its last reference: it needs no search for cycles."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from .support import Answer, Json, Upstream, call, error, gateway_for, say

MODEL = "deepseek/deepseek-v4-pro"
BODY: Json = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
CHAT = "/v1/chat/completions"
OTHERS: dict[str, Json] = {
    "/v1/messages": {**BODY, "max_tokens": 100},
    "/v1/responses": {"model": MODEL, "input": "Hi"},
    f"/v1beta/models/{MODEL}:generateContent": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}


@contextlib.contextmanager
def cycles() -> Iterator[Counter[str]]:
    """Count, by their types, the objects of cnllm that the block left in cycles."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        found.update(f"{type(o).__module__}.{type(o).__qualname__}" for o in gc.garbage)
        for kind in [kind for kind in found if not kind.startswith("cnllm.")]:
            del found[kind]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def send_all(http: httpx.Client) -> None:
    http.post(CHAT, json=BODY)
    for path, body in OTHERS.items():
        http.post(path, json=body)


def send_streams(http: httpx.Client) -> None:
    http.post(CHAT, json={**BODY, "stream": True})
    http.post("/v1/messages", json={**OTHERS["/v1/messages"], "stream": True})


def send_refused(http: httpx.Client) -> None:
    http.post(CHAT, json={**BODY, "model": "no/such"})
    http.post(CHAT, json={**BODY, "messages": 7})
    http.post(CHAT, content=b"{")
    http.post(CHAT, json=BODY, headers={"authorization": "Bearer wrong"})


KINDS: dict[str, tuple[Answer, Callable[[httpx.Client], None]]] = {
    "whole": (say("Hello."), send_all),
    "later than the watch begins": (say("Hello.", pause=0.08), lambda http: send_all(http)),
    "calls": (call("Beijing"), send_all),
    "streams": (say("Hello."), send_streams),
    "streams that break off": (say("Hello.", cut=True), send_streams),
    "errors": (error(400, "no"), send_all),
    "overloaded": (error(503, "busy"), send_streams),
    "refused": (say("Hello."), send_refused),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_leaves_no_cycle(kind: str, tmp_path: Path) -> None:
    answer, send = KINDS[kind]
    with gateway_for(Upstream(answer), tmp_path) as http:
        send(http)  # what is imported and kept once
        with cycles() as found:
            for _ in range(10):
                send(http)
    assert not found
