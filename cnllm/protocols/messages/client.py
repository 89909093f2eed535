"""Register the client side of Anthropic Messages."""

from cnllm.protocols import Wire
from cnllm.protocols.messages.client_decode import MessagesDecoder, fast_decoder
from cnllm.protocols.messages.client_encode import block_link, drop_idle, encode_body, takes_medium
from cnllm.types.media import NAME_KEYS, media_kind

__all__ = ["WIRE"]

WIRE = Wire(
    encode_body=encode_body,
    decoder=MessagesDecoder,
    turns="messages",
    fast_decoder=fast_decoder,
    separate_system=(None, "any", "first"),
    takes_medium=takes_medium,
    takes_name=lambda media, in_result: media_kind(media) != "image",
    file_parts=frozenset(["document", "image"]),
    list_params=("stop",),
    no_blanks=("stop",),
    tool_keys=None,
    part_keys=frozenset(["cache_control", "citations", "context", *NAME_KEYS]),
    block_link=block_link,
    carried={"container": "container.id"},
    drop_idle=drop_idle,
    model_keys=frozenset(["fallbacks"]),
    most_uses="max_uses",
    call_heads=True,
    empty_ends=frozenset(["end_turn"]),  # platform.claude.com/docs/en/build-with-claude/handling-stop-reasons
    hour_mark=b'"1h"',
)
