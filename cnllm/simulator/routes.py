"""Which endpoint a path means, and what it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from cnllm.checks import unfit_id
from cnllm.errors import CnllmError, UnknownModel
from cnllm.model import Model
from cnllm.protocols import PROTOCOLS
from cnllm.simulator.case import Wrong
from cnllm.simulator.transport import MARK, Answered, Known, respond, turned_away

__all__ = ["route"]

_BARE = {
    "/chat/completions": None,
    "/v1/chat/completions": None,
    "/v1/messages": "anthropic-messages",
    "/responses": "openai-responses",
    "/v1/responses": "openai-responses",
}
_LISTS = ("/models", "/v1/models")
_NAMED = re.compile(r"/v1(?:beta)?/models/(?P<model>.+):(?:streamG|g)enerateContent")
"""The path of a wire that names the model there."""


def route(registry: Known, method: str, target: str, headers: Mapping[str, str], content: bytes) -> Answered:
    """The answer to one HTTP request.

    `/{provider}` followed by the entry's path is that endpoint; a bare `/v1/chat/completions` is the endpoint
    of whatever model the body names, by alias or as provider/id, and so is the path that names one itself.
    """
    path = target.partition("?")[0]
    provider, slash, rest = path[1:].partition("/")
    try:
        if path in _LISTS:
            return _list(registry, method, None)
        if slash and "/" + rest in _LISTS:
            return _list(registry, method, provider)
        if in_path := _NAMED.fullmatch(path):
            named = registry.resolve(_id(in_path["model"]), protocol="gemini")
            return _posted(method) or respond(named, headers, content, unquote(path))
        if path in _BARE:
            return _posted(method) or _bare(registry, headers, content, path)
        model = _at(registry, provider, "/" + rest, _model_named(content)) if slash else None
    except _Outside as outside:
        return turned_away(Wrong("model", str(outside), param="model"))
    except UnknownModel as unknown:
        return turned_away(Wrong("model", unknown.message, param="model"))
    except CnllmError as error:  # a broken registry is the server's fault, and its words say where
        return turned_away(Wrong("registry", error.message), status=500)
    if model is None:
        return turned_away(Wrong("path", f"There is nothing at {path}."), status=404)
    return _posted(method) or respond(model, headers, content, unquote(path))


class _Outside(Exception):
    """A model id that leaves the path it stands in."""


def _id(in_path: str) -> str:
    """Return the model id that stands in a path. Raises `_Outside` for one that a path cannot hold."""
    id = unquote(in_path)
    if (why := unfit_id(id)) is not None:
        raise _Outside(f"The model {id!a} is none: {why}.")
    return id


def _posted(method: str) -> Answered | None:
    if method == "POST":
        return None
    return turned_away(Wrong("method", f"{method} is not supported here, POST is."), status=405, allow="POST")


def _bare(registry: Known, headers: Mapping[str, str], content: bytes, path: str) -> Answered:
    named = _model_named(content)
    if named is None:
        wrong = Wrong("param", "The body is a JSON object that names a model.", param="model")
        return turned_away(wrong, protocol=_BARE[path])
    model = registry.resolve(named, protocol=_BARE[path])
    body: dict[str, Any] = msgspec.json.decode(content)
    try:
        renamed = msgspec.json.encode({**body, "model": model.id})
    except (UnicodeError, RecursionError):  # which says what is wrong with it
        renamed = content
    return respond(model, headers, renamed, path)


def _model_named(content: bytes) -> str | None:
    """The model a body names, None where it names none or is no JSON object."""
    try:
        body = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    named = body.get("model") if isinstance(body, dict) else None
    return named if isinstance(named, str) and named else None


def _at(registry: Known, provider: str, rest: str, named: str | None) -> Model | None:
    """The model that a provider's path and a body name, None where that provider has no such path."""
    # Any id will do to learn the provider's paths; where the path holds the model, it names it.
    for protocol in (None, *PROTOCOLS):
        try:
            model = registry.resolve(f"{provider}/{named or 'any'}", protocol=protocol)
        except UnknownModel:
            if protocol is None:
                raise
            continue  # it does not speak that one
        found = next((m for s in _shape(model) if (m := re.fullmatch(s, rest))), None)
        if found is not None:
            in_path = found.groupdict().get("model")
            name = f"{provider}/{_id(in_path) if in_path else named or 'any'}"
            return registry.resolve(name, protocol=model.protocol)
    return None


def _shape(model: Model) -> list[str]:
    """Patterns of the paths an endpoint has."""
    paths = [p.partition("?")[0] for p in (model.flags.path, model.flags.stream_path) if p]
    return [re.escape(p).replace(re.escape("{model}"), "(?P<model>.+)") for p in paths]


def _list(registry: Known, method: str, provider: str | None) -> Answered:
    if method not in ("GET", "HEAD"):
        return turned_away(Wrong("method", f"{method} is not supported here, GET is."), status=405, allow="GET")
    names = [n for n in registry.names() if provider is None or n.partition("/")[0] == provider]
    if not names:
        return turned_away(Wrong("path", f"There is no provider {provider}."), status=404)
    data = [
        {
            "id": n if provider is None else n.partition("/")[2],
            "object": "model",
            "created": 0,
            "owned_by": n.partition("/")[0],
        }
        for n in names
    ]
    body = msgspec.json.encode({"object": "list", "data": data})
    return Answered(200, {"content-type": "application/json", MARK: "1"}, [body])
