"""Register the client side of Anthropic Messages."""

from cnllm.protocols import Wire
from cnllm.protocols.messages.client_decode import decode_chunk, fast_decoder
from cnllm.protocols.messages.client_encode import encode_body, takes_medium

__all__ = ["WIRE"]

_FILE_PARTS = frozenset(["document", "image"])
_BODY_KEYS = (
    "cache_control container context_management diagnostics inference_geo max_tokens mcp_servers "
    "messages metadata model output_config output_format service_tier speed stop_sequences stream "
    "system temperature thinking tool_choice tools top_k top_p user_profile_id"
)
WIRE = Wire(
    encode_body=encode_body,
    decode_chunk=decode_chunk,
    turns="messages",
    fast_decoder=fast_decoder,
    separate_system=(None, "any", "first"),
    takes_medium=takes_medium,
    file_parts=_FILE_PARTS,
    body_keys=frozenset(_BODY_KEYS.split()),
)
