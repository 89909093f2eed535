"""Where a request goes, and its headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

from cnllm.engine.adjustments import Ledger
from cnllm.engine.options import RequestOptions
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model
from cnllm.types import checks

__all__ = ["basic_auth", "endpoint_url", "is_http_address", "request_headers"]


def endpoint_url(model: Model, flags: Flags, stream: bool, ledger: Ledger) -> tuple[str, str]:
    """The address, and the name and password that stood in it, which are no part of what is shown."""
    if not flags.base_url:
        ledger.refuse("no-base-url", "base_url", model.name, "the registry does not know where it is: give a base URL")
    if not is_http_address(flags.base_url or ""):
        ledger.refuse("bad-base-url", "base_url", (flags.base_url or "").rpartition("@")[2], "it is no http address")
    path = (flags.stream_path if stream else None) or flags.path or ""
    if "{model}" in path and (why := checks.unfit_id(model.id)) is not None:
        ledger.refuse("bad-model-id", "path", ascii(model.id), why)
    whole, userinfo = _address(flags.base_url or "", path, model.id)
    if path and not _fits(flags.base_url or "", path):
        ledger.refuse("bad-path", "path", path, "it would change the host or port of the address: begin it with /")
    if not is_http_address(whole):
        ledger.refuse("bad-path", "path", path, "with it the address is no http address: it begins with /")
    return whole, userinfo


@lru_cache(maxsize=256)
def _fits(base: str, path: str) -> bool:
    return path.startswith("/") or _at_home(base, _address(base, path, "m")[0])


@lru_cache(maxsize=256)
def is_http_address(base: str) -> bool:
    """Whether an address is one of HTTP's, with a host that a name server or a socket takes."""
    if _UNFIT.search(base):
        return False
    try:
        parts = urlsplit(base)
        host, port = parts.hostname, parts.port
    except ValueError:  # a port that is no number, a bracket left open
        return False
    return parts.scheme in ("http", "https") and bool(host) and port != 0 and _host_ok(host or "")


def _host_ok(host: str) -> bool:
    if _PLAIN_HOST.fullmatch(host) and "xn--" not in host:
        return True
    if ":" in host:
        import ipaddress

        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            return False
        return True
    import idna

    try:
        labels = idna.encode(host).decode()
        idna.decode(labels)
    except UnicodeError:
        return False
    return True


def _at_home(base: str, whole: str) -> bool:
    """Whether an address still has the host and port of its base once a path stands behind it."""
    try:
        was, now = urlsplit(base), urlsplit(whole)
        return (was.scheme, was.hostname, was.port) == (now.scheme, now.hostname, now.port)
    except ValueError:
        return False


_UNFIT = re.compile(r"[\x00-\x1f\x7f\\]")  # a path may hold spaces, which go out encoded
_PLAIN_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_.])?")


@lru_cache(maxsize=256)
def _address(base: str, path: str, id: str) -> tuple[str, str]:
    whole = base.rstrip("/") + path.replace("{model}", quote(id, safe="/:"))
    if "@" not in whole:
        return whole, ""
    scheme, _, rest = whole.partition("://")
    end = next((at for at, char in enumerate(rest) if char in "/?#"), len(rest))
    userinfo, _, host = rest[:end].rpartition("@")
    return f"{scheme}://{host}{rest[end:]}", userinfo


def basic_auth(userinfo: str, flags: Flags, ledger: Ledger) -> str | None:
    """What goes into `authorization` for a name and password in the address; a key goes before it there."""
    if not userinfo:
        return None
    said = "a name and password in the address"
    if flags.keys and flags.auth is not None and (flags.auth.header or "").lower() == "authorization":
        ledger.note("address-password", "base_url", said, "left out: the key goes into the same header")
        return None
    ledger.note("address-password", "base_url", said, "sent as `authorization: Basic`")
    import base64

    name, _, password = userinfo.partition(":")
    return f"Basic {base64.b64encode(f'{unquote(name)}:{unquote(password)}'.encode()).decode()}"


def request_headers(flags: Flags, asked: RequestOptions, stream: bool, basic: str | None) -> dict[str, str]:
    """The endpoint's headers, with `{key}` where the key goes, then the caller's; names in lower case."""
    found = {
        "content-type": "application/json",
        "accept": "text/event-stream" if stream else "application/json",
    }
    if flags.auth is not None and flags.auth.header and flags.auth.value:
        found[flags.auth.header.lower()] = flags.auth.value
    if basic is not None:
        found["authorization"] = basic
    return {**found, **_lower(flags.headers), **_lower(asked.extra_headers)}


def _lower(headers: Mapping[str, str] | None) -> dict[str, str]:
    return {name.lower(): value for name, value in (headers or {}).items()}
