"""Register the server side of Anthropic Messages (https://docs.claude.com/en/api/messages)."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from cnllm.protocols import ServerCodec
from cnllm.protocols.messages.server_decode import read_request, read_search
from cnllm.protocols.messages.server_encode import REPLY_KEYS, THREAD_CODE, StreamEncoder, write_error, write_reply
from cnllm.protocols.reply_fields import TokenField
from cnllm.protocols.server_interface import BatchForm, ModelCard, ServerApi, query_number
from cnllm.types import Reasoning

__all__ = ["API", "CODEC"]

_TOKEN = TokenField("anthropic-messages", frozenset([Reasoning]), ("signature", "data"))
_PAGE = 20  # models of a page where the client names no number

CODEC = ServerCodec(
    read_request=read_request,
    read_search=read_search,
    write_reply=write_reply,
    write_error=write_error,
    stream=StreamEncoder,
    bearer=True,
    one_block=True,
    takes_raw=lambda call, request: False,
    reply_keys=REPLY_KEYS,
    token=_TOKEN,
    feature_headers=("anthropic-beta",),
    paths=("/v1/messages",),
    seal_example=lambda token, text: {"signature": token},
    batch=BatchForm(
        job={"type": "message_batch"},
        prefix="msgbatch_",
        iso_times=True,
        served="succeeded",
        refused="errored",
        remaining="request_counts.processing",
        results_url="results_url",
    ),
)


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
    stage = "retired" if card.is_retired else "deprecated" if card.shutdown is not None else "active"
    return {
        "type": "model",
        "id": card.name,
        "display_name": card.name,
        "created_at": _time(card.released) or "1970-01-01T00:00:00Z",  # as the protocol has an unknown one
        "lifecycle": stage,
        "deprecated_at": None,
        "retires_at": _time(card.shutdown),
        "line": None,
        "max_input_tokens": card.input,
        "max_tokens": card.output,
        "capabilities": None,
    }


def _time(day: datetime.date | None) -> str | None:
    """Return the beginning of a day as a time."""
    return None if day is None else f"{day}T00:00:00Z"


API = ServerApi(
    write_models=_write_models,
    write_model=_write_model,
    read_count=lambda body: {"max_tokens": 1, **body},  # a request to count has none
    write_count=lambda tokens: {"input_tokens": tokens},
    id_prefix="msg_",
    count_paths=("/v1/messages/count_tokens",),
    listing_header="anthropic-version",
    ping=b'event: ping\ndata: {"type": "ping"}\n\n',
    unserved={"thread": THREAD_CODE},
    overflow_message="prompt is too long: {tokens} tokens > {limit} maximum",
    overloaded_status=529,
    budget_status=402,
    estimates_input=True,
    token_parts=(Reasoning,),
    token_beside_text=True,
)
