"""What went wrong while a request was sent or answered, in the same words whatever the adapter."""

from __future__ import annotations

from collections.abc import Iterable

from cnllm.engine.encode.plan import Plan
from cnllm.errors import IdleTimeout, Timeout, TransportError

__all__ = [
    "body_broken",
    "body_stalled",
    "connection_closed",
    "error_before_status",
    "framing_header",
    "invalid_proxy",
    "name_proxy",
    "unreadable_response",
]
__all__ += [
    "connect_failed",
    "connect_timeout",
    "invalid_header",
    "invalid_url",
    "proxy_refused",
    "status_timeout",
    "unsupported_url",
]


def invalid_url(url: str, error: Exception) -> TransportError:
    """The address cannot be read."""
    return TransportError(f"{url} is no URL: {error}", hint="check base_url")


def unsupported_url(url: str) -> TransportError:
    """The address is none that HTTP goes to."""
    return TransportError(f"{url} is no http URL", hint="check base_url")


def invalid_header(plan: Plan) -> TransportError:
    """A header cannot be one. It is not shown: it may hold the key."""
    said = f"nothing was sent to {plan.url}: a header holds a character that no header can carry"
    return TransportError(said, hint="check the key and extra_headers")


def framing_header(plan: Plan, names: Iterable[str]) -> TransportError:
    """A header of the caller's would change where the message ends."""
    named = ", ".join(sorted({"content-length", "transfer-encoding"}.intersection(names)))
    said = f"nothing was sent to {plan.url}: the transport itself sets {named}"
    return TransportError(said, hint=f"take {named} out of extra_headers, and out of the registry's headers")


def invalid_proxy(proxy: str | None, *, missing: bool) -> TransportError:
    """The environment names a proxy that cannot be used."""
    said = f"the proxy {shown_proxy(proxy)} that the environment names cannot be used"
    if missing:
        return TransportError(f"{said}: socksio is not installed", hint="pip install 'cnllm[socks]'")
    return TransportError(said, hint="check HTTP_PROXY, HTTPS_PROXY and ALL_PROXY: http://, https:// or socks5://")


def proxy_refused(host: str, proxy: str | None, said: str) -> TransportError:
    """The proxy answered that it will not."""
    final = said.lstrip()[:3] in ("401", "403", "407")
    return TransportError(
        f"the proxy {shown_proxy(proxy)} refused the way to {host}: {said}",
        retryable=not final,
        hint="check the proxy's address and password, or name the host in NO_PROXY",
    )


def name_proxy(error: TransportError, proxy: str) -> TransportError:
    """Name the proxy in an error on the way through it."""
    error.message = f"{error.message} (through the proxy {shown_proxy(proxy)})"
    error.hint = "check the proxy that HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names"
    return error


def shown_proxy(proxy: str | None) -> str:
    """Return a proxy's address without the name and password in it."""
    scheme, mark, rest = (proxy or "").partition("://")
    return f"{scheme}{mark}{rest.partition('/')[0].rpartition('@')[2]}"


def connect_timeout(host: str, seconds: float | None) -> Timeout:
    """No connection came about in time."""
    said = f"no connection to {host} in {seconds} s"
    return Timeout(said, retryable=True, hint="check the network or a proxy")


def connect_failed(host: str, said: str) -> TransportError:
    """The connection was refused, or the host was not found, or its certificate is not trusted."""
    return TransportError(f"no connection to {host}: {said}", retryable=True, hint="check the address and the network")


def status_timeout(host: str, seconds: float | None) -> Timeout:
    """The status line did not come in time."""
    return Timeout(f"{host} did not answer in {seconds} s", hint="give it more time (timeout)")


def connection_closed(host: str, said: str) -> TransportError:
    """The connection was over before the status line."""
    return TransportError(f"{host} closed the connection before it answered: {said}", retryable=True, hint="try again")


def unreadable_response(host: str, said: str) -> TransportError:
    """A response began and cannot be read: the request may have been served, and is not sent again."""
    return TransportError(f"{host} sent a response that cannot be read: {said}", hint="ask the endpoint's operator")


def error_before_status(host: str, said: str, began: bool) -> TransportError:
    """What went wrong before a status: another try is safe only where no byte of a response came."""
    return unreadable_response(host, said) if began else connection_closed(host, said)


def body_stalled(seconds: float | None) -> IdleTimeout:
    """A body stalled."""
    return IdleTimeout(f"nothing came for {seconds} s in the middle of the reply", hint="give it more time (timeout)")


def body_broken(said: object) -> TransportError:
    """A body broke off, or is not what its headers say."""
    return TransportError(f"the connection broke in the middle of the reply: {said}", hint="try again")
