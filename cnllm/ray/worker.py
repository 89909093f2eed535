"""A worker: what Ray makes once in each of its actors, and calls with one batch after the other."""

from __future__ import annotations

import os
import socket
from collections.abc import Coroutine, Mapping
from hashlib import blake2b
from typing import Any

from cnllm.batch.controller import Controller
from cnllm.batch.lane import Lane, wrap_transport
from cnllm.batch.lanes import idempotency_header
from cnllm.batch.outcome import fault_outcome
from cnllm.batch.pricing import request_price
from cnllm.batch.rate_headers import read_limits
from cnllm.batch.readers.table import columns_content
from cnllm.batch.rows import RowFault, id_digest
from cnllm.batch.sender import Sender
from cnllm.batch.template import Template
from cnllm.client.async_client import AsyncClient
from cnllm.config.keys import find_key
from cnllm.errors import KeyMissing, Untrusted
from cnllm.estimates.money import units_of
from cnllm.ray.columns import ADDED, add_columns, as_table, read_rows, result_of
from cnllm.ray.messages import EndpointLimits, Hello
from cnllm.ray.node import node_error
from cnllm.ray.sender import PendingRow, RowSender
from cnllm.ray.settings import ModelSettings
from cnllm.registry.flags import Rates
from cnllm.transports import default_async_transport
from cnllm.types.policy import Retry

__all__ = ["Asker"]

_ONCE = Retry(attempts=1)


class Asker:
    """The client of one process. Raises `KeyMissing` or `Untrusted`, naming the node, where it has no key to send."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        batch = settings.batch
        self._template = None if batch.prompt is None else Template(batch.prompt)
        self._columns = [
            "id",
            settings.id_column,
            "prompt",
            "messages",
            *(self._template.columns if self._template else ()),
        ]
        self._registry = settings.registry()
        self._model = settings.model(self._registry)
        self._price = request_price(batch, self._model)
        self._cap = None if batch.max_cost is None else units_of(batch.max_cost)
        self._rates = self._model.flags.rates or Rates()
        self._lane = Lane(self._model.name, self._model, self._client(), Controller())
        try:
            url = self._lane.prepare("Hello", batch.options).plan.url
        except (KeyMissing, Untrusted) as error:
            raise node_error(error) from None
        self._endpoint = EndpointLimits(
            f"{self._model.name} {url.partition('?')[0]} {settings.key_env or ''}",
            batch.concurrency,
            batch.rpm or self._rates.requests,
            batch.tpm or self._rates.tokens,
        )
        self._sender = RowSender(self._lane, Sender(batch.attempts, self._price.paid), self._hello)

    def _client(self) -> AsyncClient:
        settings, batch = self._settings, self._settings.batch
        key = None
        if settings.key_env is not None and not batch.simulate:
            key = find_key([settings.key_env])
            if key is None:
                hint = f"export {settings.key_env}=… before `ray start`, or `cnllm keys set {settings.key_env}` there"
                raise node_error(KeyMissing(f"{settings.key_env} holds no key", env=[settings.key_env], hint=hint))
        transport = None
        if not batch.simulate:
            transport = wrap_transport(
                default_async_transport(),
                observe=None if self._rates.fields is None else self._observe,
                add_header=idempotency_header(self._model, settings.state or settings.run),
            )
        return AsyncClient(self._registry, transport, simulate=batch.simulate, api_key=key, retry=_ONCE)

    def _observe(self, headers: Mapping[str, str]) -> None:
        assert self._rates.fields is not None
        limits = read_limits(headers, self._rates.fields)
        self._sender.observe(limits.requests, limits.tokens, limits.pause)

    def _hello(self, committed: int) -> Hello:
        settings = self._settings
        return Hello(_place(), self._endpoint, settings.run, settings.state, self._price.currency, self._cap, committed)

    # ── batches ──────────────────────────────────────────────────────────────

    def read(self, batch: Any) -> tuple[Any, list[dict[str, Any]], list[PendingRow], list[int]]:
        """Return the table of a batch, results with those of its faulty rows, the other rows, and their places."""
        table = as_table(batch)
        for name in ADDED:
            if self._settings.prefix + name in table.column_names:
                raise ValueError(
                    f"the dataset has a column {self._settings.prefix + name} already; rename it, or let the added "
                    'columns begin with another word: prefix="answer_"'
                )
        results: list[dict[str, Any]] = []
        rows, places = [], []
        for place, columns in enumerate(read_rows(table, list(dict.fromkeys(self._columns)))):
            row = self._row(columns)
            if isinstance(row, PendingRow):
                rows.append(row)
                places.append(place)
            results.append({} if isinstance(row, PendingRow) else row)
        return table, results, rows, places

    def _row(self, columns: dict[str, Any]) -> PendingRow | dict[str, Any]:
        """Return a row to ask, or the columns of one that is no request."""
        name = self._settings.id_column
        if name in columns:
            columns = {**columns, "id": columns[name]}
        else:
            columns.pop("id", None)
        row = PendingRow()
        try:
            content = columns_content(columns, self._template)
        except RowFault as fault:
            return result_of(fault_outcome(str(fault)))
        wrong = row.prepare(self._lane, content.messages, dict(self._settings.batch.options))
        if wrong is not None:
            return result_of(fault_outcome(wrong))
        row.estimate(self._price)
        assert row.identity is not None
        row.key, row.owned = row.identity, content.id is None
        if content.id is not None:
            row.key = blake2b(id_digest(content.id) + row.identity, digest_size=16).digest()
        return row

    def ask(self, rows: list[PendingRow]) -> Coroutine[Any, Any, list[dict[str, Any]]]:
        """Ask rows; see `RowSender.ask`."""
        return self._sender.ask(rows)

    def ask_and_wait(self, rows: list[PendingRow]) -> list[dict[str, Any]]:
        """Ask rows, and wait in this thread."""
        return self._sender.ask_and_wait(rows)

    def write(self, table: Any, results: list[dict[str, Any]], places: list[int], answers: list[dict[str, Any]]) -> Any:
        """Return the table with the columns of all rows."""
        for place, answer in zip(places, answers, strict=True):
            results[place] = answer
        return add_columns(table, results, self._settings.prefix)


def _place() -> str:
    """Return what stays of a worker when its process is started again: the actor, else the process."""
    import ray

    if ray.is_initialized() and (actor := ray.get_runtime_context().get_actor_id()) is not None:
        return str(actor)
    return f"{socket.gethostname()} {os.getpid()}"
