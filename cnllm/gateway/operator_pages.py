"""Answer requests of the operator: `/metrics` and `/ui`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib.resources import files
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from cnllm.errors import CnllmError
from cnllm.gateway.access import digest
from cnllm.gateway.admission import guessing_failure
from cnllm.gateway.endpoints import Endpoint
from cnllm.gateway.failures import Failure, RequestFailed
from cnllm.gateway.monitoring.monitor import Monitor
from cnllm.gateway.monitoring.operator import COOKIE, OperatorAccess
from cnllm.gateway.service import Headers, Service

__all__ = ["OperatorRequest", "Page", "operator_page"]

_LARGEST_FORM = 8 * 1024  # bytes of the form of a login
_JSON = "application/json"
_SCRIPT = "text/javascript; charset=utf-8"
_FILES = {"style.css": "text/css; charset=utf-8", "page.js": _SCRIPT, "words.js": _SCRIPT}
_READ = ("GET", "HEAD")
_SAFE = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with none, a browser sends the form of a login from no origin
    "cache-control": "no-store",
}


class OperatorRequest(Struct, frozen=True):
    """A request of the operator. `content` returns the body of the request up to a number of bytes.

    `keys` are those that it has. `address` is that of the client, `is_secure` says whether it came over TLS.
    """

    endpoint: Endpoint
    method: str
    headers: Mapping[str, str]
    keys: list[str]
    address: str
    is_secure: bool
    content: Callable[[int], Awaitable[bytes]]


class Page(Struct, frozen=True):
    """A whole answer."""

    status: int
    content: bytes
    headers: Headers


async def operator_page(service: Service, request: OperatorRequest) -> Page:
    """Return the answer. Raises `RequestFailed`, also for an address that has sent too many wrong keys."""
    endpoint, logins = request.endpoint, service.logins
    operator = service.monitor.operator
    is_login = endpoint.name == "login" and request.method == "POST"
    keys = request.keys
    if (keys or is_login) and (wait := logins.wait(request.address)):
        raise RequestFailed(guessing_failure(wait))
    if is_login:
        keys = [_form_key(await request.content(_LARGEST_FORM))]
    identities = [digest(key) for key in keys]
    has_key = operator.allows(identities)
    if keys and not has_key:
        logins.add(request.address)
    if endpoint.verb == "metrics":
        return _metrics(service.monitor, request.method, request.headers.get("accept", ""), is_allowed=has_key)
    if is_login:
        return _login(operator, operator.cookie(identities, is_secure=request.is_secure))
    return await _ui_page(
        service, endpoint.name, request.method, is_allowed=has_key or operator.allows_cookie(request.headers)
    )


def _login(operator: OperatorAccess, cookie: str | None) -> Page:
    """Return the answer to a login, which has a cookie if its key is an operator's."""
    if cookie is None:
        why = b"no key opens this page: set CNLLM_ADMIN_KEY" if operator.is_closed else b"this key is wrong"
        return _html(401, _file("login.html").replace(b"<!-- message -->", why))
    return _page(303, "text/plain", b"", {"location": "../ui", "set-cookie": cookie})


async def _ui_page(service: Service, name: str, method: str, *, is_allowed: bool) -> Page:
    """Return the answer to a request below `/ui` other than a login."""
    recent = service.monitor.recent
    assert recent is not None
    if name in _FILES and method in _READ:
        return _page(200, _FILES[name], _file(name))
    if name == "logout" and method == "POST":
        cookie = f"{COOKIE}=; Max-Age=0; Path=/; HttpOnly; SameSite=Strict"
        return _page(303, "text/plain", b"", {"location": "../ui", "set-cookie": cookie})
    if name == "" and method in _READ:
        return _html(200, _file("page.html")) if is_allowed else _html(401, _file("login.html"))
    if name in ("keys", "routes", "requests") or name.startswith("requests/"):
        if not is_allowed:
            return _json(401, {"error": "log in first"})
        if method not in _READ:
            return _json(405, {"error": "only GET is supported"})
        if name == "keys":
            return _json(200, await service.admission.uses())
        if name == "routes":
            return _json(200, service.client()._route_choices())
        if name == "requests":
            return _json(200, await asyncio.to_thread(recent.entries))
        record = await asyncio.to_thread(recent.find, name.removeprefix("requests/"))
        return _json(404, {"error": "it is no longer kept"}) if record is None else _page(200, _JSON, record)
    return _json(404, {"error": "there is nothing here"})


def _metrics(monitor: Monitor, method: str, accept: str, *, is_allowed: bool) -> Page:
    """Return the metrics. Raises `RequestFailed`."""
    if method not in _READ:
        raise RequestFailed(Failure(405, f"{method} is not supported: use GET", "method", allow="GET, HEAD"))
    if not is_allowed:
        why = "set CNLLM_ADMIN_KEY for the gateway" if monitor.operator.is_closed else "send the operator's key"
        raise RequestFailed(Failure(401, f"metrics need a key: {why}", "invalid_api_key"))
    if monitor.metrics is None:
        raise RequestFailed(Failure(404, "this gateway keeps no metrics", "not_found"))
    try:
        content, media_type = monitor.metrics.exposition(accept)
    except CnllmError as error:  # the operator may read it
        raise RequestFailed(Failure(500, error.message, "internal_error")) from error
    return Page(200, content, [(b"content-type", media_type.encode())])


def _form_key(content: bytes) -> str:
    """Return the key of a form."""
    values = parse_qs(content.decode("utf-8", "replace")).get("key", [""])
    return values[0].strip()


def _html(status: int, content: bytes) -> Page:
    return _page(status, "text/html; charset=utf-8", content)


def _json(status: int, data: object) -> Page:
    return _page(status, _JSON, msgspec.json.encode(data))


def _page(status: int, media_type: str, content: bytes, more: Mapping[str, str] | None = None) -> Page:
    headers = {"content-type": media_type, **_SAFE, **(more or {})}
    return Page(status, content, [(name.encode(), value.encode()) for name, value in headers.items()])


@cache
def _file(name: str) -> bytes:
    """Return a file of the page."""
    return files("cnllm.gateway.monitoring").joinpath("ui", name).read_bytes()
