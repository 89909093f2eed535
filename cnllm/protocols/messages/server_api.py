"""Write lists of models, counts of tokens and error messages of Anthropic Messages (https://docs.claude.com/en/api)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cnllm.protocols.server_interface import ModelCard, ServerApi, query_number
from cnllm.types import Reasoning

__all__ = ["API"]

_PAGE = 20  # models of a page where the client names no number


def _write_models(cards: Sequence[ModelCard], query: Mapping[str, str]) -> dict[str, Any]:
    """Return a page of the list of models: after or before an id."""
    names = [card.name for card in cards]
    limit = min(max(query_number(query, "limit", _PAGE), 1), 1000)
    start, end = 0, len(cards)
    if (after := query.get("after_id")) in names:
        start = names.index(after) + 1
    if (before := query.get("before_id")) in names:
        end = names.index(before)
        page = cards[max(start, end - limit) : end]
    else:
        page = cards[start : start + limit]
    return {
        "data": [_write_model(card) for card in page],
        "first_id": page[0].name if page else None,
        "last_id": page[-1].name if page else None,
        "has_more": end - start > limit,  # in the direction in which the client goes
    }


def _write_model(card: ModelCard) -> dict[str, Any]:
    """Return a model."""
    return {"type": "model", "id": card.name, "display_name": card.name, "created_at": "1970-01-01T00:00:00Z"}


API = ServerApi(
    write_models=_write_models,
    write_model=_write_model,
    read_count=lambda body: {"max_tokens": 1, **body},  # a request to count has none
    write_count=lambda tokens: {"input_tokens": tokens},
    id_prefix="msg_",
    count_paths=("/v1/messages/count_tokens",),
    listing_header="anthropic-version",
    ping=b'event: ping\ndata: {"type": "ping"}\n\n',
    overflow_message="prompt is too long: {tokens} tokens > {limit} maximum",
    overloaded_status=529,
    budget_status=402,
    estimates_input=True,
    token_parts=(Reasoning,),
    token_beside_text=True,
)
