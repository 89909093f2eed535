"""Find the endpoint of an HTTP request by its method, path and headers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Literal

from msgspec import Struct

from cnllm.protocols import PROTOCOLS, server_api, server_codec

__all__ = [
    "NO_WIRE",
    "ROUTES",
    "Endpoint",
    "Route",
    "client_protocol",
    "find_endpoint",
    "path_protocol",
    "plain_path",
    "short_path",
]

Verb = Literal[
    "generate", "count", "models", "model", "response", "response-items", "delete-response", "cancel-response",
    "alive", "ready", "request", "metrics", "ui",
]  # fmt: skip


class Endpoint(Struct, frozen=True):
    """A resource of the gateway and what is done with it. `name` is the model or the id in the path."""

    verb: Verb
    protocol: str
    name: str = ""


class Route(Struct, frozen=True):
    """The rules for the requests of one verb.

    `methods` are its HTTP methods, empty for all. `scope` says who may send one: anyone, the operator, or a client with
    a valid key. `named` says what its path names: a model that the key has to allow, or something that only the key
    that made it may see. `is_counted`: it counts against the key's limit of requests, and its body names a model that
    the key has to allow.
    """

    methods: tuple[str, ...]
    scope: Literal["anyone", "operator", "client"] = "client"
    named: Literal["", "model", "own"] = ""
    is_counted: bool = False


_READ = ("GET", "HEAD")

ROUTES: dict[Verb, Route] = {
    "generate": Route(("POST",), is_counted=True),
    "count": Route(("POST",), is_counted=True),
    "models": Route(_READ),
    "model": Route(_READ, named="model"),
    "response": Route(_READ, named="own"),
    "response-items": Route(_READ, named="own"),
    "delete-response": Route(("DELETE",), named="own"),
    "cancel-response": Route(("POST",), named="own"),
    "request": Route(_READ, named="own"),
    "alive": Route((), "anyone"),
    "ready": Route((), "anyone"),
    "metrics": Route((), "operator"),
    "ui": Route((), "operator"),
}
"""The rules of every verb. `HttpRequest` applies them to each request, so that no endpoint has rules of its own."""

_VERSION = re.compile(r"/(?:v1beta|v1alpha|v1)(?=/)")
_LONGEST_PATH = 256  # characters that are shown
_EXTRA_SLASH = re.compile(r"/(?=/)|(?<=.)/\Z")
NO_WIRE = "openai-chat"  # the protocol of errors where nothing shows the client's


_OPERATOR_PATHS: dict[str, Endpoint] = {
    "/healthz": Endpoint("alive", NO_WIRE),
    "/readyz": Endpoint("ready", NO_WIRE),
    "/metrics": Endpoint("metrics", NO_WIRE),
    "/ui": Endpoint("ui", NO_WIRE),
}
"""The paths of the gateway itself, which have no version."""


def _calls() -> Iterator[tuple[str, Endpoint]]:
    """Yield the paths of all protocols at which a model is called, or a request is counted."""
    for protocol in PROTOCOLS:
        for path in server_codec(protocol).paths:
            yield path, Endpoint("generate", protocol)
        for path in server_api(protocol).count_paths:
            yield path, Endpoint("count", protocol)


@cache
def _exact_paths() -> dict[str, Endpoint]:
    """Return the endpoints whose paths do not name a model, by their paths with and without a version."""
    endpoints = dict(_OPERATOR_PATHS)
    for path, endpoint in _calls():
        if "{" not in path:
            endpoints[path] = endpoints[_without_version(path)] = endpoint
    return endpoints


@cache
def _patterns() -> list[tuple[re.Pattern[str], Verb, str]]:
    """Return the patterns of paths that name a model, or the id of a kept response."""
    patterns: list[tuple[re.Pattern[str], Verb, str]] = []
    for path, endpoint in _calls():
        if "{model}" in path:
            pattern = re.escape(_without_version(path)).replace(re.escape("{model}"), "(?P<name>.+)")
            patterns.append((re.compile(pattern, re.DOTALL), endpoint.verb, endpoint.protocol))
    for protocol in PROTOCOLS:
        if (folder := server_api(protocol).kept_replies) is not None:
            name = f"{re.escape(folder)}/(?P<name>[^/]+)"
            patterns += [
                (re.compile(name), "response", protocol),
                (re.compile(f"{name}/input_items"), "response-items", protocol),
                (re.compile(f"{name}/cancel"), "cancel-response", protocol),
            ]
    return patterns


def plain_path(path: str) -> str:
    """Return a path without second slashes, and without one at its end: an address and a path may both have one.

    Paths of the operator stay as they are: a proxy that hides them knows them in one form.
    """
    if "//" not in path and not path.endswith("/"):
        return path
    plain = _EXTRA_SLASH.sub("", path)
    return path if _without_version(plain) in _OPERATOR_PATHS or plain.startswith("/ui/") else plain


def short_path(path: str) -> str:
    """Return a path as it is kept and shown: of a long one the beginning."""
    return path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…"


def find_endpoint(method: str, path: str, headers: Mapping[str, str]) -> Endpoint | None:
    """Return the endpoint of a path, or None. A version before it (`/v1`) may be there or not.

    Lists of models have the shape of the protocol that the path or the client's headers show.
    """
    if (endpoint := _exact_paths().get(path)) is not None:
        return endpoint
    if path == "/" and method in ("GET", "HEAD"):
        return _OPERATOR_PATHS["/healthz"]
    if path.startswith("/ui/"):
        return Endpoint("ui", NO_WIRE, path[4:])
    rest = _without_version(path)
    if rest not in _OPERATOR_PATHS and (endpoint := _exact_paths().get(rest)) is not None:
        return endpoint
    for pattern, verb, protocol in _patterns():
        if (match := pattern.fullmatch(rest)) is not None:
            if verb == "response" and method == "POST":
                return None  # no protocol has it for one response: the name is that of a resource (`compact`)
            if verb == "response" and method == "DELETE":
                verb = "delete-response"
            return Endpoint(verb, protocol, match["name"])
    if rest == "/models":
        return Endpoint("models", path_protocol(path, headers))
    if rest.startswith("/models/"):
        if method == "POST":
            return None  # no protocol posts to a model: the path ends with a call that is missing (`:embedContent`)
        return Endpoint("model", path_protocol(path, headers), rest.removeprefix("/models/"))
    if rest.startswith("/requests/"):
        return Endpoint("request", NO_WIRE, rest.removeprefix("/requests/"))
    return None


def _without_version(path: str) -> str:
    """Return a path without the version at its beginning."""
    return _VERSION.sub("", path, count=1) if _VERSION.match(path) else path


@cache
def _prefixes() -> dict[str, str]:
    """Return the protocols by the beginnings of their paths that no other has: the first name, or the version."""
    protocols: dict[str, set[str]] = {}
    for path, endpoint in _calls():
        for start in _beginnings(path):
            protocols.setdefault(start, set()).add(endpoint.protocol)
    shared = ("", "/models")  # lists of models are there in every protocol
    return {start: min(found) for start, found in protocols.items() if len(found) == 1 and start not in shared}


def _beginnings(path: str) -> tuple[str, str]:
    """Return the version of a path and the first name behind it, empty where there is none."""
    rest = _without_version(path)
    return path[: len(path) - len(rest)], "/" + rest.split("/", 2)[1] if rest.startswith("/") else ""


def path_protocol(path: str, headers: Mapping[str, str]) -> str:
    """Return the protocol of a path that need not be there: by its beginning, else by the client's headers."""
    version, name = _beginnings(path)
    return _prefixes().get(name) or _prefixes().get(version) or client_protocol(headers)


def client_protocol(headers: Mapping[str, str]) -> str:
    """Return the protocol that a client's headers show, where the path shows none."""
    for protocol in PROTOCOLS:
        if (name := server_api(protocol).listing_header) is not None and name in headers:
            return protocol
    return NO_WIRE
