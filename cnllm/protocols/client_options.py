"""Mark the options of a request that mean something on the client's own protocol only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cnllm.types.client_data import ClientData
from cnllm.types.web_search import WebSearch

__all__ = ["client_options"]


def client_options(
    options: Mapping[str, Any],
    protocol: str,
    feature_headers: Iterable[str],
    headers: Mapping[str, str] | None,
    read_search: Callable[[Mapping[str, Any]], WebSearch | None],
) -> dict[str, Any]:
    """Return the options, with the headers that ask for features of the protocol.

    Other keys of the body, these headers, and tools that are no functions become `ClientData`, which has the web search
    that `read_search` finds in them.
    """
    out = dict(options)
    if "extra_body" in out:
        out["extra_body"] = ClientData(protocol, out["extra_body"], read_search(out["extra_body"]))
    if headers:
        values = {str(name).lower(): value for name, value in headers.items()}
        if features := {name: values[name] for name in feature_headers if values.get(name)}:
            out["extra_headers"] = ClientData(protocol, features)
    if "tools" in out:
        out["tools"] = [
            tool if _is_function(tool) else ClientData(protocol, tool, read_search(tool)) for tool in out["tools"]
        ]
    return out


def _is_function(tool: Mapping[str, Any]) -> bool:
    """Whether a tool is a function. A tool that a vendor executes may have the form of one, under a type of its own."""
    return "function" in tool and tool.get("type", "function") == "function"
