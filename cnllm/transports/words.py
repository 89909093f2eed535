"""What went wrong while a request was sent or answered, in the same words whatever the adapter."""

from __future__ import annotations

from cnllm.engine.plan import Plan
from cnllm.errors import IdleTimeout, Timeout, TransportError

__all__ = ["before_status", "broke", "closed", "fell_silent", "garbled", "no_connection", "no_http", "no_url", "slow"]
__all__ += ["slow_connection", "unsendable"]


def no_url(url: str, error: Exception) -> TransportError:
    """The address cannot be read."""
    return TransportError(f"{url} is no URL: {error}", hint="check base_url")


def no_http(url: str) -> TransportError:
    """The address is none that HTTP goes to."""
    return TransportError(f"{url} is no http URL", hint="check base_url")


def unsendable(plan: Plan) -> TransportError:
    """A header cannot be one. It is not shown: it may hold the key."""
    said = f"nothing was sent to {plan.url}: a header holds a character that no header can carry"
    return TransportError(said, hint="check the key and extra_headers")


def slow_connection(host: str, seconds: float | None) -> Timeout:
    """No connection came about in time."""
    said = f"no connection to {host} in {seconds} s"
    return Timeout(said, retryable=True, hint="check the network or a proxy")


def no_connection(host: str, said: str) -> TransportError:
    """The connection was refused, or the host was not found, or its certificate is not trusted."""
    return TransportError(f"no connection to {host}: {said}", retryable=True, hint="check the address and the network")


def slow(host: str, seconds: float | None) -> Timeout:
    """The status line did not come in time."""
    return Timeout(f"{host} did not answer in {seconds} s", hint="give it more time (timeout)")


def closed(host: str, said: str) -> TransportError:
    """The connection was over before the status line."""
    return TransportError(f"{host} closed the connection before it answered: {said}", retryable=True, hint="try again")


def garbled(host: str, said: str) -> TransportError:
    """A response began and cannot be read: the request may have been served, and is not sent again."""
    return TransportError(f"{host} sent a response that cannot be read: {said}", hint="ask the endpoint's operator")


def before_status(host: str, said: str, began: bool) -> TransportError:
    """What went wrong before a status: another try is safe only where no byte of a response came."""
    return garbled(host, said) if began else closed(host, said)


def fell_silent(seconds: float | None) -> IdleTimeout:
    """A body stalled."""
    return IdleTimeout(f"nothing came for {seconds} s in the middle of the reply", hint="give it more time (timeout)")


def broke(said: object) -> TransportError:
    """A body broke off, or is not what its headers say."""
    return TransportError(f"the connection broke in the middle of the reply: {said}", hint="try again")
