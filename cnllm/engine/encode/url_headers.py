"""Build the URL and the headers of a request."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

from cnllm.config.http_address import address_fault
from cnllm.engine.adjustments import Ledger
from cnllm.engine.options import RequestOptions
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model
from cnllm.types import checks

__all__ = ["basic_auth", "endpoint_url", "join_url", "request_headers"]


def endpoint_url(model: Model, flags: Flags, ledger: Ledger, *, stream: bool) -> tuple[str, str]:
    """Return the URL, and the name and password from it, which are not shown.

    Raises `CannotSend` where there is no valid URL.
    """
    if not flags.base_url:
        hint = "--base-url URL (in Python registry.resolve(name, base_url=…))"
        ledger.refuse("no-base-url", "base_url", "not given", "the registry does not know the address", hint=hint)
    if address_fault(flags.base_url or "") is not None:
        hint, address = "it begins with http:// or https://", (flags.base_url or "").rpartition("@")[2]
        ledger.refuse("bad-base-url", "base_url", address, "it is not an HTTP URL", hint=hint)
    path = (flags.stream_path if stream else None) or flags.path or ""
    if "{model}" in path and (reason := checks.unfit_id(model.id)) is not None:
        ledger.refuse("bad-model-id", "path", ascii(model.id), reason)
    base = (flags.base_url or "").rstrip("/")
    if path.startswith("/") and base.endswith(path):  # copied from a page of the vendor
        base = base.removesuffix(path)
        ledger.note("address-path", "base_url", f"an address that ends with {path}", "sent there: it is no base URL")
    url, userinfo = join_url(base, path, model.id)
    if path and not path.startswith("/") and not _same_host(base, join_url(base, path, "m")[0]):
        ledger.refuse("bad-path", "path", path, "it would change the host or port of the URL: begin it with /")
    if address_fault(url) is not None:
        ledger.refuse("bad-path", "path", path, "with it the address is not an HTTP URL: begin it with /")
    return url, userinfo


def _same_host(base: str, url: str) -> bool:
    """Whether a URL with its path has the host and port of its base."""
    try:
        before, after = urlsplit(base), urlsplit(url)
        return (before.scheme, before.hostname, before.port) == (after.scheme, after.hostname, after.port)
    except ValueError:
        return False


@lru_cache(maxsize=256)
def join_url(base: str, path: str, id: str) -> tuple[str, str]:
    """Return the URL of a path below a base, and the name and password in it."""
    url = base.rstrip("/") + path.replace("{model}", quote(id, safe="/:"))
    if "@" not in url:
        return url, ""
    scheme, _, rest = url.partition("://")
    end = next((index for index, char in enumerate(rest) if char in "/?#"), len(rest))
    userinfo, _, host = rest[:end].rpartition("@")
    return f"{scheme}://{host}{rest[end:]}", userinfo


def basic_auth(userinfo: str, flags: Flags, ledger: Ledger) -> str | None:
    """Return the `authorization` header for a name and password in the URL; a key takes precedence over it."""
    if not userinfo:
        return None
    subject = "a name and password in the address"
    if flags.keys and flags.auth is not None and (flags.auth.header or "").lower() == "authorization":
        ledger.note("address-password", "base_url", subject, "left out: the key goes into the same header")
        return None
    ledger.note("address-password", "base_url", subject, "sent as `authorization: Basic`")
    name, _, password = userinfo.partition(":")
    return f"Basic {base64.b64encode(f'{unquote(name)}:{unquote(password)}'.encode()).decode()}"


def request_headers(flags: Flags, options: RequestOptions, basic: str | None, *, stream: bool) -> dict[str, str]:
    """Return the endpoint's headers, with `{key}` as a placeholder, then the caller's; names in lower case."""
    is_lines = flags.stream.framing == "ndjson"
    stream_type = "application/x-ndjson" if is_lines else "text/event-stream"
    headers = {"content-type": "application/json", "accept": stream_type if stream else "application/json"}
    if flags.auth is not None and flags.auth.header and flags.auth.value:
        headers[flags.auth.header.lower()] = flags.auth.value
    if basic is not None:
        headers["authorization"] = basic
    return {**headers, **_lower(flags.headers), **_lower(options.extra_headers)}


def _lower(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return headers with names in lower case."""
    return {name.lower(): value for name, value in (headers or {}).items()}
