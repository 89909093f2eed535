"""Every route of the gateway against every kind of client that may not use it: one table, on every store."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from cnllm.gateway.endpoints import ROUTES, Verb
from cnllm.gateway.limits.book import KeyBook, open_book
from cnllm.protocols import PROTOCOLS, server_api, server_codec

from .support import Upstream, say
from .test_deploy import balancer
from .test_keys_http import requests
from .test_keys_machines import make_key, serve
from .test_keys_machines import store as redis_url  # noqa: F401 — a fixture

MODEL, FORBIDDEN = "here/priced", "here/forbidden"
OPERATOR = "the-key-of-the-operator"
Json = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A route: how to ask for it, and the status for each kind of client. Where `over` is 200 it is not counted."""

    method: str
    path: str
    body: Json | None = None
    none: int = 401
    wrong: int = 401
    other: int = 200
    forbidden: int = 200
    over: int = 200
    mine: int = 200


def generating(verb: Verb) -> list[Row]:
    """The rows of a verb with a body, one for each path that a wire has."""
    rows = []
    for protocol in PROTOCOLS:
        paths = server_codec(protocol).paths if verb == "generate" else server_api(protocol).count_paths
        body = requests("MODEL")[protocol][1]
        rows += [Row("POST", path.format(model="MODEL"), body, forbidden=403, over=429) for path in paths]
    return rows


TABLE: dict[str, list[Row]] = {
    "generate": generating("generate"),
    "count": generating("count"),
    "models": [Row("GET", "/v1/models"), Row("HEAD", "/models"), Row("GET", "/v1beta/models")],
    "model": [
        Row(method, f"{start}/models/MODEL", forbidden=403)
        for method, start in itertools.product(("GET", "HEAD"), ("/v1", "/v1beta", ""))
    ],
    "response": [Row("GET", "/v1/responses/RESPONSE", other=404), Row("HEAD", "/responses/RESPONSE", other=404)],
    "response-items": [Row(method, "/v1/responses/RESPONSE/input_items", other=404) for method in ("GET", "HEAD")],
    "delete-response": [Row("DELETE", "/v1/responses/RESPONSE", other=404)],
    "cancel-response": [Row("POST", "/v1/responses/RESPONSE/cancel", other=400, forbidden=400, over=400, mine=400)],
    "request": [Row("GET", "/v1/requests/REQUEST", other=404), Row("HEAD", "/v1/requests/REQUEST", other=404)],
    "alive": [Row(method, "/healthz", None, 200, 200) for method in ("GET", "HEAD", "POST")],
    "ready": [Row("GET", "/readyz", None, 200, 200)],
    "metrics": [Row("GET", "/metrics", None, 401, 401, 401, 401, 401, 401)],
    "ui": [Row("GET", "/ui/requests", None, 401, 401, 401, 401, 401, 401)],
}  # fmt: skip
UNKNOWN = [
    Row(method, path, {} if method == "POST" else None, other=404, forbidden=404, over=404, mine=404)
    for method, path in itertools.product(
        ("GET", "POST", "OPTIONS"), ("/v1/messages/batches", "/v1/embeddings", "/v1/requests", "/nothing")
    )
]  # fmt: skip


def test_every_route_has_a_row() -> None:
    assert set(TABLE) == set(ROUTES) == set(get_args(Verb))
    for verb, route in ROUTES.items():
        methods = {row.method for row in TABLE[verb]}
        assert set(route.methods) <= methods, verb


class Gateway:
    """A gateway that runs, the book of its keys, and what its owner made there."""

    def __init__(self, url: str, book: KeyBook) -> None:
        self.http = httpx.Client(base_url=url, timeout=60)
        self.book = book
        self._names = (f"{secrets.token_hex(4)}-{number}" for number in itertools.count())  # tests share the server
        self.mine = self.key(models=(MODEL,))

    def key(self, **limits: Any) -> str:
        return make_key(self.book, f"key-{next(self._names)}", **limits)

    def send(self, row: Row, key: str | None, model: str = MODEL, **names: str) -> httpx.Response:
        """Send the request of a row."""
        path, body = row.path.replace("MODEL", model), row.body
        for name, value in names.items():
            path = path.replace(name, value)
        if body is not None and "model" in body:
            body = {**body, "model": model}
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return self.http.request(row.method, path, json=body, headers=headers)

    def made(self) -> dict[str, str]:
        """Make a response, and return its id and that of the request."""
        row = Row("POST", *requests(MODEL)["openai-responses"])
        response = self.send(row, self.mine)
        assert response.status_code == 200, response.text
        return {"RESPONSE": response.json()["id"], "REQUEST": response.headers["x-request-id"]}


