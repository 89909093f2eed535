"""Recognise an error of a wrong base URL, and name the base that would work.

Only the shape of the address is known: a path that stands in it twice, a version that is missing or doubled.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

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
_TAILS = (
    *(
        "/chat/completions",
        "/v1/messages",
        "/messages",
        "/responses",
        "/completions",
        "/chat",
        "/embeddings",
        "/models",
    ),
    *(":streamGenerateContent", ":generateContent"),
)
_VERSION = re.compile(r"/v\d+(?:(?:alpha|beta)\d*)?(?=/|$)")
_TWICE = re.compile(r"(/v\d+(?:(?:alpha|beta)\d*)?)(?:/+v\d+(?:(?:alpha|beta)\d*)?)+(?=/|$)")
_MODEL = re.compile(r"/models/[^/]+(?:/[^/]+)?:\w+$")


def is_suspected(status: int, message: str, body: str) -> bool:
    """Whether an error says that nothing answers at this address: no route, or a page for people."""
    if status not in _STATUSES:
        return False
    return _NO_ROUTE.search(message) is not None or body.lstrip()[:15].lower().startswith(("<!doctype", "<html"))


def without_query(url: str) -> str:
    """Return an address as it may be shown: without a query, which may hold a key, and without a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def url_hint(url: str, path: str, protocol: str) -> str:
    """Return what to do about the base URL: the one that would work, as far as the shape tells."""
    better = better_base_url(url, path, protocol)
    if better is None:
        return f"nothing answers at {without_query(url)}; check base_url"
    return f"{without_query(url)} was asked; base_url={better!r} may work"


def better_base_url(url: str, path: str, protocol: str) -> str | None:
    """Return a base URL that would work better than the one of this address; None where the shape shows no fault."""
    whole = without_query(url)
    scheme, _, rest = whole.partition("://")
    host, _, tail = rest.partition("/")
    was = _without(f"/{tail}" if tail else "", path)
    now = re.sub(r"/{2,}", "/", was).rstrip("/")
    while (cut := _cut(now)) != now:
        now = cut
    now = _TWICE.sub(r"\1", now)
    own = _VERSION.match(path)  # the wire's own path begins with a version
    if own is not None:
        now = now.removesuffix(own[0])
    elif not _VERSION.search(now):
        now += "/v1beta" if protocol == "gemini" else "/v1"
    return f"{scheme}://{host}{now}" if now != was.rstrip("/") else None


def _without(tail: str, path: str) -> str:
    """The path of an address without what the wire puts behind its base."""
    path = path.partition("?")[0]
    if "{model}" in path:
        return _MODEL.sub("", tail)
    return tail.removesuffix(path)


def _cut(tail: str) -> str:
    tail = _MODEL.sub("", tail)
    for known in _TAILS:
        tail = tail.removesuffix(known)
    return tail.rstrip("/")
