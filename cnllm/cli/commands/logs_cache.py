"""Define `cnllm logs cache`: where the requests of a conversation broke the endpoint's prefix cache."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import click
from msgspec import Struct

from cnllm.cli import completion, options
from cnllm.cli.output import stdio, stdout
from cnllm.store.prefix import changed_parameters, fingerprint, first_break, first_loss, lost_tokens
from cnllm.store.records import PrefixBreak, RecordedConversation, RecordedTurn, sum_by_currency
from cnllm.types import Cost, Usage

__all__ = [
    "CacheReport",
    "cache",
    "cache_report",
]


_LONG_GAP = 300.0  # seconds; the shortest-lived caches forget after five minutes

LossCost = Callable[[str, int], Cost | None]
"""Returns how much more some tokens of a model cost than from the cache; None where a price is unknown."""


@click.command(cls=options.Command)
@click.argument("ident", metavar="[ID]", default="last", shell_complete=completion.complete_conversations)
@options.as_json("the comparison of each request")
def cache(ident: str, *, as_json: bool) -> None:
    """Name what broke the cache in a conversation.

    It is the first message that differed between two requests.
    An endpoint reads from its cache only what begins byte for byte as an earlier request did, and tokens from the cache
    often cost a tenth. Each request is compared with the last one before it to the same model.
    A break costs the tokens behind it: at the price of input, less that of the cache.

    Examples:
      cnllm logs cache
      cnllm logs cache 3f2a --json | jq .requests
    """
    from cnllm.cli.prices import price_lookup
    from cnllm.estimates.cache_loss import loss_cost
    from cnllm.store import Store

    with Store.open() as store, store.file.reading():  # another process may delete it
        (record,) = store.records([store.conversation(ident, with_calls=True).id], exchanges=True)
    price = price_lookup()
    report = cache_report(record, lambda model, tokens: loss_cost(tokens, price(model)))
    if as_json:
        stdout.print_json(report)
    elif not report.requests:
        stdio.print_line(f"no request of conversation {report.conversation} is stored; cnllm logs on stores them")
    else:
        stdout.print_message("\n".join(_lines(report)))
        if report.unstored:
            stdio.print_line(f"turns whose requests are not stored: {report.unstored}")


def _lines(report: CacheReport) -> Iterator[str]:
    from cnllm.estimates.cache_loss import loss_text

    for request in report.requests:
        head = f"request {request.request} (turn {request.turn}, {request.model})"
        if request.compared_with is None:
            yield f"{head}: the first to this model{_read(request)}"
        elif request.broken is None:
            yield f"{head}: begins as request {request.compared_with}{_read(request)}"
        else:
            yield f"{head}: differs from request {request.compared_with} at {request.broken.where}{_read(request)}"
            yield f"  {request.broken.cause}"
            if request.broken.before is not None:
                yield f"  before: {_one_line(request.broken.before)}"
            if request.broken.after is not None:
                yield f"  after:  {_one_line(request.broken.after)}"
            if request.lost is not None:
                yield f"  {loss_text(request.lost, request.cost)}"
        if request.parameters:
            yield f"  other parameters, which may matter to the cache: {', '.join(request.parameters)}"
        if request.kept and not request.cached and request.gap is not None and request.gap > _LONG_GAP:
            yield f"  {request.gap / 60:.0f} minutes lie between them; a cache may forget after five"
    broken = sum(request.broken is not None for request in report.requests)
    total = _total(report)
    compared = sum(request.compared_with is not None for request in report.requests)
    yield f"conversation {report.conversation}: {broken} of {compared} later requests broke the prefix{total}"


def _total(report: CacheReport) -> str:
    """Return what all of it costs, by currency, with a ? where some of it is unknown; empty where nothing broke."""
    from cnllm.estimates.cache_loss import short_amount

    costs = [request.cost for request in report.requests if request.lost is not None]
    if not costs:
        return ""
    sums = sorted(sum_by_currency(costs), key=lambda cost: cost.currency)
    amounts = [f"{short_amount(cost.amount)} {cost.currency}" for cost in sums]
    return ": " + " + ".join([*amounts, *(["?"] if None in costs else [])])


def _read(request: RequestReport) -> str:
    if request.input is None:
        return ""
    cached = "unknown" if request.cached is None else f"{request.cached:,}"
    return f"; {cached} of {request.input:,} input tokens of the turn came from the cache"


def _one_line(text: str) -> str:
    return text.replace("\n", "⏎")


# ── the report ───────────────────────────────────────────────────────────────


class RequestReport(Struct, frozen=True, kw_only=True):
    """A request, compared with the last one before it to the same model.

    `kept`: its beginning is that request; null for the first one. `input` and `cached` are the tokens of the whole
    turn, at its last request. `lost` is about the number of tokens that no cache could serve, because the prefix broke,
    and `cost` how much more they cost. null is unknown.
    """

    turn: int
    request: int
    model: str
    compared_with: int | None
    kept: bool | None
    broken: PrefixBreak | None
    parameters: list[str]
    gap: float | None
    input: int | None
    cached: int | None
    lost: int | None = None
    cost: Cost | None = None


class CacheReport(Struct, frozen=True, kw_only=True):
    """The requests of a conversation. `unstored` counts turns without stored requests."""

    conversation: str
    requests: list[RequestReport]
    unstored: int


def cache_report(record: RecordedConversation, loss_cost: LossCost = lambda model, tokens: None) -> CacheReport:
    """Compare each request of a conversation with the last one before it to the same model."""
    previous: dict[tuple[str, str], _ComparedRequest] = {}
    reports: list[RequestReport] = []
    for turn in record.turns:
        if (prefix := turn.prefix) is not None:  # the gateway has compared it
            last = previous.get(("", turn.model)) if prefix.kept is not None else None
            own = previous["", turn.model] = _ComparedRequest(len(reports) + 1, turn.began, turn.usage)
            found = {"broken": prefix.broken, "lost": prefix.lost, "cost": prefix.cost}
            reports.append(_report(turn, own, last, kept=prefix.kept, parameters=[], **found))
            continue
        exchanges = list(_select_answered(turn))
        for position, entry in enumerate(exchanges, 1):
            request, usage = entry["request"], turn.usage if position == len(exchanges) else None
            body = request["body"]
            key = (str(request.get("url")), str(body.get("model")))
            last = previous.get(key)
            own = previous[key] = _ComparedRequest(len(reports) + 1, str(entry.get("when", "")), usage, body)
            if last is None:
                reports.append(_report(turn, own, None, kept=None, broken=None, parameters=[]))
                continue
            broken = first_break(last.body, body)
            lost = None if broken is None else _estimate_loss(last.body, body, last.usage.input if last.usage else None)
            cost = None if lost is None else loss_cost(turn.model, lost)
            changed = changed_parameters(last.body, body)
            same = broken is None
            reports.append(_report(turn, own, last, kept=same, broken=broken, parameters=changed, lost=lost, cost=cost))
    unstored = sum(not turn.exchanges and turn.prefix is None for turn in record.turns)
    return CacheReport(conversation=record.id, requests=reports, unstored=unstored)


class _ComparedRequest(Struct, frozen=True):
    """A request: its number, its time, the usage of the turn that it ends, and its body."""

    number: int
    when: str
    usage: Usage | None
    body: dict[str, Any] = {}


def _report(turn: RecordedTurn, own: _ComparedRequest, last: _ComparedRequest | None, **more: Any) -> RequestReport:
    """Return the report on a request; `last` is the one that it is compared with."""
    return RequestReport(
        turn=turn.number,
        request=own.number,
        model=turn.model,
        compared_with=None if last is None else last.number,
        gap=None if last is None else _seconds(last.when, own.when),
        input=None if own.usage is None else own.usage.input,
        cached=None if own.usage is None else own.usage.cached,
        **more,
    )


def _estimate_loss(before: dict[str, Any], after: dict[str, Any], tokens: int | None) -> int | None:
    """Return about how many tokens of a request stand behind the first difference; `tokens` is its input, if known."""
    parts = fingerprint(before)
    loss = first_loss(parts, fingerprint(after))
    return None if loss is None else lost_tokens(parts.size, tokens, loss.share)


def _select_answered(turn: RecordedTurn) -> Iterator[dict[str, Any]]:
    """Yield the exchanges that an endpoint answered. A refused request fills no cache."""
    for entry in turn.exchanges:
        request, response = entry.get("request"), entry.get("response")
        if isinstance(request, dict) and isinstance(request.get("body"), dict) and isinstance(response, dict):
            status = response.get("status")
            if isinstance(status, int) and status < 400:
                yield entry


def _seconds(before: str, after: str) -> float | None:
    try:
        return (datetime.datetime.fromisoformat(after) - datetime.datetime.fromisoformat(before)).total_seconds()
    except (ValueError, TypeError):
        return None
