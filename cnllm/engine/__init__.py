"""The engine: requests out of messages, replies out of bytes. No I/O, no keys, no clock on the way.

plan = engine.build_request(model, messages, stream=False, **options)
reply = engine.parse_response(model, status, headers, content, plan=plan)
parser = engine.StreamParser(model, plan=plan)

And for those who stand on the other side, as a server of any of the protocols:

request = engine.decode_request(protocol, body)
body = engine.encode_reply(protocol, reply)
writer = engine.StreamWriter(protocol, id=…, model=…)
"""

from cnllm.engine.decode.parser import StreamParser, parse_response
from cnllm.engine.encode.build import build_request
from cnllm.engine.encode.plan import Plan
from cnllm.protocols.server import StreamWriter, decode_request, encode_error, encode_reply

__all__ = [
    "Plan",
    "StreamParser",
    "StreamWriter",
    "build_request",
    "decode_request",
    "encode_error",
    "encode_reply",
    "parse_response",
]
