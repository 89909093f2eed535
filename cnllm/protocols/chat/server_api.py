"""Write lists of models, pings and error messages of OpenAI's APIs (https://platform.openai.com/docs/api-reference)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cnllm.protocols.server_interface import ModelCard, ServerApi

__all__ = ["API", "write_model", "write_models"]


def write_models(cards: Sequence[ModelCard], query: Mapping[str, str]) -> dict[str, Any]:
    """Return a list of models."""
    return {"object": "list", "data": [write_model(card) for card in cards]}


def write_model(card: ModelCard) -> dict[str, Any]:
    """Return a model."""
    return {"id": card.name, "object": "model", "created": 0, "owned_by": card.provider}


API = ServerApi(
    write_models=write_models,
    write_model=write_model,
    id_prefix="chatcmpl-",
    ping=b": ping\n\n",
    overflow_message=(
        "This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} tokens."
        " Please reduce the length of the messages."
    ),
    overflow_code="context_length_exceeded",
)
