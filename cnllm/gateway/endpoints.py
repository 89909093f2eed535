"""Find the endpoint of a request: what a path and a method ask for, in which protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import unquote

from msgspec import Struct

__all__ = ["Endpoint", "client_protocol", "find_endpoint"]

Verb = Literal[
    "generate", "count", "models", "model", "response", "response-items", "delete-response", "cancel-response",
    "alive", "ready", "request",
]  # fmt: skip


class Endpoint(Struct, frozen=True):
    """What a request asks for. `name` is the model or the id in the path."""

    verb: Verb
    protocol: str
    name: str = ""


_CHAT, _MESSAGES, _GEMINI, _RESPONSES = "openai-chat", "anthropic-messages", "gemini", "openai-responses"
_GENERATE = {
    "/chat/completions": Endpoint("generate", _CHAT),
    "/responses": Endpoint("generate", _RESPONSES),
    "/messages": Endpoint("generate", _MESSAGES),
    "/messages/count_tokens": Endpoint("count", _MESSAGES),
}
_VERBS: dict[str, Verb] = {"generateContent": "generate", "streamGenerateContent": "generate", "countTokens": "count"}
_GEMINI_PATH = re.compile(r"/(?:v1|v1beta|v1alpha)/(?:models|tunedModels)/(?P<model>.+):(?P<verb>\w+)")
_RESPONSE_PATH = re.compile(r"/responses/(?P<id>[^/]+)(?P<rest>/input_items|/cancel)?")
_VERSION = re.compile(r"/(?:v1beta|v1alpha|v1)(?=/)")


def find_endpoint(method: str, path: str, headers: Mapping[str, str]) -> Endpoint | None:
    """Return the endpoint of a path, or None. A version before it (`/v1`) may be there or not.

    Lists of models have the shape of the protocol that the client's headers show.
    """
    if path == "/healthz" or (path == "/" and method in ("GET", "HEAD")):
        return Endpoint("alive", _CHAT)
    if path == "/readyz":
        return Endpoint("ready", _CHAT)
    if (match := _GEMINI_PATH.fullmatch(path)) is not None and match["verb"] in _VERBS:
        return Endpoint(_VERBS[match["verb"]], _GEMINI, unquote(match["model"]))
    rest = _VERSION.sub("", path, count=1) if _VERSION.match(path) else path
    if (endpoint := _GENERATE.get(rest)) is not None:
        return endpoint
    if rest == "/models":
        return Endpoint("models", client_protocol(headers))
    if rest.startswith("/models/"):
        return Endpoint("model", client_protocol(headers), unquote(rest.removeprefix("/models/")))
    if (match := _RESPONSE_PATH.fullmatch(rest)) is not None:
        verb: Verb = "response-items" if match["rest"] == "/input_items" else "response"
        if match["rest"] == "/cancel":
            verb = "cancel-response"
        elif method == "DELETE":
            verb = "delete-response"
        return Endpoint(verb, _RESPONSES, unquote(match["id"]))
    if rest.startswith("/requests/"):
        return Endpoint("request", _CHAT, unquote(rest.removeprefix("/requests/")))
    return None


def client_protocol(headers: Mapping[str, str]) -> str:
    """Return the protocol that a client's headers show, where the path does not say it."""
    if "anthropic-version" in headers:
        return _MESSAGES
    return _GEMINI if "x-goog-api-key" in headers else _CHAT
