"""Route a request path to an endpoint and return its response."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from functools import cache
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from cnllm.errors import CnllmError, UnknownModel
from cnllm.protocols import PROTOCOLS, server_codec
from cnllm.protocols.server_interface import ModelCard, write_models
from cnllm.registry.model import Model
from cnllm.registry.registry import Registry
from cnllm.simulator.batch import BatchRequest, BatchStep, BatchStore, answer_step
from cnllm.simulator.respond import Endpoints, SimulatedResponse, json_response, read_object, reject
from cnllm.simulator.violations import Violation
from cnllm.types.checks import unfit_id

__all__ = [
    "HiddenNames",
    "ServedModels",
    "batch_step",
    "route",
]


_LIST_PATHS = ("/models", "/v1/models")
_SharedPath = tuple[str, str | None]
"""The wire of a path without a provider, and the model in the path."""


# ── what is served ───────────────────────────────────────────────────────────


class HiddenNames(Struct, frozen=True):
    """Neutral names: `models` are served as model-1, model-2, … on paths without a provider.

    With `only` no other model of the registry is served. Otherwise clients reach the others by their real names.
    """

    models: tuple[str, ...]
    only: bool = False

    def real(self, name: str) -> str | None:
        """Return the registry's name for a client's name, or None for a model that is not served."""
        number = name.removeprefix("model-")
        if number != name and number.isdecimal() and 0 < int(number[:9]) <= len(self.models):
            return self.models[int(number[:9]) - 1]
        return None if self.only else name


class ServedModels(Struct, frozen=True):
    """The models that the server serves, and its batches."""

    endpoints: Endpoints
    batches: BatchStore
    hidden_names: HiddenNames | None = None

    @property
    def registry(self) -> Registry:
        """Return the registry with the models."""
        return self.batches.registry


# ── routes ───────────────────────────────────────────────────────────────────


def route(
    catalog: ServedModels, method: str, target: str, headers: Mapping[str, str], content: bytes
) -> SimulatedResponse:
    """Return the response to one HTTP request.

    `/{provider}` followed by the entry's path is that endpoint. A bare `/v1/chat/completions` is the endpoint of the
    model in the body, named by alias or as provider/id. A path that names a model is the endpoint of that model.
    """
    registry = catalog.registry
    path, _, query = target.partition("?")
    provider, slash, provider_path = path[1:].partition("/")
    hides_names = catalog.hidden_names is not None
    wire = _wire(path)
    try:
        if path in _LIST_PATHS:
            return _list(catalog, method, None)
        if slash and "/" + provider_path in _LIST_PATHS and not hides_names:
            return _list(catalog, method, provider)
        if (shared := _shared_path(path)) is not None:
            return _require_post(method) or _respond_to_shared(catalog, headers, content, path, query, shared)
        name = _model_in_body(content)
        model = _model_at(registry, provider, "/" + provider_path, name) if slash and not hides_names else None
        if model is None and (step := batch_step(catalog, method, target)) is not None:
            request = BatchRequest(target, headers, content, f"http://{headers.get('host', 'localhost')}/{provider}")
            return answer_step(catalog.batches, step, request)
    except UnknownModel as missing:
        message = "The model does not exist." if hides_names else missing.message
        return reject(Violation("model", message, param="model"), protocol=wire)
    except CnllmError as error:  # a broken registry is the server's error; its message says where
        return reject(Violation("registry", error.message), status=500, protocol=wire)
    if model is None:
        return reject(Violation("path", f"There is nothing at {path}."), status=404, protocol=wire)
    return _require_post(method) or catalog.endpoints.respond(model, headers, content, unquote(path), query=query)


def _resolve(catalog: ServedModels, name: str, protocol: str | None) -> Model:
    """Return the model that a client names. Raises `UnknownModel`."""
    real = name if catalog.hidden_names is None else catalog.hidden_names.real(name)
    if real is None:
        raise UnknownModel("The model does not exist.")
    return catalog.registry.resolve(real, protocol=protocol)


def _respond_to_shared(
    catalog: ServedModels, headers: Mapping[str, str], content: bytes, path: str, query: str, shared: _SharedPath
) -> SimulatedResponse:
    """Return the response of the endpoint that serves the model of the path, or that of the body, over a wire."""
    protocol, path_id = shared
    name = _model_in_body(content) if path_id is None else _parse_id(path_id)
    if name is None:
        violation = Violation("param", "The body is a JSON object that names a model.", param="model")
        return reject(violation, protocol=protocol)
    model = _resolve(catalog, name, protocol)
    if path_id is None:
        with contextlib.suppress(UnicodeError, RecursionError):  # the endpoint's own check reports it
            content = msgspec.json.encode({**msgspec.json.decode(content), "model": model.id})
    public_name = None if catalog.hidden_names is None else name
    return catalog.endpoints.respond(model, headers, content, unquote(path), public_name, query)


@cache
def _wire_paths() -> list[tuple[str, re.Pattern[str], re.Pattern[str]]]:
    """Return each wire with the patterns of one of its paths, without a provider, and of the path's last segment."""
    paths = [(protocol, path) for protocol in PROTOCOLS for path in server_codec(protocol).paths]
    return [(name, re.compile(_pattern(p)), re.compile(_pattern(p.rpartition("/")[2], "*"))) for name, p in paths]


