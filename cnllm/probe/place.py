"""Find the places where an endpoint may take requests: the usual paths on the host that the user gave, nothing else."""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine import build_request
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError
from cnllm.probe.bodies import plain_model
from cnllm.probe.exchange import Ask
from cnllm.protocols import PROTOCOLS
from cnllm.registry.model import Model
from cnllm.registry.registry import Registry

__all__ = [
    "KEY_HEADERS",
    "PROVIDER",
    "EndpointPlace",
    "ProbeTarget",
    "assumed_at",
    "bare_address",
    "model_at",
    "places",
    "plan_at",
]

KEY_HEADERS = (("Authorization", "Bearer {key}"), ("x-api-key", "{key}"), ("api-key", "{key}"))
"""The headers in which a key is tried, beside that of the wire."""

_VERSION = re.compile(r"/v\d+(?:beta\d*|alpha\d*)?$")
_ENDINGS = {"openai-chat": "/chat/completions", "anthropic-messages": "/v1/messages", "openai-responses": "/responses"}
PROVIDER = "openai-compatible"
"""The provider of models at an endpoint that nobody has described."""


class EndpointPlace(Struct, frozen=True):
    """The address for requests of one wire, and the header that carries the key. None: as the wire has it."""

    protocol: str
    base_url: str
    path: str | None = None
    auth: tuple[str, str] | None = None
    stream_path: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether the endpoint is a server of one's own: nobody else's takes requests without encryption."""
        return self.base_url.startswith("http://")


class ProbeTarget(Struct, frozen=True, kw_only=True):
    """The target of a probe. `price` is that of a million input and output tokens.

    Where the registry describes the endpoint, `provider` is its name, `place` the very place, and `claims` the model
    whose switches are tried first. `keys` are the variables of a new provider's key.
    """

    base_url: str
    id: str | None = None
    protocol: str | None = None
    api_key: str | None = None
    keys: tuple[str, ...] = ()
    price: tuple[float, float] | None = None
    provider: str | None = None
    place: EndpointPlace | None = None
    claims: Model | None = None

    def __repr__(self) -> str:  # without the key
        return f"<ProbeTarget {self.id} at {self.base_url}>"


def bare_address(url: str) -> tuple[str, str | None]:
    """Return a base URL, and the wire whose path stood at the end of the address. Raises `CnllmError`."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
    except ValueError:  # a host in brackets that is none
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise CnllmError(f"{url} is not the URL of an endpoint", hint="it begins with http:// or https://")
    path = parts.path.rstrip("/")
    protocol = next((name for name, ending in _ENDINGS.items() if path.endswith(ending)), None)
    path = path.removesuffix(_ENDINGS.get(protocol or "", ""))
    return urlunsplit((parts.scheme, parts.netloc, path, "", "")), protocol


def places(registry: Registry, base_url: str, protocol: str | None = None) -> list[EndpointPlace]:
    """Return the places to try, the likeliest first."""
    found: list[EndpointPlace] = []
    for name in PROTOCOLS if protocol is None else (protocol,):
        path = registry.resolve(f"{PROVIDER}/any", protocol=name, base_url=base_url).flags.path or ""
        found += [EndpointPlace(name, base) for base in _bases(base_url, path)]
    return list(dict.fromkeys(found))


def _bases(base_url: str, path: str) -> list[str]:
    """Return the base URLs for a path of a wire: with and without a version, which must not stand twice."""
    root = _VERSION.sub("", base_url)
    if path.startswith("/v1/"):
        return [root, base_url] if root != base_url else [base_url]
    if root != base_url:
        return [base_url, root + "/v1beta"] if "{model}" in path and not base_url.endswith("beta") else [base_url]
    first = ["/v1beta", "/v1"] if "{model}" in path else ["/v1"]
    return [*(root + version for version in first), root]


def assumed_at(registry: Registry, place: EndpointPlace, id: str) -> Model:
    """Return the model of an endpoint that nobody has described, at a place: what is assumed of any on the wire."""
    return registry.resolve(f"{PROVIDER}/{id}", protocol=place.protocol, base_url=place.base_url)


def model_at(registry: Registry, place: EndpointPlace, id: str) -> Model:
    """Return the model of an endpoint that nobody has described, at a place. Nothing is adjusted for it."""
    return plain_model(assumed_at(registry, place, id))


def plan_at(model: Model, place: EndpointPlace, ask: Ask) -> Plan:
    """Return the request that asks. One with a path of its own is a GET for metadata."""
    plan = build_request(model, "x", stream=ask.stream)
    headers = dict(plan.headers)
    own = next((name for name, value in headers.items() if "{key}" in value), None)
    if place.auth is not None and own is not None:
        del headers[own]
        headers[place.auth[0].lower()] = place.auth[1]
    if ask.keyless:
        headers = {name: value for name, value in headers.items() if "{key}" not in value}
    if ask.path is not None:
        headers = {name: value for name, value in headers.items() if name != "content-type"}
        headers["accept"] = "application/json"
        return replace(plan, method="GET", url=ask.path, headers=headers, content=b"")
    own_path = (place.stream_path if ask.stream else None) or place.path
    url = plan.url if own_path is None else place.base_url + own_path.replace("{model}", quote(model.id, safe="/:@"))
    return replace(plan, url=url, headers=headers, content=msgspec.json.encode(ask.body), stream=ask.stream)
