"""Answer the requests that call no model: models, and responses that are kept."""

from __future__ import annotations

from typing import Any

from cnllm.gateway.endpoints import ROUTES, Endpoint
from cnllm.gateway.failures import Failure, RequestFailed
from cnllm.gateway.limits.keys import Rights
from cnllm.gateway.listing import model_body, models_body
from cnllm.gateway.model_names import ModelNames
from cnllm.gateway.responses import delete_response, response_body, response_items
from cnllm.gateway.state import Steps

__all__ = ["require_method", "resource_body"]


def require_method(endpoint: Endpoint, method: str) -> None:
    """Raise `RequestFailed` for a method that an endpoint does not have."""
    methods = ROUTES[endpoint.verb].methods
    if methods and method not in methods:
        allow = ", ".join(methods)
        raise RequestFailed(Failure(405, f"{method} is not supported, {allow} is", "method", allow=allow))


def resource_body(
    endpoint: Endpoint, names: ModelNames, query: str, identity: str, rights: Rights | None = None
) -> Steps[dict[str, Any]]:
    """Return the body of an answer to a client, with the limits of its key. Raises `RequestFailed`."""
    match endpoint.verb:
        case "models":
            return (yield from models_body(endpoint.protocol, names, query, rights))
        case "model":
            return model_body(endpoint.protocol, names, endpoint.name)
        case "response":
            return (yield from response_body(identity, endpoint.name))
        case "response-items":
            return (yield from response_items(identity, endpoint.name))
        case "delete-response":
            return (yield from delete_response(identity, endpoint.name))
    raise RequestFailed(Failure(400, "only a response made in the background can be cancelled", "cancel"))