@contextlib.contextmanager
def running(store: str, folder: Path, workers: int, has_nginx: bool) -> Iterator[tuple[Gateway, Upstream]]:
    upstream = Upstream(say("Hello"))
    options = ["--workers", str(workers), "--ui", "--admin-key", OPERATOR, "--log", str(folder / "log")]
    if has_nginx:
        options += ["--public", "--trusted-proxy", "127.0.0.1"]
    process: subprocess.Popen[str]
    process, url = serve(store, folder, upstream.url, *options)
    book = open_book(store)
    assert book is not None
    try:
        with balancer(folder, url) if has_nginx else contextlib.nullcontext(url) as front:
            gateway = Gateway(front, book)
            with gateway.http:
                yield gateway, upstream
    finally:
        process.kill() if workers == 1 else process.terminate()
        process.communicate()
        upstream.shutdown()
        upstream.server_close()
        book.close()


@dataclass
class Walk:
    """A walk through the table, with keys that may not do what they ask for."""

    gateway: Gateway
    upstream: Upstream
    workers: int

    def __post_init__(self) -> None:
        gateway = self.gateway
        self.names = gateway.made()
        self.other = gateway.key()
        self.blind = gateway.key(models=("nothing/*",))
        self.full = gateway.key(rpm=1)
        assert gateway.send(TABLE["generate"][0], self.full).status_code == 200

    def refused(self, verb: str, row: Row) -> None:
        """Nobody gets more than the row says, and no refused request reaches the endpoint."""
        calls = len(self.upstream.bodies)
        is_own = verb in ROUTES and ROUTES[verb].named == "own"
        clients = {"none": None, "wrong": "sk-cnllm-" + "x" * 43, "forbidden": self.blind, "over": self.full}
        for kind, key in clients.items():
            expected = getattr(row, kind)
            if is_own and expected == 200:
                expected = 404  # it is another tenant's
            answer = self.gateway.send(row, key, **self.names)
            assert answer.status_code == expected, (verb, row, kind, answer.text)
            assert expected != 429 or int(answer.headers["retry-after"]) >= 1
        if row.forbidden == 403:
            assert self.gateway.send(row, self.gateway.mine, FORBIDDEN).status_code == 403, (verb, row)
        assert len(self.upstream.bodies) == calls
        answer = self.gateway.send(row, self.other, **self.names)
        assert answer.status_code == row.other, (verb, row, answer.text)

    def allowed(self, verb: str, row: Row) -> None:
        """The client to whom it belongs gets it. With several workers the entry of a request is kept by one of them."""
        names = self.gateway.made() if verb == "delete-response" else self.names
        for _ in range(40 if self.workers > 1 and verb == "request" else 1):
            answer = self.gateway.send(row, self.gateway.mine, **names)
            if answer.status_code == row.mine:
                break
        assert answer.status_code == row.mine, (verb, row, answer.text)

    def other_methods(self, verb: Verb, row: Row) -> None:
        """Another method needs a key, too, and is none of the route."""
        for method in ("OPTIONS", "PUT"):
            odd = Row(method, row.path)
            assert self.gateway.send(odd, None, **self.names).status_code == 401
            assert self.gateway.send(odd, self.gateway.mine, **self.names).status_code == 405


def walk(store: str, folder: Path, workers: int, *, has_nginx: bool = False) -> None:
    with running(store, folder, workers, has_nginx) as (gateway, upstream):
        visit = Walk(gateway, upstream, workers)
        for verb, rows in {**TABLE, "unknown": UNKNOWN}.items():
            for row in rows:
                if verb in ROUTES and ROUTES[verb].scope == "operator":
                    assert gateway.send(row, OPERATOR).status_code == 200
                visit.refused(verb, row)
                visit.allowed(verb, row)
        for verb, route in ROUTES.items():
            if route.methods:
                visit.other_methods(verb, TABLE[verb][0])
        mine = {"authorization": f"Bearer {gateway.mine}"}
        shown = gateway.http.get("/v1/models", headers=mine).json()["data"]
        assert [card["id"] for card in shown] == [MODEL]
        upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13",
                   "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}  # fmt: skip
        assert gateway.http.get("/v1/responses", headers=upgrade).status_code in (401, 403)


def test_the_table_holds_with_a_file(tmp_path: Path) -> None:
    walk(f"sqlite:{tmp_path / 'gateway.db'}", tmp_path, 1)


def test_the_table_holds_with_redis(redis_url: str, tmp_path: Path) -> None:  # noqa: F811
    walk(redis_url, tmp_path, 1)


@pytest.mark.long
def test_the_table_holds_with_three_workers_and_a_file(tmp_path: Path) -> None:
    walk(f"sqlite:{tmp_path / 'gateway.db'}", tmp_path, 3)


@pytest.mark.long
def test_the_table_holds_with_three_workers_and_redis(redis_url: str, tmp_path: Path) -> None:  # noqa: F811
    walk(redis_url, tmp_path, 3)


@pytest.mark.long
def test_the_table_holds_behind_nginx(tmp_path: Path) -> None:
    walk(f"sqlite:{tmp_path / 'gateway.db'}", tmp_path, 1, has_nginx=True)
