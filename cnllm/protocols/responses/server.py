"""Register the server side of OpenAI Responses."""

from __future__ import annotations

from typing import Any

from cnllm.protocols import ServerCodec
from cnllm.protocols.reply_fields import token_reader, token_writer
from cnllm.protocols.responses.server_decode import read_request, read_search
from cnllm.protocols.responses.server_encode import StreamEncoder, takes_media, token_fields, write_reply
from cnllm.protocols.server_interface import BatchForm, openai_error
from cnllm.types import Reasoning

__all__ = ["CODEC"]

_PROTOCOL = "openai-responses"


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
    read_token=token_reader(_PROTOCOL, [Reasoning], "encrypted_content"),
    write_token=token_writer(_PROTOCOL, [Reasoning], "encrypted_content", token_fields),
    feature_headers=("openai-beta",),
    paths=("/v1/responses", "/responses"),
    json_mode=("text.format.type", "json_object"),
    seal_example=_seal_example,
    takes_media=takes_media,
    batch=BatchForm(job={"object": "batch"}, page={"object": "list"}, total="request_counts.total"),
)
