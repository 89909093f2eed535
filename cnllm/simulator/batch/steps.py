"""Tell which step of a batch interface a request is, by the paths that the flags name."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from msgspec import Struct

from cnllm.errors import UnknownModel
from cnllm.protocols import PROTOCOLS, server_codec
from cnllm.protocols.server_interface import BatchForm
from cnllm.registry.flags import Batch
from cnllm.registry.flags.batch import BatchJob
from cnllm.registry.model import Model
from cnllm.simulator.respond import ModelLookup

__all__ = ["BatchStep", "Interface", "find_step", "provider_interfaces"]

StepName = Literal["upload", "submit", "poll", "list", "results", "cancel", "file"]


class Interface(Struct, frozen=True):
    """A provider's batch interface on one wire. `model` is the endpoint; its id does not count."""

    model: Model
    flags: Batch

    @property
    def form(self) -> BatchForm:
        """Return the words of the wire's own interface."""
        return server_codec(self.model.protocol).batch

    @property
    def paths(self) -> dict[StepName, tuple[str, str | None]]:
        """Return method and path of each step in the order in which they are tried: paths that name more come first."""
        flags, job = self.flags, self.flags.job or BatchJob()
        upload = flags.upload.path if flags.upload is not None else None
        return {
            "upload": ("POST", upload),
            "submit": ("POST", flags.submit.path if flags.submit is not None else None),
            "cancel": ("POST", job.cancel),
            "list": ("GET", flags.list_.path if flags.list_ is not None else None),
            "results": ("GET", flags.results.path if flags.results is not None else None),
            "file": ("GET", f"{upload}/{{file}}" if upload else None),
            "poll": ("GET", job.path),
        }

    def match(self, step: StepName, method: str, path: str) -> re.Match[str] | None:
        """Return the match of a request with the path of a step, with what the path names."""
        verb, own = self.paths[step]
        return _compile(own.partition("?")[0]).fullmatch(path) if own and verb == method else None


class BatchStep(Struct, frozen=True):
    """A step: the interfaces of the provider that have it at this path, and what the path names."""

    name: StepName
    interfaces: tuple[Interface, ...]
    names: dict[str, str] = {}


def find_step(interfaces: tuple[Interface, ...], method: str, path: str) -> BatchStep | None:
    """Return the step that a request to one of a provider's paths is, or None."""
    for step in interfaces[0].paths if interfaces else ():
        hits = [(found, match) for found in interfaces if (match := found.match(step, method, path)) is not None]
        if hits:
            return BatchStep(step, tuple(found for found, _ in hits), hits[0][1].groupdict())
    return None


def provider_interfaces(registry: ModelLookup, provider: str) -> tuple[Interface, ...]:
    """Return a provider's batch interfaces, one per wire: that of its first model that is served in batches."""
    found: dict[str, Interface] = {}
    names = [f"{provider}/any", *(name for name in registry.names() if name.startswith(f"{provider}/"))]
    for protocol in (None, *PROTOCOLS):
        for name in names:
            try:
                model = registry.resolve(name, protocol=protocol)
            except UnknownModel:
                break  # there is no such provider, or it does not speak this protocol
            flags = model.flags.batch
            if flags is not None and flags.available and flags.submit is not None and flags.input != "calls":
                found.setdefault(model.protocol, Interface(model, flags))
                break
    return tuple(found.values())


@cache
def _compile(path: str) -> re.Pattern[str]:
    """Return the pattern of a path with names in braces. A name that is a whole path has a slash in it."""
    is_whole = path in ("/{id}", "/{id}:cancel")
    texts = {"model": ".+", "id": r"[^/]+/[^/:]+" if is_whole else "[^/]+"}
    pattern = re.sub(r"\\\{(\w+)\\\}", lambda name: f"(?P<{name[1]}>{texts.get(name[1], '[^/]+')})", re.escape(path))
    return re.compile(pattern)
