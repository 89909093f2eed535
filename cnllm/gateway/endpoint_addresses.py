"""Hide the addresses of endpoints in what a client is told."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from functools import lru_cache, partial
from urllib.parse import urlsplit

from msgspec.structs import replace

from cnllm.registry.model import Model
from cnllm.types import Note

__all__ = ["EndpointAddresses", "ProviderBases", "bases_of"]

ProviderBases = tuple[str, tuple[str, ...]]
"""A provider, and its base URLs."""

_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s,;'\")]+", re.IGNORECASE)
_ADDRESS = re.compile(r"\('[^']*', \d+[^)]*\)|\[[0-9a-f.:]*:[0-9a-f.:]*\](?::\d+)?|(?<![\w.])\d+(?:\.\d+){3}(?::\d+)?")
_NETWORK = frozenset(["target-failed", "target-passed-over"])  # the codes of notes with an error of a call


class EndpointAddresses:
    """The addresses of the models that may answer a request: they are no business of its client.

    `bases` are their providers, each with its base URLs.
    """

    def __init__(self, bases: Iterable[ProviderBases]) -> None:
        hosts: dict[str, set[str]] = {}
        for provider, addresses in bases:
            for address in addresses:
                with contextlib.suppress(ValueError):
                    if host := urlsplit(address).hostname:
                        hosts.setdefault(host, set()).add(provider)
        self._names = {host: _name(providers) for host, providers in hosts.items()}
        self._any = _name({provider for providers in hosts.values() for provider in providers})

    def hide(self, text: str, *, network: bool = False) -> str:
        """Return a text without these addresses; with `network` without any, as there may be proxies on the way."""
        lower = text.lower()
        if hosts := tuple(host for host in self._names if host in lower):
            text = _pattern(hosts).sub(partial(_replace, self._names), text)
        return _ADDRESS.sub(self._any, _URL.sub(self._any, text)) if network else text

    def hide_in_note(self, note: Note) -> Note:
        """Return a note without these addresses, and without the folder of the file that it names."""
        network = note.code in _NETWORK
        said, did = self.hide(note.said, network=network), self.hide(note.did, network=network)
        return replace(note, said=said, did=did, where=re.split(r"[/\\]", note.where)[-1])


def bases_of(models: Iterable[Model]) -> tuple[ProviderBases, ...]:
    """Return the providers of models with their base URLs: they hold no registry, as models do."""
    return tuple([(model.provider, model.addresses) for model in models])


def _name(providers: set[str]) -> str:
    """Return the words for an address that these providers share."""
    return f"the endpoint of {min(providers)}" if len(providers) == 1 else "the endpoint"


@lru_cache(maxsize=256)
def _pattern(hosts: tuple[str, ...]) -> re.Pattern[str]:
    """Return what finds URLs with these hosts, and the hosts alone.

    A host of one word before a slash is the name of a provider before that of its model.
    """
    either = "|".join(map(re.escape, hosts))
    alone = "|".join(re.escape(host) + ("" if "." in host else "(?!/)") for host in hosts)
    url = rf"\b[a-z]+://(?:[^\s/@]*@)?(?P<url>{either})(?![\w.-])[^\s,;'\")]*"
    return re.compile(rf"{url}|(?<![\w.-])(?P<host>{alone})(?::\d+)?(?![\w-])", re.IGNORECASE)


def _replace(names: dict[str, str], match: re.Match[str]) -> str:
    """Return the words that stand for an address."""
    return names[(match["url"] or match["host"]).lower()]
