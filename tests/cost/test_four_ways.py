"""A bill is the same figure for a client, a gateway's budget, a batch below a cap, and `cnllm logs cost`.

All rows of the table go over real sockets to one endpoint. A complete cost is the same figure four times; budgets and
caps round it up to a billionth. An incomplete one has the same amount and missing parts in the client and the logs, and
budgets and caps charge the most that it can be, or the reservation.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

import cnllm.batch
from cnllm import AsyncClient, Client, Cost, Model, Registry
from cnllm.estimates.money import UNITS, units_of
from cnllm.estimates.worst_case import assume_price, worst_case
from cnllm.gateway.access import digest
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.limits.book import open_book
from cnllm.gateway.limits.keys import KeyRecord, new_key
from cnllm.gateway.server import running
from cnllm.registry.flags import Price
from cnllm.store.call_log import CallLog

from .bills import BILLS
from .replies import Made
from .server import Endpoint
from .test_bills import Figure, expected, facts

KEY = "sk-the-key-of-the-endpoint-0123"
LIMIT = 4096
PROTOCOLS = ("openai-chat", "openai-responses", "anthropic-messages", "gemini")
ASSUMED = Price(currency="USD", input=3.0, output=15.0)


class Row(NamedTuple):
    """A bill of the table. `figure` is what its cost must be; None where nothing of it is known."""

    id: str
    name: str
    made: Made
    figure: Figure | None

    @property
    def prompt(self) -> str:
        """The text that tells the endpoint which row is wanted."""
        return f"row-{self.id}"


ROWS = [Row(str(number), name, made, expected(*rest)) for number, (name, made, *rest) in enumerate(BILLS)]


class World(NamedTuple):
    """An endpoint that has all rows, a registry that knows it, and the file of the logs."""

    endpoint: Endpoint
    registry: Registry
    folder: Path

    def model(self, row: Row) -> Model:
        """The model of a row on its wire."""
        return self.registry.resolve(row.name, protocol=row.made.protocol)

    def charge(self, row: Row, client: Client) -> int:
        """What budgets and caps must charge, in units."""
        if row.figure is not None and row.figure[2] is not None:
            return units_of(row.figure[2])
        plan = client.plan(self.model(row), row.prompt, max_tokens=LIMIT, stream=False)
        reserved = worst_case(plan).cost
        if reserved is None:
            reserved = worst_case(assume_price(plan, ASSUMED)).cost
        assert reserved is not None
        return reserved

    def logged(self, prefix: str) -> dict[str, dict[str, Any]]:
        """The costs that `cnllm logs cost` prints for each tag with a prefix."""
        arguments = ("logs", "cost", "--by", "tag", "--json")
        done = subprocess.run([sys.executable, "-m", "cnllm", *arguments], capture_output=True, check=True, timeout=120)
        rows = json.loads(done.stdout)["rows"]
        return {row["label"].removeprefix(prefix): row for row in rows if row["label"].startswith(prefix)}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("four-ways")
    with Endpoint({row.id: [row.made] for row in ROWS}) as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CNLLM_DATA_DIR", str(folder / "data"))
        tables = []
        for provider in sorted({row.name.partition("/")[0] for row in ROWS}):
            url = f'base_url = "{endpoint.url}/{provider}/v1"\n'
            tables.append(f"[providers.{provider}]\n{url}")
            tables += [f'[providers.{provider}.on."{protocol}"]\n{url}' for protocol in PROTOCOLS]
        path = folder / "providers.toml"
        path.write_text("\n".join(tables), encoding="utf-8")
        yield World(endpoint, Registry.load(path), folder)


def logged_figure(row: dict[str, Any]) -> tuple[Decimal, tuple[str, ...]] | None:
    """The amount and the missing parts of a line of `cnllm logs cost`; None where nothing is known."""
    assert row["exact"] is (bool(row["cost"]) and row["cost"][0]["complete"]), row
    if not row["cost"]:
        return None
    (cost,) = row["cost"]
    return Decimal(cost["amount"]), tuple(cost["missing"])


def wanted(row: Row) -> tuple[Decimal, tuple[str, ...]] | None:
    """What client and logs must say of a row."""
    return None if row.figure is None else row.figure[:2]


def test_the_client_and_the_logs(world: World) -> None:
    """Whole and streamed, from the library, with a row as the tag of its two calls."""

    def ask(row: Row) -> tuple[Cost | None, Cost | None]:
        model = world.model(row)
        whole = client.call(model, row.prompt, max_tokens=LIMIT, tag=f"client {row.id}")
        with client.stream(model, row.prompt, max_tokens=LIMIT, tag=f"client {row.id}") as stream:
            return whole.cost, stream.reply.cost

    with Client(world.registry, api_key=KEY, log_calls=True) as client, ThreadPoolExecutor(4) as threads:
        costs = list(threads.map(ask, ROWS))
    logged = world.logged("client ")
    for row, both in zip(ROWS, costs, strict=True):
        assert [facts(cost) for cost in both] == [row.figure, row.figure], (row.name, row.prompt)
        entry, figure = logged[row.id], wanted(row)
        assert entry["turns"] == 2
        twice = None if figure is None else (2 * figure[0], figure[1])
        assert logged_figure(entry) == twice, (row.name, row.prompt)


def test_the_budgets_of_a_gateway_and_its_logs(world: World) -> None:
    """Each row has a key of its own, and asks with a tag."""
    url = f"sqlite:{world.folder / 'gateway.db'}"
    book, gateway_book = open_book(url), open_book(url)
    assert book is not None
    keys = {row.id: new_key() for row in ROWS}
    budgets = {"USD": 1_000_000 * UNITS, "CNY": 1_000_000 * UNITS}
    assumed = ("USD", 3.0, 15.0)
    for row in ROWS:
        record = KeyRecord(f"key {row.id}", time.time(), budgets=budgets, assumed_price=assumed)
        book.add(digest(keys[row.id]), record)
    models = {f"m{row.id}": f"{row.name}?protocol={row.made.protocol}" for row in ROWS}
    client = AsyncClient(world.registry, api_key=KEY, log_calls=False)
    gateway = Gateway(
        world.registry,
        client=client,
        models=models,
        keys=(),
        key_book=gateway_book,
        call_log=CallLog(),
        store="memory:",
    )
    with running(gateway) as address, httpx.Client(base_url=address, timeout=60) as http:

        def ask(row: Row) -> int:
            body = {"model": f"m{row.id}", "messages": [{"role": "user", "content": row.prompt}], "max_tokens": LIMIT}
            headers = {"authorization": f"Bearer {keys[row.id]}", "x-cnllm-tag": f"gateway {row.id}"}
            return http.post("/v1/chat/completions", json=body, headers=headers).status_code

        with ThreadPoolExecutor(4) as threads:
            assert set(threads.map(ask, ROWS)) == {200}
    spent = {use.record.name: sum(use.spent.values()) for use in book.uses()}
    book.close()
    logged = world.logged("gateway ")
    with Client(world.registry, api_key=KEY, log_calls=False) as plain:
        for row in ROWS:
            assert spent[f"key {row.id}"] == world.charge(row, plain), (row.name, row.prompt, row.figure)
            assert logged_figure(logged[row.id]) == wanted(row), (row.name, row.prompt)


def test_a_batch_below_a_cap_and_its_logs(world: World) -> None:
    """The rows of each model on each wire are one batch."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in ROWS:
        groups.setdefault((row.name, row.made.protocol), []).append(row)
    with Client(world.registry, api_key=KEY, log_calls=False) as plain:
        for number, rows in enumerate(groups.values()):
            model, tag = world.model(rows[0]), f"batch {number}"
            currency = (model.flags.price.currency if model.flags.price is not None else None) or "USD"
            requests = [{"id": row.id, "prompt": row.prompt, "max_tokens": LIMIT} for row in rows]
            report = cnllm.batch.run(
                requests,
                model,
                out=world.folder / f"out{number}.jsonl",
                max_cost=1_000_000,
                currency=currency,
                assume_price=ASSUMED,
                registry=world.registry,
                api_keys=[KEY],
                log_calls=True,
                tag=tag,
            )
            assert report.done == len(rows)
            assert report.cost is not None
            bounded = [row for row in rows if row.figure is not None and row.figure[2] is not None]
            charges = sum(world.charge(row, plain) for row in bounded)
            # A cap learns how long requests are, so that it reserves no more for the others than at the start.
            others = [row for row in rows if row not in bounded]
            least = sum(units_of(row.figure[0]) for row in others if row.figure is not None)
            most = sum(world.charge(row, plain) for row in others)
            assert least <= units_of(report.cost) - charges <= most, (model.name, model.protocol)
            assert bool(others) is (units_of(report.cost) > charges), "the reservation is charged"
    logged = world.logged("batch ")
    for number, rows in enumerate(groups.values()):
        figures = [row.figure for row in rows if row.figure is not None]
        entry = logged[str(number)]
        assert entry["turns"] == len(rows)
        (cost,) = entry["cost"]
        missing = {name for figure in figures for name in figure[1]}
        missing |= {"request"} if len(figures) < len(rows) else set()
        assert Decimal(cost["amount"]) == sum((figure[0] for figure in figures), Decimal(0)), rows[0].name
        assert set(cost["missing"]) == missing, rows[0].name
