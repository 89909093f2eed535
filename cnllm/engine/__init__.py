"""The engine: requests out of messages, replies out of bytes. No I/O, no keys, no clock on the way.

plan = engine.build_request(model, messages, stream=False, **options)
reply = engine.parse_response(model, status, headers, content, plan=plan)
parser = engine.StreamParser(model, plan=plan)
"""

from cnllm.engine.parser import StreamParser, parse_response
from cnllm.engine.plan import Plan, build_request

__all__ = ["Plan", "StreamParser", "build_request", "parse_response"]
