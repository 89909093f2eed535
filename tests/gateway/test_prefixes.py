"""A request that does not begin as the one before it gets a note with its cost, and calls stand in the logs."""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from cnllm import Registry
from cnllm.cli.commands.logs_cache import cache_report
from cnllm.errors import CnllmError
from cnllm.estimates.cache_loss import loss_cost
from cnllm.estimates.money import UNITS
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.server import running
from cnllm.registry.flags import Price
from cnllm.store import Store
from cnllm.store.call_log import CallLog
from cnllm.store.prefix import fingerprint, first_break, first_loss
from cnllm.types import Cost

from .support import KEY, THOUGHT, call, error, say
from .test_ends import until
from .test_http import serving
from .test_keys_http import requests, setting

Json = dict[str, Any]
MODEL = "zai/glm-4.6"


def tool(name: str, about: str = "") -> Json:
    function = {"name": name, "description": about, "parameters": {"type": "object", "properties": {}}}
    return {"type": "function", "function": function}


def turns(*texts: str, system: str = "You are kind.") -> list[Json]:
    """A history: the texts of the user, with an answer between each two."""
    history: list[Json] = [{"role": "system", "content": system}]
    for text in texts:
        history += [{"role": "user", "content": text}, {"role": "assistant", "content": f"About {text}."}]
    return history[:-1]


