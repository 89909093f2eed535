"""Report which requests of a conversation could be read from the endpoint's prefix cache."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cnllm.store.prefix import PrefixBreak, changed_parameters, first_break

if TYPE_CHECKING:
    from cnllm.store.records import RecordedConversation, RecordedTurn

__all__ = ["CacheReport", "RequestReport", "cache_report"]


class RequestReport(Struct, frozen=True, kw_only=True):
    """A request, compared with the last one before it to the same model.

    `kept`: its beginning is that request; null for the first one. `input` and `cached` are the tokens of the whole
    turn, at its last request. null is unknown.
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


class CacheReport(Struct, frozen=True, kw_only=True):
    """The requests of a conversation. `unstored` counts turns without stored requests."""

    conversation: str
    requests: list[RequestReport]
    unstored: int


def cache_report(record: RecordedConversation) -> CacheReport:
    """Compare each request of a conversation with the last one before it to the same model."""
    previous: dict[tuple[str, str], tuple[int, dict[str, Any], str]] = {}
    reports: list[RequestReport] = []
    for turn in record.turns:
        exchanges = list(_answered(turn))
        for position, entry in enumerate(exchanges, 1):
            request, when = entry["request"], str(entry.get("when", ""))
            body = request["body"]
            key = (str(request.get("url")), str(body.get("model")))
            last = previous.get(key)
            broken = first_break(last[1], body) if last is not None else None
            is_end = position == len(exchanges) and turn.usage is not None
            reports.append(
                RequestReport(
                    turn=turn.number,
                    request=len(reports) + 1,
                    model=turn.model,
                    compared_with=last[0] if last is not None else None,
                    kept=None if last is None else broken is None,
                    broken=broken,
                    parameters=changed_parameters(last[1], body) if last is not None else [],
                    gap=_seconds(last[2], when) if last is not None else None,
                    input=turn.usage.input if is_end and turn.usage is not None else None,
                    cached=turn.usage.cached if is_end and turn.usage is not None else None,
                )
            )
            previous[key] = len(reports), body, when
    return CacheReport(
        conversation=record.id, requests=reports, unstored=sum(not turn.exchanges for turn in record.turns)
    )


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
