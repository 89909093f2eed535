"""Bound the names that clients send, before anything is looked up by one, compared with one or quoted from one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import unquote

from cnllm.gateway.failures import Failure, RequestFailed
from cnllm.protocols import PROTOCOLS, fields
from cnllm.types import Request, ToolCall

__all__ = ["LONGEST", "MOST_FIELDS", "MOST_OPTIONS", "check_body", "check_name", "check_query", "check_request"]

Kind = Literal["model", "option", "tool", "id", "header"]

LONGEST: dict[Kind, int] = {"model": 256, "option": 128, "tool": 256, "id": 512, "header": 4096}
"""The most bytes of a name, by what it names; those of an id in a path or in `previous_response_id`, too."""
MOST_OPTIONS = 200
"""The most options of a body that no protocol knows."""
MOST_FIELDS = 100
"""The most fields of a query."""

_MOST_BYTES = 4  # of a character in UTF-8
_EXCERPT_LENGTH = 40  # characters of a name that is refused


def check_name(kind: Kind, name: str, place: str) -> None:
    """Raise `RequestFailed` for a name that is too long, or that has a character nobody can print."""
    most = LONGEST[kind]
    if _is_longer(name, most):
        raise _failed(f"{place}: at most {most} bytes are allowed, and {_excerpt(name)} has more")
    if not name.isprintable() or ("%" in name and not unquote(name).isprintable()):
        raise _failed(f"{place}: {_excerpt(name)} has a control character")


def check_query(query: str) -> None:
    """Raise `RequestFailed` for a query with too many fields."""
    if query.count("&") >= MOST_FIELDS:
        raise _failed(f"the query has more than {MOST_FIELDS} fields")


def check_body(body: Mapping[str, Any]) -> None:
    """Raise `RequestFailed` for a body with too many options, or with a name of one, a model or an id out of bounds."""
    if type(model := body.get("model")) is str:
        check_name("model", model, "model")
    if type(id := body.get("previous_response_id")) is str:
        check_name("id", id, "previous_response_id")
    _check_options(body)
    for value in body.values():
        if type(value) is dict:
            _check_options(value)
    if len(body) > MOST_OPTIONS:
        known = frozenset().union(*(fields(protocol).body_keys for protocol in PROTOCOLS))
        if (count := sum(name not in known for name in body)) > MOST_OPTIONS:
            raise _failed(f"the body has {count:,} unknown options, and {MOST_OPTIONS} are allowed")


def check_request(request: Request) -> None:
    """Raise `RequestFailed` for a decoded request with names of tools or with headers that are too long."""
    if request.model:
        check_name("model", request.model, "model")
    options = request.options
    if headers := options.get("extra_headers"):
        for name, value in headers.items():
            check_name("header", value, name)
    for index, tool in enumerate(options.get("tools") or ()):
        function = tool.get("function") if type(tool) is dict or isinstance(tool, Mapping) else None
        name = function.get("name") if type(function) is dict or isinstance(function, Mapping) else None
        if type(name) is str and len(name) > LONGEST["tool"]:
            raise _long_tool(name, f"tools[{index}]")
    for index, message in enumerate(request.messages):
        if message.role == "assistant":
            for part in message.parts:
                if type(part) is ToolCall and len(part.name) > LONGEST["tool"]:
                    raise _long_tool(part.name, f"messages[{index}]: the name of a call")


def _long_tool(name: str, place: str) -> RequestFailed:
    """Return the refusal of a tool's name that is too long."""
    return _failed(f"{place}: at most {LONGEST['tool']} characters are allowed, and {_excerpt(name)} has more")


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise `RequestFailed` for the name of an option that is too long."""
    most = LONGEST["option"]
    if not options or max(map(len, options)) * _MOST_BYTES <= most:
        return
    for name in options:
        if _is_longer(name, most):
            raise _failed(f"the name of an option has at most {most} bytes, and {_excerpt(name)} has more")


def _is_longer(name: str, most: int) -> bool:
    """Whether a name has more bytes than that. A long one is not encoded first."""
    return len(name) > most or (not name.isascii() and len(name.encode("utf-8", "surrogatepass")) > most)


def _excerpt(name: str) -> str:
    """Return the beginning of a name that is refused, in ASCII."""
    return ascii(name) if len(name) <= _EXCERPT_LENGTH else f"{name[:_EXCERPT_LENGTH]!a}…"


def _failed(message: str) -> RequestFailed:
    """Return the refusal of a request."""
    return RequestFailed(Failure(400, message, "invalid_request"))