class Asked:
    """A simulated gateway, and the notes on its requests."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def notes(self, messages: list[Json], tools: list[Json] | None = None, model: str = MODEL) -> list[Json]:
        body = {"model": model, "messages": messages, **({"tools": tools} if tools else {})}
        answer = self.http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        shown = self.http.get(f"/v1/requests/{answer.headers['x-request-id']}").json()["notes"]
        return [note for note in shown if note["code"] == "prefix-broken"]


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    with (
        running(Gateway(Registry.load(), simulate=True, keys=[KEY])) as url,
        httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=30) as http,
    ):
        yield Asked(http)


TOOLS = [tool("read", "Reads a file. " * 200), tool("write")]


def test_a_conversation_that_only_grows_has_no_note(asked: Asked) -> None:
    for length in range(1, 5):
        assert asked.notes(turns(*"abcd"[:length]), TOOLS) == []


@pytest.mark.parametrize(
    ("system", "tools", "place", "cause"),
    [
        ("You are kind.", [*TOOLS, tool("grep")], "tools[2] (grep)", "it was added"),
        ("You are kind.", TOOLS[:1], "tools[1] (write)", "it was removed"),
        ("You are kind.", [TOOLS[1], TOOLS[0]], "tools[0] (write)", "the order changed"),
        ("You are kind.", [tool("read", "It is 12:04."), TOOLS[1]], "tools[0] (read)", "it changed"),
        ("It is 12:04.", TOOLS, "messages[0] (system)", "it changed"),
    ],
)
def test_what_changed_is_named_with_its_cost(
    asked: Asked, system: str, tools: list[Json], place: str, cause: str
) -> None:
    first = f"{place} {cause}"
    assert asked.notes(turns(first), TOOLS) == []
    (note,) = asked.notes(turns(first, "more", system=system), tools)
    assert note["said"] == f"{place}: {cause}"
    found = re.fullmatch(
        r"about ([\d,]+) tokens cannot come from the endpoint's cache; that costs about ([\d.]+) USD", note["did"]
    )
    assert found is not None
    tokens, price = int(found[1].replace(",", "")), Registry.load().resolve(MODEL).flags.price
    cost = loss_cost(tokens, price)
    assert cost is not None
    assert abs(Decimal(found[2]) - cost.amount) <= Decimal("0.005")
    assert asked.notes(turns(first, "more", "again", system=system), tools) == [], "it is told once"


def test_a_request_beside_the_conversation_breaks_nothing(asked: Asked) -> None:
    assert asked.notes(turns("fix the bug"), TOOLS) == []
    assert asked.notes(turns("fix the bug", system="Write a title."), None) == []
    assert asked.notes(turns("fix the bug", "now"), TOOLS) == []
    assert asked.notes(turns("fix the bug", "now"), TOOLS, "zai/glm-4.7") == [], "another model has another cache"


def test_a_model_whose_thoughts_go_says_so(tmp_path: Path) -> None:
    rules = 'reasoning = { mode = "always", fields = ["reasoning_content"], replay = "since-user" }\n'
    with setting(tmp_path, call("Rome"), say("Sunny"), say("Yes"), more=f'[models."here/thinks"]\n{rules}') as here:
        key = here.key()
        history: list[Json] = [{"role": "user", "content": "Weather in Rome?"}]
        offered = [tool("weather")]

        def ask(*more: Json) -> tuple[Json, list[Json]]:
            history.extend(more)
            body = {"model": "here/thinks", "messages": history, "tools": offered}
            answer = here.http.post("/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"})
            url = f"/v1/requests/{answer.headers['x-request-id']}"
            shown = here.http.get(url, headers={"authorization": f"Bearer {key}"}).json()["notes"]
            message = answer.json()["choices"][0]["message"]
            history.append(message)
            return message, [note for note in shown if note["code"] == "prefix-broken"]

        message, _ = ask()
        id = message["tool_calls"][0]["id"]
        assert ask({"role": "tool", "tool_call_id": id, "content": "sun"})[1] == []
        assert THOUGHT in json.dumps(here.upstream.bodies[1], ensure_ascii=False)
        (note,) = ask({"role": "user", "content": "Sure?"})[1]
        assert THOUGHT not in json.dumps(here.upstream.bodies[2], ensure_ascii=False)
        assert note["said"] == "messages[1] (assistant): the model's thoughts go at each new message of the user"
        assert note["did"].endswith("what that costs is unknown"), "the model has no price"


def test_two_ways_to_compare_agree() -> None:
    bodies = [
        {"tools": TOOLS[:n], "messages": [*turns(*texts, system=system)]}
        for n in (0, 1, 2)
        for system in ("a", "b")
        for texts in (("x",), ("x", "y"), ("z", "y"))
    ]
    for old in bodies:
        for new in bodies:
            broken, loss = first_break(old, new), first_loss(fingerprint(old), fingerprint(new))
            assert (broken is None) is (loss is None)
            if broken is not None and loss is not None:
                assert broken.where.startswith(loss.where)
                assert 0 < loss.share <= 1


def test_an_unknown_price_is_not_zero() -> None:
    assert loss_cost(1000, None) is None
    assert loss_cost(1000, Price(currency="USD", input=1.0, output=1.0)) is None, "the price from the cache"
    assert loss_cost(1_000_000, Price(currency="USD", input=1.0, output=2.0, cached=0.25)) == Cost(
        Decimal("0.75"), "USD"
    )


# ── the logs ──────────────────────────────────────────────────────────────────
def rows_of(path: Path, count: int) -> Any:
    """The conversations in the file, once it has so many turns."""
    last = time.monotonic() + 20
    while time.monotonic() < last:
        with Store.open(path) as store:
            records = list(store.records())
            if sum(len(record.turns) for record in records) >= count:
                return records
        time.sleep(0.02)
    raise AssertionError(f"{path} has fewer than {count} turns")


def test_calls_of_clients_stand_in_the_logs_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "conversations.db"
    with setting(tmp_path, say("A secret answer"), call_log=CallLog(str(path))) as here:
        key = here.key("agent")
        for texts, offered in (
            (("a secret question",), TOOLS),
            (("a secret question", "more"), [*TOOLS, tool("grep")]),
        ):
            body = {"model": "here/priced", "messages": turns(*texts), "tools": offered}
            headers = {"authorization": f"Bearer {key}"}
            assert here.http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
        assert here.http.post("/v1/chat/completions", json={"model": "no/such"}, headers=headers).status_code >= 400
        (record,) = rows_of(path, 2)
        first, second = record.turns
        assert (first.tag, first.client, first.state, first.messages) == ("agent", "openai-chat", "done", [])
        assert first.cost is not None
        assert first.reply_id
        assert first.reply_model
        assert second.prefix.broken.where == "tools[2] (grep)"
        assert second.prefix.cost is None or second.prefix.cost.amount > 0
        report = cache_report(record)
        assert [request.kept for request in report.requests] == [None, False]
        assert report.requests[1].lost == second.prefix.lost > 0
        assert report.unstored == 0
        with Store.open(path) as store:
            (row,) = store.costs("tag").rows
            assert (row.label, row.turns, row.exact) == ("agent", 2, True)
            assert row.cost[0].amount == first.cost.amount * 2
            assert store.conversation("last", with_calls=True).id == record.id
            with pytest.raises(CnllmError, match="no conversation yet"):
                store.conversation("last")
            with pytest.raises(CnllmError, match="its words are not stored"):
                store.conversation(record.id[:6])
    content = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"secret" not in content
    assert key.encode() not in content


def test_an_endpoint_that_quotes_the_prompt_brings_no_word_into_the_logs(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "conversations.db"
    refusal = error(400, "cannot process 'a secret question'")
    with setting(tmp_path, refusal, call_log=CallLog(str(path))) as here:
        headers = {"authorization": f"Bearer {here.key('agent')}"}
        body = {"model": "here/priced", "messages": turns("a secret question")}
        assert "secret" in here.http.post("/v1/chat/completions", json=body, headers=headers).text
        (record,) = rows_of(path, 1)
    failure = record.turns[0].error
    assert failure is not None
    assert (failure.type, failure.message) == ("BadRequest", "HTTP 400")
    assert b"secret" not in b"".join(file.read_bytes() for file in path.parent.iterdir())


def test_a_client_gives_its_calls_a_tag(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "conversations.db"
    with setting(tmp_path, say("Hello"), call_log=CallLog(str(path))) as here:
        key = here.key("agent", budgets={"CNY": 10 * UNITS})
        sent = requests()
        for tag, (url, body) in zip(("nightly", "夜间".encode(), "nightly", None), sent.values(), strict=True):
            headers: Json = {"authorization": f"Bearer {key}", **({} if tag is None else {"x-cnllm-tag": tag})}
            assert here.http.post(url, json=body, headers=headers).status_code == 200
        for wrong in ("x\u200by".encode(), "a\tb", "x" * 101, b"\x85"):
            headers = {"authorization": f"Bearer {key}", "x-cnllm-tag": wrong}
            for protocol, (url, body) in sent.items():
                refused = here.http.post(url, json=body, headers=headers)
                assert (refused.status_code, "x-cnllm-tag" in refused.text) == (400, True), protocol
        assert len(here.upstream.headers) == len(sent)
        for headers, body in zip(here.upstream.headers, here.upstream.bodies, strict=True):
            assert not {"x-cnllm-tag", "nightly"} & {str(text).lower() for pair in headers.items() for text in pair}
            assert "nightly" not in str(body)
        records = rows_of(path, 4)
    assert sorted(turn.tag for record in records for turn in record.turns) == ["agent", "nightly", "nightly", "夜间"]
    assert {turn.key for record in records for turn in record.turns} == {"agent"}
    with Store.open(path) as store:
        assert {row.label: row.turns for row in store.costs("tag").rows} == {"nightly": 2, "夜间": 1, "agent": 1}
        (row,) = store.costs("key").rows
        assert (row.label, row.turns, row.exact) == ("agent", 4, True)


def test_a_request_that_was_not_sent_costs_nothing_in_the_logs(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "conversations.db"
    with setting(tmp_path, say("Hello"), call_log=CallLog(str(path))) as here:
        key = here.key(budgets={"CNY": 2 * UNITS // 100})
        here.upstream.shutdown()
        here.upstream.server_close()
        for stream in (False, True):
            assert here.send(key, requests(stream=stream)["openai-chat"]).status_code == 502
            assert here.send(key, requests(stream=stream, limit=8000)["openai-chat"]).status_code == 429
        rows_of(path, 4)
    with Store.open(path) as store:
        (row,) = store.costs("key").rows
        assert (row.turns, row.exact, row.cost) == (4, True, [])


def test_calls_go_to_the_file_that_stands_there_now(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "conversations.db"
    with setting(tmp_path, say("Hello"), call_log=CallLog(str(path))) as here:
        headers = {"authorization": f"Bearer {here.key()}"}
        body = {"model": "here/priced", "messages": turns("Hi")}
        for _ in range(2):
            assert here.http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
            rows_of(path, 1)
            shutil.move(path.parent, tmp_path / f"moved {len(list(tmp_path.iterdir()))}")


def test_a_file_that_cannot_be_written_costs_no_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "conversations.db").mkdir()
    calls = CallLog(str(tmp_path / "conversations.db"), "cnllm.gateway")
    with caplog.at_level(logging.WARNING, "cnllm.gateway"), setting(tmp_path, say("Hello"), call_log=calls) as here:
        headers = {"authorization": f"Bearer {here.key()}"}
        body = {"model": "here/priced", "messages": turns("Hi")}
        for _ in range(20):
            assert here.http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
    lines = [record for record in caplog.records if "calls cannot be logged" in record.getMessage()]
    assert len(lines) == 1, "one warning a minute"
    assert lines[0].exc_info is None


def test_calls_that_were_lost_are_counted_once_the_file_can_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "conversations.db"
    path.mkdir()
    calls = CallLog(str(path), "cnllm.gateway")

    def lines(words: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if words in record.getMessage()]

    with caplog.at_level(logging.WARNING, "cnllm.gateway"), setting(tmp_path, say("Hello"), call_log=calls) as here:
        headers = {"authorization": f"Bearer {here.key()}"}
        body = {"model": "here/priced", "messages": turns("Hi")}
        for _ in range(5):
            assert here.http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
        until(lambda: bool(lines("calls cannot be logged")))
        path.rmdir()
        assert here.http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
        until(lambda: bool(lines("calls are logged again")))
    (line,) = lines("calls are logged again")
    lost = int(line.rpartition(" ")[2])
    assert lost > 0
    rows_of(path, 6 - lost)


@pytest.mark.parametrize(
    ("arguments", "mode", "is_written"), [((), "on", True), (("--no-log-calls",), "on", False), ((), "off", False)]
)
def test_the_operator_turns_the_log_of_calls_off(
    arguments: tuple[str, ...], mode: str, is_written: bool, tmp_path: Path
) -> None:
    env = {"XDG_DATA_HOME": str(tmp_path), "CNLLM_LOG": mode}
    with serving("--simulate", "--key", KEY, "--store", "memory:", *arguments, env=env) as (_, url):
        headers = {"authorization": f"Bearer {KEY}"}
        body = {"model": MODEL, "messages": turns("Hi")}
        assert httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers).status_code == 200
    path = tmp_path / "cnllm" / "conversations.db"
    assert path.exists() is is_written
    if is_written:
        assert [turn.origin for record in rows_of(path, 1) for turn in record.turns] == ["simulated"]
