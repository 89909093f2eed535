"""Register the server side of OpenAI Responses (https://platform.openai.com/docs/api-reference/responses)."""

from __future__ import annotations

from typing import Any

from cnllm.protocols import ServerCodec
from cnllm.protocols.reply_fields import TokenField
from cnllm.protocols.responses.server_decode import read_request, read_search
from cnllm.protocols.responses.server_encode import (
    REPLY_KEYS,
    StreamEncoder,
    takes_raw,
    unplaced_keys,
    write_reply,
)
from cnllm.protocols.responses.server_items import takes_media, token_fields
from cnllm.protocols.server_interface import BatchForm, ServerApi, openai_error, write_model, write_models
from cnllm.types import Reasoning

__all__ = ["API", "CODEC"]

_TOKEN = TokenField("openai-responses", frozenset([Reasoning]), ("encrypted_content",), base=token_fields)


def _seal_example(token: str, text: str) -> dict[str, Any]:
    """Return an item of reasoning."""
    return {
        "type": "reasoning",
        "id": f"rs_{token[:24]}",
        "summary": [{"type": "summary_text", "text": text}],
        "encrypted_content": token,
    }


CODEC = ServerCodec(
    read_request=read_request,
    read_search=read_search,
    write_reply=write_reply,
    write_error=openai_error,
    stream=StreamEncoder,
    token=_TOKEN,
    feature_headers=("openai-beta",),
    paths=("/v1/responses", "/responses"),
    json_mode=("text.format.type", "json_object"),
    seal_example=_seal_example,
    takes_media=takes_media,
    takes_raw=takes_raw,
    reply_keys=REPLY_KEYS,
    unplaced_keys=unplaced_keys,
    batch=BatchForm(job={"object": "batch"}, page={"object": "list"}, total="request_counts.total"),
)


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
    counts_both=True,
    token_parts=(Reasoning,),
)
