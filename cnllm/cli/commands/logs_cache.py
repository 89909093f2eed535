"""Define `cnllm logs cache`: where the requests of a conversation broke the endpoint's prefix cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from cnllm.cli import completion, options
from cnllm.cli.output import answer, stdio
from cnllm.store.records import sum_by_currency

if TYPE_CHECKING:
    from cnllm.cli.cache_report import CacheReport, RequestReport

__all__ = ["cache"]

_LONG_GAP = 300.0  # seconds; the shortest-lived caches forget after five minutes


@click.command(
    cls=options.Command, epilog=options.examples("cnllm logs cache", "cnllm logs cache 3f2a --json | jq .requests")
)
@click.argument("ident", metavar="[ID]", default="last", shell_complete=completion.complete_conversations)
@options.as_json("the comparison of each request")
def cache(ident: str, *, as_json: bool) -> None:
    """Name what broke the cache in a conversation.

    It is the first message that differed between two requests.
    An endpoint reads from its cache only what begins byte for byte as an earlier request did, and tokens from the cache
    often cost a tenth. Each request is compared with the last one before it to the same model.
    A break costs the tokens behind it: at the price of input, less that of the cache.
    """
    from cnllm.cli.cache_report import cache_report
    from cnllm.cli.prices import price_lookup
    from cnllm.estimates.cache_loss import loss_cost
    from cnllm.store import Store

    with Store.open() as store:
        (record,) = store.records([store.conversation(ident, with_calls=True).id], exchanges=True)
    price = price_lookup()
    report = cache_report(record, lambda model, tokens: loss_cost(tokens, price(model)))
    if as_json:
        answer.print_json(report)
    elif not report.requests:
        stdio.print_line(f"no request of conversation {report.conversation} is stored; cnllm logs on stores them")
    else:
        answer.print_message("\n".join(_lines(report)))
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
