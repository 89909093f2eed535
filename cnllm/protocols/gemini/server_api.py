"""Write lists of models, counts of tokens and error messages of Gemini (https://ai.google.dev/api)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cnllm.protocols.server_interface import ModelCard, ServerApi, query_number
from cnllm.types import ToolCall

__all__ = ["API"]

_PAGE = 50  # models of a page where the client names no number
_METHODS = ["generateContent", "streamGenerateContent", "countTokens"]


def _write_models(cards: Sequence[ModelCard], query: Mapping[str, str]) -> dict[str, Any]:
    """Return a page of the list of models."""
    size = min(max(query_number(query, "pageSize", _PAGE), 1), 1000)
    first = query_number(query, "pageToken", 0)
    page: dict[str, Any] = {"models": [_write_model(card) for card in cards[first : first + size]]}
    if first + size < len(cards):
        page["nextPageToken"] = str(first + size)
    return page


def _write_model(card: ModelCard) -> dict[str, Any]:
    """Return a model."""
    out: dict[str, Any] = {
        "name": f"models/{card.name}",
        "displayName": card.name,
        "supportedGenerationMethods": _METHODS,
    }
    limits = {"inputTokenLimit": card.context, "outputTokenLimit": card.output}
    return out | {name: value for name, value in limits.items() if value is not None}


def _read_count(body: dict[str, Any]) -> dict[str, Any]:
    """Return the request whose length a client asks for: it stands in the body, or is the body."""
    request = body.get("generateContentRequest", body.get("generate_content_request"))
    return request if isinstance(request, dict) else body


API = ServerApi(
    write_models=_write_models,
    write_model=_write_model,
    read_count=_read_count,
    write_count=lambda tokens: {"totalTokens": tokens},
    id_prefix="",
    count_paths=("/v1beta/models/{model}:countTokens",),
    listing_header="x-goog-api-key",
    ping=b"\n",
    overflow_message="The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit}).",
    token_parts=(ToolCall,),
)
