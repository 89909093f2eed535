"""Register the server side of OpenAI chat completions (https://platform.openai.com/docs/api-reference/chat)."""

from __future__ import annotations

from cnllm.protocols import ServerCodec
from cnllm.protocols.chat.server_decode import read_request, read_search
from cnllm.protocols.chat.server_encode import PREFIX, REPLY_KEYS, StreamEncoder, media_keys, takes_raw, write_reply
from cnllm.protocols.server_interface import BatchForm, ServerApi, openai_error, write_model, write_models

__all__ = ["API", "CODEC"]

CODEC = ServerCodec(
    read_request=read_request,
    read_search=read_search,
    write_reply=write_reply,
    write_error=openai_error,
    stream=StreamEncoder,
    result_names=True,
    feature_headers=("openai-beta",),
    paths=("/v1/chat/completions", "/chat/completions"),
    dialects=True,
    takes_raw=takes_raw,
    takes_media=lambda media: bool(media_keys([media])),
    takes_blocks=False,
    media_keys=frozenset(["id", "expires_at", "transcript"]),
    reply_keys=REPLY_KEYS,
    other_form="openai-responses",
    batch=BatchForm(job={"object": "batch"}, page={"object": "list"}, total="request_counts.total"),
)

API = ServerApi(
    write_models=write_models,
    write_model=write_model,
    id_prefix=PREFIX,
    ping=b": ping\n\n",
    overflow_message=(
        "This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} tokens."
        " Please reduce the length of the messages."
    ),
    overflow_code="context_length_exceeded",
    counts_both=True,
)
