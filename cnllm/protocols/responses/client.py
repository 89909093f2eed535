"""Register the client side of OpenAI Responses."""

from cnllm.protocols import Wire
from cnllm.protocols.responses.client_decode import decode_chunk
from cnllm.protocols.responses.client_encode import encode_body, takes_medium
from cnllm.protocols.responses.client_fast_decode import fast_decoder

__all__ = ["WIRE"]

_FILE_PARTS = frozenset(["file", "input_file"])
_BODY_KEYS = (
    "background context_management conversation include input instructions max_output_tokens "
    "max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt "
    "prompt_cache_key prompt_cache_options prompt_cache_retention reasoning safety_identifier "
    "service_tier store stream stream_options temperature text tool_choice tools top_logprobs top_p "
    "truncation user"
)
WIRE = Wire(
    encode_body=encode_body,
    decode_chunk=decode_chunk,
    turns="input",
    fast_decoder=fast_decoder,
    separate_system=("first",),
    takes_medium=takes_medium,
    file_parts=_FILE_PARTS,
    reports_length=False,
    body_keys=frozenset(_BODY_KEYS.split()),
)
