"""Register the server side of Anthropic Messages."""

from __future__ import annotations

from cnllm.protocols import ServerCodec
from cnllm.protocols.messages.server_decode import read_request, read_search
from cnllm.protocols.messages.server_encode import StreamEncoder, write_error, write_reply
from cnllm.protocols.reply_fields import token_reader, token_writer
from cnllm.protocols.server_interface import BatchForm
from cnllm.types import Reasoning

__all__ = ["CODEC"]

_PROTOCOL = "anthropic-messages"

CODEC = ServerCodec(
    read_request=read_request,
    read_search=read_search,
    write_reply=write_reply,
    write_error=write_error,
    stream=StreamEncoder,
    bearer=True,
    one_block=True,
    read_token=token_reader(_PROTOCOL, [Reasoning], "signature", "data"),
    write_token=token_writer(_PROTOCOL, [Reasoning], "signature"),
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
