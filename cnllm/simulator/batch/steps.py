"""Tell which step of a batch interface a request is, by the paths that the flags name."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from msgspec import Struct

from cnllm.errors import UnknownModel
from cnllm.protocols import PROTOCOLS, server_codec
from cnllm.protocols.batch_form import BatchForm
from cnllm.registry.flags import Batch
from cnllm.registry.model import Model
from cnllm.simulator.respond import ModelLookup

__all__ = ["Interface", "Offers", "Step"]

StepName = Literal["upload", "submit", "poll", "list", "results", "cancel", "file"]
_STEPS: tuple[StepName, ...] = ("upload", "submit", "cancel", "list", "results", "file", "poll")
"""In the order in which paths are tried: those that name more come first."""


class Interface(Struct, frozen=True):
    """A provider's batch interface on one wire. `model` is the endpoint; its id does not count."""

    model: Model
    flags: Batch

    @property
    def form(self) -> BatchForm:
        """Return the words of the wire's own interface."""
        return server_codec(self.model.protocol).batch

    @property
    def patterns(self) -> list[tuple[str, StepName, str]]:
        """Return (method, step, path) of each step, the most specific path first."""
        flags = self.flags
        upload = flags.upload.path if flags.upload is not None else None
        paths: list[tuple[str, StepName, str | None]] = [
            ("POST", "upload", upload),
            ("POST", "submit", flags.submit.path if flags.submit is not None else None),
            ("POST", "cancel", flags.job.cancel if flags.job is not None else None),
            ("GET", "list", flags.list_.path if flags.list_ is not None else None),
            ("GET", "results", flags.results.path if flags.results is not None else None),
            ("GET", "file", f"{upload}/{{file}}" if upload else None),
            ("GET", "poll", flags.job.path if flags.job is not None else None),
        ]
        return [(method, step, path.partition("?")[0]) for method, step, path in paths if path]


class Step(Struct, frozen=True):
    """A step: the interfaces of the provider that have it at this path, and what the path names."""

    name: StepName
    interfaces: tuple[Interface, ...]
    names: dict[str, str] = {}


class Offers:
    """The batch interfaces of providers, looked up when they are needed."""

    def __init__(self) -> None:
        self._shapes: dict[str, tuple[Interface, ...]] = {}
        self._offered: dict[tuple[str, str], bool] = {}

    def find_step(self, registry: ModelLookup, provider: str, method: str, path: str) -> Step | None:
        """Return the step that a request to one of a provider's paths is, or None."""
        shapes = self._shapes.get(provider)
        if shapes is None:
            shapes = self._shapes[provider] = _shapes(registry, provider)
        for kind in _STEPS:
            hits = [(shape, names) for shape in shapes if (names := _names(shape, kind, method, path)) is not None]
            if hits := [(shape, names) for shape, names in hits if self._is_offered(registry, shape)]:
                return Step(kind, tuple(shape for shape, _ in hits), hits[0][1])
        return None

    def _is_offered(self, registry: ModelLookup, shape: Interface) -> bool:
        """Whether a provider has the interface: it or one of its models says so. The shape alone is the wire's."""
        if shape.flags.available is not None:
            return shape.flags.available
        provider, protocol = shape.model.provider, shape.model.protocol
        if (provider, protocol) not in self._offered:
            names = (name for name in registry.names() if name.startswith(f"{provider}/"))
            batches = (registry.resolve(name, protocol=protocol).flags.batch for name in names)
            self._offered[provider, protocol] = any(batch is not None and batch.available for batch in batches)
        return self._offered[provider, protocol]


def _shapes(registry: ModelLookup, provider: str) -> tuple[Interface, ...]:
    """Return a provider's batch interfaces, one per wire, whether it has them or not; none for an unknown provider."""
    found: dict[str, Interface] = {}
    for protocol in (None, *PROTOCOLS):
        try:
            model = registry.resolve(f"{provider}/any", protocol=protocol)
        except UnknownModel:
            if protocol is None:
                return ()  # there is no such provider
            continue
        flags = model.flags.batch
        if flags is not None and flags.submit is not None and flags.input != "calls":
            found.setdefault(model.protocol, Interface(model, flags))
    return tuple(found.values())


def _names(offer: Interface, kind: StepName, method: str, path: str) -> dict[str, str] | None:
    """Return what a path names, if it is the path of this step; None otherwise."""
    for verb, step, pattern in offer.patterns:
        if (verb, step) == (method, kind) and (match := _compile(pattern).fullmatch(path)) is not None:
            return match.groupdict()
    return None


@cache
def _compile(path: str) -> re.Pattern[str]:
    """Return the pattern of a path with names in braces. A name that is a whole path has a slash in it."""
    is_whole = path in ("/{id}", "/{id}:cancel")
    texts = {"model": ".+", "id": r"[^/]+/[^/:]+" if is_whole else "[^/]+"}
    pattern = re.sub(r"\\\{(\w+)\\\}", lambda name: f"(?P<{name[1]}>{texts.get(name[1], '[^/]+')})", re.escape(path))
    return re.compile(pattern)
