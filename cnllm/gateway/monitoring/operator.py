"""Decide who the operator of a gateway is, and answer the operator's requests for `/metrics` and `/ui`."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from cnllm.gateway.monitoring.recent import Recent

__all__ = [
    "COOKIE",
    "LARGEST_FORM",
    "OperatorAccess",
    "Page",
    "form_key",
    "ui_page",
]


COOKIE = "cnllm_ui"
_SECONDS = 12 * 3600  # a login lasts so long

LARGEST_FORM = 8 * 1024
"""The bytes of the form of a login."""

_JSON = "application/json"
_SCRIPT = "text/javascript; charset=utf-8"
_FILES = {"style.css": "text/css; charset=utf-8", "page.js": _SCRIPT, "words.js": _SCRIPT}
_SAFE = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with none, a browser sends the form of a login from no origin
    "cache-control": "no-store",
}


class OperatorAccess:
    """The identities of the keys that open `/metrics` and `/ui`.

    A browser logs in with a key and gets a cookie. The cookie holds no key: it is a time, signed with the identity of
    the key, so that every process of the gateway can check it.
    """

    def __init__(self, identities: Iterable[str]) -> None:
        self._identities = frozenset(identities)

    @property
    def is_closed(self) -> bool:
        """Whether no key opens anything: none is set."""
        return not self._identities

    def allows(self, identities: Iterable[str]) -> bool:
        """Whether one of the identities of a request's keys is an operator's."""
        return not self._identities.isdisjoint(identities)

    def cookie(self, identities: Iterable[str], *, is_secure: bool) -> str | None:
        """Return a cookie for a login, or None where no key of it is an operator's."""
        for identity in identities:
            if identity in self._identities:
                end = str(int(time.time()) + _SECONDS)
                flags = "; Secure" if is_secure else ""
                value = f"{end}.{_signature(identity, end)}"
                return f"{COOKIE}={value}; Max-Age={_SECONDS}; Path=/; HttpOnly; SameSite=Strict{flags}"
        return None

    def allows_cookie(self, headers: Mapping[str, str]) -> bool:
        """Whether a request has a cookie of a login that still lasts."""
        for field in headers.get("cookie", "").split(";"):
            name, _, value = field.strip().partition("=")
            if name != COOKIE:
                continue
            end, _, signature = value.partition(".")
            if not (end.isascii() and end.isdigit() and signature.isascii()) or len(end) > 12:
                continue
            if int(end) > time.time() and any(
                hmac.compare_digest(signature, _signature(identity, end)) for identity in self._identities
            ):
                return True
        return False


def _signature(identity: str, end: str) -> str:
    """Return the signature of the end of a login."""
    return hmac.new(identity.encode(), b"cnllm ui\0" + end.encode(), hashlib.sha256).hexdigest()


# ── pages ────────────────────────────────────────────────────────────────────


class Page(Struct, frozen=True):
    """A whole answer."""

    status: int
    media_type: str
    content: bytes
    headers: Mapping[str, str] = {}

    @property
    def header_list(self) -> list[tuple[bytes, bytes]]:
        """Return the headers as ASGI wants them."""
        headers = {"content-type": self.media_type, **self.headers}
        return [(name.encode(), value.encode()) for name, value in headers.items()]


def ui_page(
    name: str,
    method: str,
    *,
    recent: Recent,
    operator: OperatorAccess,
    is_allowed: bool,
    login: str | None,
    uses: Any,
    choices: Any,
) -> Page:
    """Return the answer to a request below `/ui`. `login` is the cookie of a login that the operator's key allowed.

    `uses` is what the keys of clients have used, `choices` are the last ones of the routes by measurement.
    """
    if name in _FILES and method in ("GET", "HEAD"):
        return _page(200, _FILES[name], _file(name))
    if name == "login" and method == "POST":
        if login is None:
            why = b"no key opens this page: set CNLLM_ADMIN_KEY" if operator.is_closed else b"this key is wrong"
            return _html(401, _file("login.html").replace(b"<!-- message -->", why))
        return _page(303, "text/plain", b"", {"location": "../ui", "set-cookie": login})
    if name == "logout" and method == "POST":
        cookie = f"{COOKIE}=; Max-Age=0; Path=/; HttpOnly; SameSite=Strict"
        return _page(303, "text/plain", b"", {"location": "../ui", "set-cookie": cookie})
    if name == "" and method in ("GET", "HEAD"):
        return _html(200, _file("page.html")) if is_allowed else _html(401, _file("login.html"))
    if name in ("keys", "routes", "requests") or name.startswith("requests/"):
        if not is_allowed:
            return _json(401, {"error": "log in first"})
        if method not in ("GET", "HEAD"):
            return _json(405, {"error": "only GET is supported"})
        if name == "keys":
            return _json(200, uses)
        if name == "routes":
            return _json(200, choices)
        if name == "requests":
            return _json(200, recent.entries())
        record = recent.find(name.removeprefix("requests/"))
        return _json(404, {"error": "it is no longer kept"}) if record is None else _page(200, _JSON, record)
    return _json(404, {"error": "there is nothing here"})


def form_key(content: bytes) -> str:
    """Return the key of a form."""
    values = parse_qs(content.decode("utf-8", "replace"), max_num_fields=4).get("key", [""])
    return values[0].strip()


def _html(status: int, content: bytes) -> Page:
    return _page(status, "text/html; charset=utf-8", content)


def _json(status: int, data: object) -> Page:
    return _page(status, _JSON, msgspec.json.encode(data))


def _page(status: int, media_type: str, content: bytes, headers: Mapping[str, str] | None = None) -> Page:
    return Page(status, media_type, content, {**_SAFE, **(headers or {})})


@cache
def _file(name: str) -> bytes:
    """Return a file of the page."""
    return files("cnllm.gateway.monitoring").joinpath("ui", name).read_bytes()
