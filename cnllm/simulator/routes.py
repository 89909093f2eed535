"""Which endpoint a path means, and what it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from cnllm.errors import CnllmError, UnknownModel
from cnllm.protocols import PROTOCOLS
from cnllm.registry.model import Model
from cnllm.simulator.transport import MARK, ModelLookup, SimulatedResponse, is_unlisted, reject, respond
from cnllm.simulator.violations import Violation
from cnllm.types.checks import unfit_id

__all__ = ["HiddenNames", "ServedModels", "route"]

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


class HiddenNames(Struct, frozen=True):
    """Names that say nothing: `models` are served as model-1, model-2, … on paths without a provider.

    With `only` no other model of the registry is served; else those are, too, by the names that the client knows.
    """

    models: tuple[str, ...]
    only: bool = False

    def real(self, name: str) -> str | None:
        """Return the name in the registry of what a client names, None for a model that is not served."""
        number = name.removeprefix("model-")
        if number != name and number.isdecimal() and 0 < int(number[:9]) <= len(self.models):
            return self.models[int(number[:9]) - 1]
        return None if self.only else name


class ServedModels(Struct, frozen=True):
    """What is served, and how. `strict`: all that the flags deny is refused. `plain`: names are hidden."""

    registry: ModelLookup
    strict: bool = False
    plain: HiddenNames | None = None


def route(
    served: ServedModels, method: str, target: str, headers: Mapping[str, str], content: bytes
) -> SimulatedResponse:
    """The answer to one HTTP request.

    `/{provider}` followed by the entry's path is that endpoint; a bare `/v1/chat/completions` is the endpoint
    of whatever model the body names, by alias or as provider/id, and so is the path that names one itself.
    """
    registry = served.registry
    path = target.partition("?")[0]
    provider, slash, rest = path[1:].partition("/")
    plain = served.plain is not None
    wire = _wire(path)
    try:
        if path in _LISTS:
            return _list(served, method, None)
        if slash and "/" + rest in _LISTS and not plain:
            return _list(served, method, provider)
        if in_path := _NAMED.fullmatch(path):
            return _posted(method) or _named(served, headers, content, path, _id(in_path["model"]))
        if path in _BARE:
            return _posted(method) or _bare(served, headers, content, path)
        named = _model_named(content)
        model = _at(registry, provider, "/" + rest, named) if slash and not plain else None
    except _Outside as outside:
        return reject(Violation("model", str(outside), param="model"), protocol=wire)
    except UnknownModel as unknown:
        message = "The model does not exist." if plain else unknown.message
        return reject(Violation("model", message, param="model"), protocol=wire)
    except CnllmError as error:  # a broken registry is the server's fault, and its words say where
        return reject(Violation("registry", error.message), status=500, protocol=wire)
    if model is None:
        return reject(Violation("path", f"There is nothing at {path}."), status=404, protocol=wire)
    return _posted(method) or _respond(served, model, headers, content, path)


def _respond(
    served: ServedModels, model: Model, headers: Mapping[str, str], content: bytes, path: str, shown: str | None = None
) -> SimulatedResponse:
    unlisted = is_unlisted(served.registry, model)
    if served.plain is None:
        shown = None
    return respond(model, headers, content, unquote(path), strict=served.strict, unlisted=unlisted, shown=shown)


def _resolved(served: ServedModels, named: str, protocol: str | None) -> Model:
    """The model that a client names. Raises `UnknownModel`."""
    real = named if served.plain is None else served.plain.real(named)
    if real is None:
        raise UnknownModel("The model does not exist.")
    return served.registry.resolve(real, protocol=protocol)


def _named(served: ServedModels, headers: Mapping[str, str], content: bytes, path: str, name: str) -> SimulatedResponse:
    return _respond(served, _resolved(served, name, "gemini"), headers, content, path, name)


def _wire(path: str) -> str | None:
    """The wire whose errors a client expects at a path, None for chat completions."""
    if path.endswith("enerateContent"):
        return "gemini"
    last = path.rpartition("/")[2]
    return {"messages": "anthropic-messages", "responses": "openai-responses"}.get(last)


class _Outside(Exception):
    """A model id that leaves the path it stands in."""


def _id(in_path: str) -> str:
    """Return the model id that stands in a path. Raises `_Outside` for one that a path cannot hold."""
    id = unquote(in_path)
    if (why := unfit_id(id)) is not None:
        raise _Outside(f"The model {id!a} is none: {why}.")
    return id


def _posted(method: str) -> SimulatedResponse | None:
    if method == "POST":
        return None
    return reject(Violation("method", f"{method} is not supported here, POST is."), status=405, allow="POST")


def _bare(served: ServedModels, headers: Mapping[str, str], content: bytes, path: str) -> SimulatedResponse:
    named = _model_named(content)
    if named is None:
        wrong = Violation("param", "The body is a JSON object that names a model.", param="model")
        return reject(wrong, protocol=_BARE[path])
    model = _resolved(served, named, _BARE[path])
    body: dict[str, Any] = msgspec.json.decode(content)
    try:
        renamed = msgspec.json.encode({**body, "model": model.id})
    except (UnicodeError, RecursionError):  # which says what is wrong with it
        renamed = content
    return _respond(served, model, headers, renamed, path, named)


def _model_named(content: bytes) -> str | None:
    """The model a body names, None where it names none or is no JSON object."""
    try:
        body = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    named = body.get("model") if isinstance(body, dict) else None
    return named if isinstance(named, str) and named else None


def _at(registry: ModelLookup, provider: str, rest: str, named: str | None) -> Model | None:
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


def _list(served: ServedModels, method: str, provider: str | None) -> SimulatedResponse:
    if method not in ("GET", "HEAD"):
        return reject(Violation("method", f"{method} is not supported here, GET is."), status=405, allow="GET")
    if served.plain is not None:
        names = [f"simulator/model-{n + 1}" for n in range(len(served.plain.models))]
        provider = "simulator"
    else:
        names = [n for n in served.registry.names() if provider is None or n.partition("/")[0] == provider]
    if not names:
        return reject(Violation("path", f"There is no provider {provider}."), status=404)
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
    return SimulatedResponse(200, {"content-type": "application/json", MARK: "1"}, [body])
