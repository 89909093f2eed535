"""`order = "measured"` in a route of the gateway: what is chosen for whom, where the reason stands, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from client.peer import Peer, reply
from client.test_measured_routes import RIGHT, TOOL, calling, report

from cnllm import AsyncClient, Registry
from cnllm.errors import RegistryError
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.model_names import ModelNames
from cnllm.gateway.monitoring.recent import Recent
from cnllm.gateway.server import running
from cnllm.registry.read import builtin_path, read
from cnllm.registry.trusted_files import trust
from cnllm.registry_files.check import check
from cnllm.types.policy import Retry

from .limits_support import cny
from .support import error, say
from .test_keys_http import requests, setting

KEY = "the-key-of-the-client"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE_KEY", "sk-one-0123456789")
    monkeypatch.setenv("TWO_KEY", "sk-two-9876543210")


def registry_of(folder: Path, one: str, two: str, rules: str = 'order = "measured"') -> Registry:
    path = folder / "routes.toml"
    path.write_text(
        f'[providers.one]\nprotocol = "openai-chat"\nbase_url = "{one}"\nkeys = ["ONE_KEY"]\n[models."one/m"]\n'
        f'[providers.two]\nprotocol = "openai-chat"\nbase_url = "{two}"\nkeys = ["TWO_KEY"]\n[models."two/m"]\n'
        f'[gateway.routes.best]\ntargets = ["one/m", "two/m"]\n{rules}\n',
        encoding="utf-8",
    )
    trust(path)
    return Registry([read(builtin_path(), builtin=True), read(path)])


def ask(http: httpx.Client, text: str, model: str = "best") -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": text}], "tools": [TOOL]}
    return http.post("/v1/chat/completions", json=body)


def test_the_route_leaves_a_host_that_loses_calls_and_the_page_says_why(tmp_path: Path) -> None:
    with Peer(calling("{}")) as one, Peer(RIGHT) as two:
        registry = registry_of(tmp_path, one.url, two.url)
        client = AsyncClient(registry, retry=Retry(attempts=1))
        gateway = Gateway(registry, client=client, keys=[KEY], recent=Recent())
        with (
            running(gateway) as url,
            httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=30) as http,
        ):
            answers = [ask(http, f"Look {number}") for number in range(24)]
            assert [answer.status_code for answer in answers] == [200] * 24
            models = [answer.headers["x-cnllm-model"] for answer in answers]
            assert models[0] == "one/m"
            assert models[-6:].count("two/m") >= 5
            entry = http.get(f"/ui/requests/{answers[-1].headers['x-request-id']}").json()["entry"]
            (note,) = [note for note in entry["notes"] if note["code"] == "route-measured"]
            assert note["said"].count("turns failed") == 2
            assert " is asked first: " in note["did"]
            shown = http.get("/ui/routes")
            assert shown.status_code == 200
            (choice,) = shown.json()
            assert choice["first"] == answers[-1].headers["x-cnllm-model"]
            assert note["did"] == f"{choice['first']} is asked first: {choice['reason']}"
            left, kept = choice["scores"]
            assert (left["name"], kept["name"], kept["failed"]) == ("one/m", "two/m", 0)
            assert left["loss"] > kept["loss"]
            assert left["failed"] == left["turns"] >= 4
            page = httpx.get(f"{url}/ui/routes", headers={"authorization": "Bearer another"})
            assert page.status_code == 401
            gateway.use(registry_of(tmp_path, one.url, two.url))  # SIGHUP: what was seen of the hosts stays
            again = [ask(http, f"See {number}").headers["x-cnllm-model"] for number in range(5)]
            assert again.count("two/m") >= 4


def test_a_key_gets_the_best_of_the_hosts_that_it_may_use_and_no_other(tmp_path: Path) -> None:
    """By the report the second host is the better one; a budget is reserved for one model."""
    figures = json.loads(Path(report(tmp_path, one=60, two=0)).read_text(encoding="utf-8"))
    for host, name in zip(figures["figures"], ("here/priced", "here/dollars"), strict=True):
        host["host"] = name
    path = tmp_path / "hosts.json"
    path.write_text(json.dumps(figures), encoding="utf-8")
    route = (
        f'\n[gateway.routes.best]\ntargets = ["here/priced", "here/dollars"]\norder = "measured"\nreport = "{path}"\n'
    )
    limits: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["dollars", "priced"]),
        ({"models": ("here/priced",)}, ["priced"]),
        ({"models": ("here/dollars",)}, ["dollars"]),
        ({"budgets": {"CNY": cny("1")}}, ["priced"]),
        ({"budgets": {"CNY": cny("1"), "USD": cny("1")}}, ["dollars"]),
        ({"models": ("here/unpriced",)}, []),
    ]
    for index, (limit, asked) in enumerate(limits):
        with setting(tmp_path, error(503, "busy"), error(503, "busy"), say("Hello"), more=route) as here:
            here.send(here.key(f"k{index}", **limit), requests("best")["openai-chat"])
            assert [body["model"] for body in here.upstream.bodies] == asked, limit


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ('order = "best"', "order"),
        ('order = "measured"\nweights = [1, 1]', "weights exclude each other"),
        ('report = "/tmp/a.json"', "order="),
    ],
)
def test_rules_that_cannot_be_used_are_found_by_the_check_and_at_the_start(
    tmp_path: Path, rules: str, says: str
) -> None:
    with pytest.raises(RegistryError, match=says):
        ModelNames(registry_of(tmp_path, "http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1", rules))
    problems = check([str(tmp_path / "routes.toml")])
    assert any(says in str(problem) for problem in problems), problems


def test_a_report_that_is_missing_or_has_a_relative_path_stops_the_start(tmp_path: Path) -> None:
    for name, says in (("a.json", "relative path"), (str(tmp_path / "a.json"), "cannot be read: No such file")):
        registry = registry_of(
            tmp_path, "http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1", f'order = "measured"\nreport = "{name}"'
        )
        with pytest.raises(RegistryError, match=says) as caught:
            ModelNames(registry)
        assert str(caught.value.message).startswith("gateway.routes.best: ")


def test_a_route_without_an_order_says_nothing_of_one(tmp_path: Path) -> None:
    with Peer([reply()]) as one, Peer([reply()]) as two:
        registry = registry_of(tmp_path, one.url, two.url, "")
        gateway = Gateway(registry, keys=[KEY])
        with (
            running(gateway) as url,
            httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=30) as http,
        ):
            answer = ask(http, "Hi")
            assert http.get("/ui/routes", headers={"authorization": f"Bearer {KEY}"}).status_code == 404
            log = http.get(f"/v1/requests/{answer.headers['x-request-id']}").text
            assert "route-measured" not in log