def _shared_path(path: str) -> _SharedPath | None:
    """Return the wire of a path without a provider, and the model in the path; None for any other path."""
    matches = ((protocol, pattern.fullmatch(path)) for protocol, pattern, _ in _wire_paths())
    return next(((protocol, match.groupdict().get("model")) for protocol, match in matches if match is not None), None)


def _wire(path: str) -> str | None:
    """Return the wire whose error shape clients expect at a path, or None if no wire has such a path."""
    last = path.rpartition("/")[2]
    return next((protocol for protocol, _, ending in _wire_paths() if ending.fullmatch(last)), None)


def _parse_id(text: str) -> str:
    """Return the model id of a path. Raise `UnknownModel` for an id that a path cannot hold."""
    id = unquote(text)
    if (problem := unfit_id(id)) is not None:
        raise UnknownModel(f"The model {id!a} is none: {problem}.")
    return id


def _require_post(method: str) -> SimulatedResponse | None:
    if method == "POST":
        return None
    return reject(Violation("method", f"{method} is not supported here, POST is."), status=405, allow="POST")


def _model_in_body(content: bytes) -> str | None:
    """Return the model that a body names, or None if it names none or is not a JSON object."""
    try:
        name = read_object(content).get("model")
    except ValueError:
        return None
    return name if isinstance(name, str) and name else None


def _model_at(registry: Registry, provider: str, path: str, model_name: str | None) -> Model | None:
    """Return the model for a provider's path and a body, or None if the provider has no such path."""
    # Any id shows the provider's paths. If the path holds the model, it names it.
    for protocol in (None, *PROTOCOLS):
        try:
            model = registry.resolve(f"{provider}/{model_name or 'any'}", protocol=protocol)
        except UnknownModel:
            if protocol is None:
                return None  # there is no such provider
            continue  # the provider does not serve this protocol
        match = next((m for s in _path_patterns(model) if (m := re.fullmatch(s, path))), None)
        if match is not None:
            path_id = match.groupdict().get("model")
            name = f"{provider}/{_parse_id(path_id) if path_id else model_name or 'any'}"
            return registry.resolve(name, protocol=model.protocol)
    return None


def _path_patterns(model: Model) -> list[str]:
    """Return patterns of the paths of an endpoint."""
    batch = model.flags.batch
    slow = batch.path if batch is not None and batch.input == "calls" else None
    paths = [p.partition("?")[0] for p in (model.flags.path, model.flags.stream_path, slow) if p]
    return [_pattern(path) for path in paths]


def _pattern(path: str, count: str = "+") -> str:
    """Return the pattern of a path in which `{model}` stands for the model, of so many characters."""
    return re.escape(path).replace(re.escape("{model}"), f"(?P<model>.{count})")


def _list(catalog: ServedModels, method: str, provider: str | None) -> SimulatedResponse:
    if method not in ("GET", "HEAD"):
        return reject(Violation("method", f"{method} is not supported here, GET is."), status=405, allow="GET")
    if catalog.hidden_names is not None:
        names = [f"simulator/model-{n + 1}" for n in range(len(catalog.hidden_names.models))]
        provider = "simulator"
    else:
        names = [n for n in catalog.registry.names() if provider is None or n.partition("/")[0] == provider]
    if not names:
        return reject(Violation("path", f"There is no provider {provider}."), status=404)
    owners = [(name, *name.partition("/")[::2]) for name in names]
    cards = [ModelCard(name if provider is None else id, owner) for name, owner, id in owners]
    return json_response(msgspec.json.encode(write_models(cards, {})))


def batch_step(catalog: ServedModels, method: str, target: str) -> BatchStep | None:
    """Return the step of a provider's batch interface that a request is, or None."""
    provider, slash, path = target.partition("?")[0][1:].partition("/")
    if not slash or catalog.hidden_names is not None:
        return None
    return catalog.batches.find_step(provider, method, f"/{path}")
