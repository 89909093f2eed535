"""Write lists of models, pings and error messages of OpenAI Responses."""

from __future__ import annotations

from cnllm.protocols.server_interface import ModelCard, ServerApi
from cnllm.types import Reasoning

__all__ = ["API"]


def _write_model(card: ModelCard) -> dict[str, object]:
    """Return a model."""
    return {"id": card.name, "object": "model", "created": 0, "owned_by": card.provider}


API = ServerApi(
    write_models=lambda cards, query: {"object": "list", "data": [_write_model(card) for card in cards]},
    write_model=_write_model,
    write_count=lambda tokens: {"object": "response.input_tokens", "input_tokens": tokens},
    count_paths=("/v1/responses/input_tokens",),
    id_prefix="resp_",
    kept_replies="/responses",
    ping=b": ping\n\n",
    overflow_message="Your input exceeds the context window of this model. Please adjust your input and try again.",
    overflow_code="context_length_exceeded",
    token_parts=(Reasoning,),
)
