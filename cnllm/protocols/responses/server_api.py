"""Write lists of models, pings and error messages of OpenAI Responses."""

from __future__ import annotations

from cnllm.protocols.server_interface import ServerApi, write_model, write_models
from cnllm.types import Reasoning

__all__ = ["API"]


API = ServerApi(
    write_models=write_models,
    write_model=write_model,
    write_count=lambda tokens: {"object": "response.input_tokens", "input_tokens": tokens},
    count_paths=("/v1/responses/input_tokens",),
    id_prefix="resp_",
    kept_replies="/responses",
    ping=b": ping\n\n",
    overflow_message="Your input exceeds the context window of this model. Please adjust your input and try again.",
    overflow_code="context_length_exceeded",
    token_parts=(Reasoning,),
)
