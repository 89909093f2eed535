"""Decide who the operator of a gateway is: by a key, or by the cookie of a login."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterable, Mapping

__all__ = ["COOKIE", "OperatorAccess"]


COOKIE = "cnllm_ui"
_SECONDS = 12 * 3600  # a login lasts so long


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
