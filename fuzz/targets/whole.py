"""A body that is no stream, read by `engine.parse_response`: a Reply or a typed error, whatever it holds."""

from __future__ import annotations

import msgspec

from cnllm import EndpointError, Message, StreamCut, engine

from ..given import given, pack
from ..models import TOOLS, request
from ..outcome import outcome, sound
from ..simulated import packed
from ..spent import bounded
from .stream import _HEADERS, _STATUS, chosen


def check(data: bytes) -> None:
    """Check that the reply is sound, and the same when its bytes came in pieces."""
    case = given(data)
    model, body = chosen(case.which), case.payload
    status = _STATUS[case.how % len(_STATUS)]
    headers = _HEADERS[case.how // 16 % len(_HEADERS)]
    plan, tools = request(model, case.mode), TOOLS if case.mode % 8 >= 4 else None
    reply, error = None, None
    with bounded(len(body)):
        try:
            reply = engine.parse_response(model, status, headers, body, tools=tools, plan=plan)
        except (EndpointError, StreamCut) as caught:
            reply, error = caught.reply, (type(caught).__name__, caught.message)
    found = outcome(model, case.pieces(), mode=case.mode, status=status, headers=headers)
    assert (found.reply, found.error) == (reply, error)
    sound(model, found)
    if status >= 300:
        assert error is not None
        assert error[0] != "StreamCut"
    if reply is not None and error is None:
        engine.encode_reply(model.protocol, reply)  # a server passes it on
        assert Message.from_dict(msgspec.json.decode(msgspec.json.encode(reply.message.to_dict()))) == reply.message


def seeds() -> list[bytes]:
    """Return answers of the simulator as each of the models, and refusals."""
    refused = (
        b'{"error":{"message":"no","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}',
        b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}',
        b'{"error":{"code":429,"message":"Quota","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"3s"}]}}',
        b'{"code":"1113","msg":"\\u4f59\\u989d\\u4e0d\\u8db3","success":false}',
        b'{"base_resp":{"status_code":1004,"status_msg":"login fail"}}',
        b"upstream connect error",
    )
    return [*packed(stream=False), *(pack(body, which=n * 7, mode=n, how=7 + n % 3) for n, body in enumerate(refused))]
