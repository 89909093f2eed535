"""Recognise the error of a wrong base URL, and suggest a base that may work.

Only the form of the URL is known: a path that occurs twice, a version that is missing or doubled.
"""

from __future__ import annotations

import re
from functools import cache
from urllib.parse import urlsplit

from cnllm.protocols import PROTOCOLS, server_codec

__all__ = ["better_base_url", "is_suspected", "url_hint", "without_query"]

_STATUSES = (200, 301, 302, 307, 308, 404, 405, 501)
_NO_ROUTE = re.compile(
    r"^(?:(?:http )?404[:,.]? *)?(?:\(?(?:the )?(?:page|path|route|url|file|resource|endpoint|requested resource|"
    r"requested url(?: \S+)?|requested path|api|service)\)? )?"
    r"(?:was |is |could |can )?not(?: be)? found(?: on (?:this|the) server)?[.!]*$"
    r"|^\(?not found\)?\b[^\n]{0,20}$|^not found: */|\bcannot (?:post|get) /|\bno route\b"
    r"|\bno (?:matching|such) (?:route|path|endpoint|handler)|\bno static resource\b"
    r"|\b(?:invalid|unknown|unrecognized|unexpected|unsupported|wrong) (?:request )?"
    r"(?:ur[li]|(?:api )?path|route|endpoint)\b"
    r"|\broute\b[^\n]{0,120}\bnot found|\bmethod not allowed\b|\bmethod is not (?:allowed|supported)\b"
    r"|^HTTP (?:404|405|501) without a word$|^a page instead of a reply|^redirects to "
    r"|路由不存在|接口不存在|路径不存在|无效的(?:url|路径|接口)|页面不存在|找不到(?:路由|路径|接口|页面)",
    re.IGNORECASE,
)
_OTHER_PATHS = ("/completions", "/chat", "/embeddings", "/models")
"""Paths beside those of the wires that users paste into a base URL."""
_VERSION = re.compile(r"/v\d+(?:(?:alpha|beta)\d*)?(?=/|$)")
_REPEATED_VERSION = re.compile(r"(/v\d+(?:(?:alpha|beta)\d*)?)(?:/+v\d+(?:(?:alpha|beta)\d*)?)+(?=/|$)")
_MODEL = re.compile(r"/models/[^/]+(?:/[^/]+)?:\w+$")


def is_suspected(status: int, message: str) -> bool:
    """Whether an error says that nothing is served at this URL: no route, or an HTML page."""
    return status in _STATUSES and _NO_ROUTE.search(message) is not None


def without_query(url: str) -> str:
    """Return a URL for display: without a query, which may hold a key, and without a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def url_hint(url: str, path: str, protocol: str) -> str:
    """Return what to do about the base URL, with a better one where the form of the URL suggests it."""
    better = better_base_url(url, path, protocol)
    if better is None:
        return f"no model is served at {without_query(url)}; check base_url"
    return f"the request went to {without_query(url)}; base_url={better!r} may work"


def better_base_url(url: str, path: str, protocol: str) -> str | None:
    """Return a base URL that may work better than that of this URL; None where its form shows no fault."""
    address = without_query(url)
    scheme, _, rest = address.partition("://")
    host, _, tail = rest.partition("/")
    before = _without_path(f"/{tail}" if tail else "", path)
    after = re.sub(r"/{2,}", "/", before).rstrip("/")
    while (shorter := _without_known_path(after)) != after:
        after = shorter
    after = _REPEATED_VERSION.sub(r"\1", after)
    version = _VERSION.match(path)  # the wire's own path begins with a version
    if version is not None:
        after = after.removesuffix(version[0])
    elif not _VERSION.search(after):
        after += _usual_version(protocol)
    return f"{scheme}://{host}{after}" if after != before.rstrip("/") else None


def _without_path(tail: str, path: str) -> str:
    """Return the path of a URL without the wire's path."""
    path = path.partition("?")[0]
    if "{model}" in path:
        return _MODEL.sub("", tail)
    return tail.removesuffix(path)


def _without_known_path(tail: str) -> str:
    """Return a path without a known ending."""
    tail = _MODEL.sub("", tail)
    for ending in _known_endings():
        tail = tail.removesuffix(ending)
    return tail.rstrip("/")


@cache
def _known_endings() -> tuple[str, ...]:
    """Return the endings of URLs that are paths and belong in no base URL, each with and without its version."""
    paths = [path.rpartition("{model}")[2] for name in PROTOCOLS for path in server_codec(name).paths]
    both = [ending for path in paths for ending in (path, _VERSION.sub("", path, count=1))]
    return tuple(dict.fromkeys([*both, *_OTHER_PATHS]))


def _usual_version(protocol: str) -> str:
    """Return the version in the usual path of a wire."""
    paths = server_codec(protocol).paths if protocol in PROTOCOLS else ()
    return next((match[0] for path in paths if (match := _VERSION.match(path))), "/v1")
