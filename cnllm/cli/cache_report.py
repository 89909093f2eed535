"""Report which requests of a conversation could be read from the endpoint's prefix cache."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cnllm.store.prefix import PrefixBreak, changed_parameters, fingerprint, first_break, first_loss, lost_tokens
from cnllm.types import Cost

if TYPE_CHECKING:
    from cnllm.store.records import RecordedConversation, RecordedTurn
    from cnllm.types import Usage

__all__ = ["CacheReport", "RequestReport", "cache_report"]

LossCost = Callable[[str, int], Cost | None]
"""Returns how much more some tokens of a model cost than from the cache; None where a price is unknown."""


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
    previous: dict[tuple[str, str], tuple[int, dict[str, Any], str, int | None]] = {}
    compared: dict[str, tuple[int, str]] = {}  # of a gateway's clients
    reports: list[RequestReport] = []
    for turn in record.turns:
        if turn.prefix is not None:
            reports.append(_gateway_report(turn, len(reports) + 1, compared))
            continue
        exchanges = list(_answered(turn))
        for position, entry in enumerate(exchanges, 1):
            request, when = entry["request"], str(entry.get("when", ""))
            body = request["body"]
            key = (str(request.get("url")), str(body.get("model")))
            last = previous.get(key)
            broken = first_break(last[1], body) if last is not None else None
            is_end = position == len(exchanges) and turn.usage is not None
            usage = turn.usage if is_end else None
            lost = None if last is None or broken is None else _lost(last[1], body, last[3])
            cost = None if lost is None else loss_cost(turn.model, lost)
            found = {"broken": broken, "lost": lost, "cost": cost}
            changed = changed_parameters(last[1], body) if last is not None else []
            earlier = None if last is None else (last[0], last[2])
            kept = None if last is None else broken is None
            reports.append(
                _report(turn, len(reports) + 1, usage, earlier, when, kept=kept, parameters=changed, **found)
            )
            previous[key] = len(reports), body, when, usage.input if usage is not None else None
    unstored = sum(not turn.exchanges and turn.prefix is None for turn in record.turns)
    return CacheReport(conversation=record.id, requests=reports, unstored=unstored)


def _gateway_report(turn: RecordedTurn, number: int, compared: dict[str, tuple[int, str]]) -> RequestReport:
    """Return the report on a request of a gateway's client, which the gateway has compared."""
    prefix = turn.prefix
    assert prefix is not None
    last = compared.get(turn.model) if prefix.kept is not None else None
    compared[turn.model] = number, turn.began
    found = {"broken": prefix.broken, "lost": prefix.lost, "cost": prefix.cost}
    return _report(turn, number, turn.usage, last, turn.began, kept=prefix.kept, parameters=[], **found)


def _report(
    turn: RecordedTurn, number: int, usage: Usage | None, last: tuple[int, str] | None, when: str, **more: Any
) -> RequestReport:
    """Return the report on a request; `last` is the number and the time of the one that it is compared with."""
    return RequestReport(
        turn=turn.number,
        request=number,
        model=turn.model,
        compared_with=None if last is None else last[0],
        gap=None if last is None else _seconds(last[1], when),
        input=None if usage is None else usage.input,
        cached=None if usage is None else usage.cached,
        **more,
    )


def _lost(before: dict[str, Any], after: dict[str, Any], tokens: int | None) -> int | None:
    """Return about how many tokens of a request stand behind the first difference; `tokens` is its input, if known."""
    parts = fingerprint(before)
    loss = first_loss(parts, fingerprint(after))
    return None if loss is None else lost_tokens(parts.size, tokens, loss.share)


def _answered(turn: RecordedTurn) -> Iterator[dict[str, Any]]:
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
