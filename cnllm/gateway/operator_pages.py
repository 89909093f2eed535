"""Answer requests of the operator: `/metrics` and `/ui`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from cnllm.gateway.access import digest, sent_keys
from cnllm.gateway.admission import guessing_failure
from cnllm.gateway.endpoints import Endpoint
from cnllm.gateway.failures import Failure, RequestFailed
from cnllm.gateway.monitoring.monitor import Monitor
from cnllm.gateway.monitoring.operator import LARGEST_FORM, Page, form_key, ui_page
from cnllm.gateway.service import Service

__all__ = ["OperatorRequest", "operator_page"]


class OperatorRequest(Struct, frozen=True):
    """A request of the operator. `content` returns the body of the request up to a number of bytes.

    `address` is that of the client, `is_secure` says whether it came over TLS.
    """

    endpoint: Endpoint
    method: str
    headers: Mapping[str, str]
    query: str
    address: str
    is_secure: bool
    content: Callable[[int], Awaitable[bytes]]


async def operator_page(service: Service, request: OperatorRequest) -> Page:
    """Return the answer. Raises `RequestFailed`, also for an address that has sent too many wrong keys."""
    endpoint, method, headers, logins = request.endpoint, request.method, request.headers, service.logins
    monitor = service.monitor
    operator = monitor.operator
    is_login = endpoint.name == "login" and method == "POST"
    keys = sent_keys(headers, request.query)
    if (keys or is_login) and (wait := logins.wait(request.address)):
        raise RequestFailed(guessing_failure(wait))
    if is_login and endpoint.verb == "ui":
        keys = [form_key(await request.content(LARGEST_FORM))]
    if keys and not operator.allows(map(digest, keys)):
        logins.add(request.address)
    if endpoint.verb == "metrics":
        return _metrics(monitor, method, headers.get("accept", ""), is_allowed=operator.allows(map(digest, keys)))
    assert monitor.recent is not None
    is_allowed = operator.allows(map(digest, keys)) or operator.allows_cookie(headers)
    return ui_page(
        endpoint.name,
        method,
        recent=monitor.recent,
        operator=operator,
        is_allowed=is_allowed,
        login=operator.cookie(map(digest, keys), is_secure=request.is_secure),
        uses=await service.admission.uses() if endpoint.name == "keys" and is_allowed else None,
        choices=service.client()._route_choices() if endpoint.name == "routes" and is_allowed else None,
    )


def _metrics(monitor: Monitor, method: str, accept: str, *, is_allowed: bool) -> Page:
    """Return the metrics. Raises `RequestFailed`."""
    if method not in ("GET", "HEAD"):
        raise RequestFailed(Failure(405, f"{method} is not supported, GET is", "method", allow="GET, HEAD"))
    if not is_allowed:
        why = "set CNLLM_ADMIN_KEY for the gateway" if monitor.operator.is_closed else "send the operator's key"
        raise RequestFailed(Failure(401, f"metrics need a key: {why}", "invalid_api_key"))
    if monitor.metrics is None:
        raise RequestFailed(Failure(404, "this gateway keeps no metrics", "not_found"))
    content, media_type = monitor.metrics.exposition(accept)
    return Page(200, media_type, content)
