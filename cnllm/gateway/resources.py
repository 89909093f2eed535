"""Answer the requests that call no model: models, and responses that are kept."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from cnllm.errors import UnknownModel, Untrusted
from cnllm.gateway.admission import allows_model
from cnllm.gateway.endpoints import ROUTES, Endpoint
from cnllm.gateway.failures import Failure, RequestFailed, failure_of
from cnllm.gateway.limits.keys import Rights
from cnllm.gateway.model_names import ModelNames
from cnllm.gateway.state import Steps, delete_response, response_body, response_items
from cnllm.protocols import server_api
from cnllm.protocols.server_interface import ModelCard
from cnllm.registry.flags import Status
from cnllm.registry.model import Model

__all__ = [
    "require_method",
    "resource_body",
]

_NO_REPLAY = "stream: only a response made in the background is streamed again; ask for it without stream"


def require_method(endpoint: Endpoint, method: str) -> None:
    """Raise `RequestFailed` for a method that an endpoint does not have."""
    methods = ROUTES[endpoint.verb].methods
    if methods and method not in methods:
        allow = ", ".join(methods)
        raise RequestFailed(
            Failure(405, f"{method} is not supported: use {' or '.join(methods)}", "method", allow=allow)
        )


def resource_body(
    endpoint: Endpoint, names: ModelNames, query: str, identity: str, rights: Rights | None = None
) -> Steps[dict[str, Any]]:
    """Return the body of an answer to a client, with the limits of its key. Raises `RequestFailed`."""
    options = dict(parse_qsl(query))
    match endpoint.verb:
        case "models":
            return (yield from _models_body(endpoint.protocol, names, options, rights))
        case "model":
            return _model_body(endpoint.protocol, names, endpoint.name)
        case "response":
            if options.get("stream") == "true":
                raise RequestFailed(Failure(400, _NO_REPLAY, "unsupported"))
            return (yield from response_body(identity, endpoint.name))
        case "response-items":
            return (yield from response_items(identity, endpoint.name, options))
        case "delete-response":
            return (yield from delete_response(identity, endpoint.name))
    raise RequestFailed(Failure(400, "only a response made in the background can be cancelled", "cancel"))


# ── models ───────────────────────────────────────────────────────────────────


def _models_body(
    protocol: str, names: ModelNames, options: dict[str, str], rights: Rights | None = None
) -> Steps[dict[str, Any]]:
    """Return the list of models, without those that are retired, and those that the client's key may not use.

    The first list takes long, because it reads what the files say of each model.
    """

    def read() -> list[ModelCard]:
        """Return what the list says of each model."""
        cards = (_card(names, name, listed=True, rights=rights) for name in names.names())
        return [card for card in cards if card is not None]

    cards = yield read
    return server_api(protocol).write_models(cards, options)


def _model_body(protocol: str, names: ModelNames, name: str) -> dict[str, Any]:
    """Return one model. Raises `RequestFailed` for an unknown one."""
    try:
        names.resolve(name)
    except UnknownModel as error:
        raise RequestFailed(failure_of(error, protocol)) from error
    card = _card(names, name, listed=False)
    assert card is not None
    return server_api(protocol).write_model(card)


def _card(names: ModelNames, name: str, *, listed: bool, rights: Rights | None = None) -> ModelCard | None:
    """Return what a list says of a model; None for one that a list leaves out."""
    try:
        model = names.resolve(name)
    except Untrusted:
        return None
    if rights is not None and not allows_model(rights, names, name):
        return None
    if not isinstance(model, Model):  # a tier: its models differ
        return ModelCard(name, "cnllm")
    limits, status = model.flags.limits, model.flags.status or Status()
    is_retired = status.is_ == "retired"
    if listed and is_retired:
        return None
    return ModelCard(
        name, model.provider, limits.most_input, limits.output, status.released, status.shutdown, is_retired
    )
