"""Build requests from messages, and read replies from bytes. The engine does no I/O, and has no keys and no clock.

plan = engine.build_request(model, messages, stream=False, **options)
reply = engine.parse_response(model, status, headers, content, plan=plan)
parser = engine.StreamParser(model, plan=plan)

For a server of any of the protocols:

request = engine.decode_request(protocol, body)
body = engine.encode_reply(protocol, reply); notes = engine.reply_notes(protocol, reply)
writer = engine.StreamWriter(protocol, id=…, model=…)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cnllm.engine.decode.parser import StreamParser, parse_response
from cnllm.engine.encode.build import build_request
from cnllm.engine.encode.plan import Plan

if TYPE_CHECKING:
    from cnllm.protocols.reply_notes import reply_notes
    from cnllm.protocols.server import StreamWriter, decode_request, encode_error, encode_reply
    from cnllm.protocols.server_interface import error_status

__all__ = [
    "Plan",
    "StreamParser",
    "StreamWriter",
    "build_request",
    "decode_request",
    "encode_error",
    "encode_reply",
    "error_status",
    "parse_response",
    "reply_notes",
]

_MODULES = {"error_status": "server_interface", "reply_notes": "reply_notes"}


def __getattr__(name: str) -> Any:
    """Load a name of the server's side at its first use: a client needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"cnllm.protocols.{_MODULES.get(name, 'server')}"), name)
    return value
