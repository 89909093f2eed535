"""What a request leaves behind is freed with its last reference: it needs no search for cycles."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

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
    "later than the watch begins": (say("Hello.", pause=0.08), send_all),
    "calls": (call("Beijing"), send_all),
    "streams": (say("Hello."), send_streams),
    "streams that break off": (say("Hello.", cut=True), send_streams),
    "errors": (error(400, "no"), send_all),
    "overloaded": (error(503, "busy"), send_streams),
    "refused": (say("Hello."), send_refused),
}


def test_requests_leave_no_cycles(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        clients = {kind: stack.enter_context(gateway_for(Upstream(KINDS[kind][0]), tmp_path)) for kind in KINDS}
        for kind, http in clients.items():
            KINDS[kind][1](http)  # what is imported and kept once
        with cycles() as found:  # one for all kinds: a collection takes long in a process of many tests
            for kind, http in clients.items():
                for _ in range(5):
                    KINDS[kind][1](http)
    assert not found


def test_a_client_that_goes_leaves_no_cycle(tmp_path: Path) -> None:
    go_on = threading.Event()
    upstream = Upstream(say("Hello.", wait=go_on))
    with gateway_for(upstream, tmp_path) as http, cycles() as found:
        for _ in range(10):
            upstream.gone.clear()
            with http.stream("POST", CHAT, json={**BODY, "stream": True}) as response:
                next(response.iter_bytes())
            go_on.set()
            assert upstream.gone.wait(20)
        assert http.get("/v1/models").status_code == 200
    assert not found
