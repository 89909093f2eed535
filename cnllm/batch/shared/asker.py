"""Ask rows in a process that shares its allowance with others: build their requests, and send them."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from cnllm.batch.controller import Controller
from cnllm.batch.lanes import Lane, open_client
from cnllm.batch.outcome import fault_outcome
from cnllm.batch.pricing import request_price
from cnllm.batch.readers.tables import columns_content
from cnllm.batch.rows import PromptTemplate, RowFault, id_digest
from cnllm.batch.sender import Sender
from cnllm.batch.shared.messages import EndpointLimits, Hello
from cnllm.batch.shared.sender import Link, PendingRow, RowSender, result_of
from cnllm.batch.shared.settings import ModelSettings
from cnllm.config.keys import find_key
from cnllm.errors import KeyMissing
from cnllm.estimates.money import units_of
from cnllm.registry.flags import Rates

__all__ = ["Asker"]


class Asker:
    """The client of one process. Raises `KeyMissing` or `Untrusted` where it has no key to send.

    `place` is what stays when its process is started again, and `link` the way to the allowance.
    """

    def __init__(self, settings: ModelSettings, place: str, link: Link) -> None:
        batch, registry = settings.batch, settings.registry()
        model = settings.model(registry)
        self._settings = settings
        self._template = None if batch.prompt is None else PromptTemplate(batch.prompt)
        columns = () if self._template is None else self._template.columns
        self.columns = ["id", settings.id_column, "prompt", "messages", *columns]
        self._price = request_price(batch, model)
        salt = settings.state or settings.run
        client = open_client(
            batch, registry, model, _key_of(settings), salt, lambda limits: self._sender.observe(limits)
        )
        self._lane = Lane(model.name, model, client, Controller())
        url, rates = self._lane.prepare("Hello", batch.options).plan.url, model.flags.rates or Rates()
        endpoint = EndpointLimits(
            f"{model.name} {url.partition('?')[0]} {settings.key_env or ''}",
            batch.concurrency,
            batch.rpm or rates.requests,
            batch.tpm or rates.tokens,
        )
        cap = None if batch.max_cost is None else units_of(batch.max_cost)
        hello = Hello(place, endpoint, settings.run, settings.state, self._price.currency, cap)
        self._sender = RowSender(self._lane, Sender(batch.attempts, self._price), hello, link)
        self.ask, self.ask_and_wait = self._sender.ask, self._sender.ask_and_wait

    def row(self, columns: dict[str, Any]) -> PendingRow | dict[str, Any]:
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
        batch = self._settings.batch
        wrong = row.prepare(self._lane, content.messages, {**batch.options, "tag": batch.tag})
        if wrong is not None:
            return result_of(fault_outcome(wrong))
        row.estimate(self._price)
        assert row.identity is not None
        row.key, row.owned = row.identity, content.id is None
        if content.id is not None:
            row.key = blake2b(id_digest(content.id) + row.identity, digest_size=16).digest()
        return row


def _key_of(settings: ModelSettings) -> str | None:
    """Return the key in the variable that the settings name; None where they name none."""
    if settings.key_env is None or settings.batch.simulate:
        return None
    key = find_key([settings.key_env])
    if key is None:
        hint = f"export {settings.key_env}=… before `ray start`, or `cnllm keys set {settings.key_env}` there"
        raise KeyMissing(f"{settings.key_env} holds no key", env=[settings.key_env], hint=hint)
    return key
