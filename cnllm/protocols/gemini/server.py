"""Register the server side of Gemini generateContent (https://ai.google.dev/api).

The model and whether to stream are in the URL's path. Decoding accepts both spellings of the protocol's JSON
mapping: `generationConfig` and `generation_config`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cnllm.protocols import ServerCodec
from cnllm.protocols.gemini.server_decode import read_request, read_search
from cnllm.protocols.gemini.server_encode import REPLY_KEYS, StreamEncoder, takes_count, write_error, write_reply
from cnllm.protocols.reply_fields import TokenField
from cnllm.protocols.server_interface import BatchForm, ModelCard, ServerApi, query_number
from cnllm.types import Reasoning, Text, ToolCall

__all__ = ["API", "CODEC"]

_PAGE = 50  # models of a page where the client names no number
_METHODS = ["generateContent", "streamGenerateContent", "countTokens"]
_TOKEN = TokenField("gemini", frozenset([Reasoning, Text, ToolCall]), ("thoughtSignature",), is_bytes=True)

CODEC = ServerCodec(
    takes_media=lambda media: True,
    takes_count=takes_count,
    reply_keys=REPLY_KEYS,
    read_request=read_request,
    read_search=read_search,
    write_reply=write_reply,
    write_error=write_error,
    stream=StreamEncoder,
    result_names=True,
    whole_calls=True,
    takes_raw=lambda call, request: False,
    token=_TOKEN,
    paths=tuple(
        f"/{version}/models/{{model}}:{method}"
        for version in ("v1beta", "v1")
        for method in ("generateContent", "streamGenerateContent")
    ),
    json_mode=("generationConfig.responseMimeType", "application/json"),
    seal_example=lambda token, text: {"thoughtSignature": token},
    late_seals=True,
    batch=BatchForm(prefix="batches/", iso_times=True),
)


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
    limits = {"inputTokenLimit": card.input, "outputTokenLimit": card.output}
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
    events_query=("alt", "sse"),  # google.api_core.rest_streaming reads the other form
)
