"""The errors of sending a request and reading its response, with the same messages for every adapter."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar
from urllib.parse import urlsplit

from cnllm.config.distribution import install_command
from cnllm.engine.encode.plan import Plan
from cnllm.errors import IdleTimeout, Timeout, TransportError
from cnllm.types.checks import is_loopback

__all__ = [
    "body_broken",
    "body_stalled",
    "connect_failed",
    "connect_timeout",
    "error_before_status",
    "framing_header",
    "interrupted",
    "invalid_header",
    "invalid_proxy",
    "invalid_url",
    "name_proxy",
    "no_free_connection",
    "proxy_refused",
    "status_timeout",
    "unsupported_url",
]

Sent = TypeVar("Sent", bound=TransportError)


def invalid_url(url: str, error: Exception) -> TransportError:
    """Return the error of an address that cannot be parsed."""
    return TransportError(f"{url} is not a URL: {error}", hint="check base_url")


def unsupported_url(url: str) -> TransportError:
    """Return the error of an address that is not an HTTP URL."""
    return TransportError(f"{url} is not an http URL", hint="check base_url")


def invalid_header(plan: Plan) -> TransportError:
    """Return the error of an invalid header. It does not show the header, which may hold the key."""
    message = f"nothing was sent to {plan.url}: a header holds a character that no header can carry"
    return TransportError(message, hint="check the key and extra_headers")


def framing_header(plan: Plan, names: Iterable[str]) -> TransportError:
    """Return the error of a caller's header that would change where the message ends."""
    headers = ", ".join(sorted({"content-length", "transfer-encoding"}.intersection(names)))
    message = f"nothing was sent to {plan.url}: the transport itself sets {headers}"
    return TransportError(message, hint=f"remove {headers} from extra_headers and from the registry's headers")


def invalid_proxy(proxy: str | None, *, missing: bool) -> TransportError:
    """Return the error of a proxy in the environment that cannot be used."""
    message = f"the proxy {redact_proxy(proxy)} that the environment names cannot be used"
    if missing:
        return TransportError(f"{message}: socksio is not installed", hint=install_command("socks"))
    return TransportError(message, hint="check HTTP_PROXY, HTTPS_PROXY and ALL_PROXY: http://, https:// or socks5://")


def proxy_refused(host: str, proxy: str | None, reason: str) -> TransportError:
    """Return the error of a proxy that refused the request."""
    permanent = reason.lstrip()[:3] in ("401", "403", "407")
    return TransportError(
        f"the proxy {redact_proxy(proxy)} refused the connection to {host}: {reason}",
        retryable=not permanent,
        hint="check the proxy's address and password, or name the host in NO_PROXY",
    )


def name_proxy(error: TransportError, proxy: str) -> TransportError:
    """Name the proxy in an error on the way through it."""
    error.message = f"{error.message} (through the proxy {redact_proxy(proxy)})"
    error.args = (error.message,)
    error.hint = "check the proxy that HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names"
    return error


def redact_proxy(proxy: str | None) -> str:
    """Return a proxy's address without the name and password in it."""
    scheme, mark, rest = (proxy or "").partition("://")
    return f"{scheme}{mark}{rest.partition('/')[0].rpartition('@')[2]}"


def connect_timeout(host: str, seconds: float | None) -> Timeout:
    """Return the error of a connection that was not established in time."""
    message = f"no connection to {host} in {seconds} s"
    return _unsent(Timeout(message, retryable=True, hint="check the network or a proxy"))


def no_free_connection(host: str, seconds: float | None) -> Timeout:
    """Return the error of a request that waited for the end of others."""
    message = f"no connection to {host} was free in {seconds} s: all are in use"
    return _unsent(Timeout(message, retryable=True, hint="use more connections, or send fewer requests at once"))


_UNKNOWN_NAME = r"\[Errno (-\d+|8|11001)\]"  # of getaddrinfo, on Linux, macOS and Windows


def connect_failed(name: str, reason: str) -> TransportError:
    """Return the error of a refused connection, an unknown host or an untrusted certificate.

    `name` is the host with its port, where that is not the usual one.
    """
    is_local = is_loopback(urlsplit(f"//{name}").hostname or "")
    hint = "check the address, and that the server runs" if is_local else "check the address and the network"
    if re.search(_UNKNOWN_NAME, reason):
        reason, hint = "its name cannot be resolved", "is the address right, and is there a network?"
    return _unsent(TransportError(f"no connection to {name}: {reason}", retryable=True, hint=hint))


def _unsent(error: Sent) -> Sent:
    """Return an error that says that nothing was sent."""
    error.sent = False
    return error


def status_timeout(host: str, seconds: float | None) -> Timeout:
    """Return the error of a status line that did not arrive in time."""
    return Timeout(f"{host} did not answer in {seconds} s", hint="set a longer timeout")


def error_before_status(host: str, reason: str, *, began: bool) -> TransportError:
    """Return the error before a status. A retry is safe only where no byte of a response arrived."""
    if began:  # the request may have been served
        message = f"{host} sent a response that cannot be read: {reason}"
        return TransportError(message, hint="ask the endpoint's operator")
    message = f"{host} closed the connection before it answered: {reason}"
    return TransportError(message, retryable=True, hint="try again")


def interrupted() -> TransportError:
    """Return the error of a request that its own caller ended."""
    return TransportError("the request was ended before its response")


def body_stalled(seconds: float | None, *, only_framing: bool = False) -> IdleTimeout:
    """Return the error of a body that stalled, or of which only framing and empty pieces arrived."""
    if only_framing:
        return IdleTimeout(
            f"no content for {seconds} s in the middle of the reply, although bytes arrived",
            hint="ask the endpoint's operator",
        )
    return IdleTimeout(f"no bytes for {seconds} s in the middle of the reply", hint="set a longer timeout")


def body_broken(reason: str) -> TransportError:
    """Return the error of a body that broke off, or does not match its headers."""
    return TransportError(f"the connection broke in the middle of the reply: {reason}", hint="try again")
