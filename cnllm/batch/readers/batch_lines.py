"""Read a line of OpenAI's batch format: `custom_id`, `url` and the `body` of a request."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from cnllm.batch.rows import Content, RowFault, check_id, json_kind
from cnllm.protocols import PROTOCOLS, server_codec
from cnllm.protocols.server import decode_request

__all__ = ["batch_content"]

_DEFAULT = "/v1/chat/completions"


@cache
def _protocols() -> dict[str, str]:
    """Return the protocol of each path that names no model."""
    return {path: protocol for protocol in PROTOCOLS for path in server_codec(protocol).paths if "{" not in path}


def batch_content(value: Mapping[str, Any]) -> Content:
    """Return the request of a line. The model of its body is not used. Raises `RowFault`."""
    row_id, url, body = value["custom_id"], value.get("url", _DEFAULT), value["body"]
    check_id(row_id)
    protocol = _protocols().get(url) if isinstance(url, str) else None
    if protocol is None:
        raise RowFault(f"url {url!r} is no path of a conversation; it is one of {', '.join(_protocols())}")
    if type(body) is not dict:
        raise RowFault(f"body is {json_kind(body)}; a JSON object is expected")
    body = {name: item for name, item in body.items() if name not in ("stream", "stream_options")}
    try:
        request = decode_request(protocol, body, path=url)
    except (ValueError, TypeError) as error:
        raise RowFault(f"body: {error}") from None
    return Content(row_id, request.messages, dict(request.options))
