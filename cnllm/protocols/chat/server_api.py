"""Write lists of models, pings and error messages of OpenAI's APIs (https://platform.openai.com/docs/api-reference)."""

from __future__ import annotations

from cnllm.protocols.server_interface import ServerApi, write_model, write_models

__all__ = ["API"]


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
