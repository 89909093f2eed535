"""Choose the family of HTTP clients, httpx2 or httpx, that the installed SDKs want. No SDK is imported for that.

A vendor's SDK is an installed package with the name of a provider, alone or as one of its words, and its requirements
name its family.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Iterable
from importlib import metadata, util
from typing import Any

from cnllm.errors import CnllmError

__all__ = ["httpx_family", "wanted_families"]

_FAMILIES = ("httpx2", "httpx")  # the newer first
_NAME = re.compile(r"[\w.-]+")


def httpx_family(name: str | None, providers: Iterable[str]) -> Any:
    """Return the package of a family; None chooses one. Raises `ValueError` for another name."""
    if name is not None and name not in _FAMILIES:
        raise ValueError(f'family: "httpx2", "httpx" or None is expected, not {name!r}')
    name = name or _choose(providers)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CnllmError(f"{name} is not installed", hint=f"pip install {name}") from error


def _choose(providers: Iterable[str]) -> str:
    """Return the family of the installed SDKs. Of several the imported ones count, then those that want the newer."""
    installed = [name for name in _FAMILIES if util.find_spec(name) is not None]
    if len(installed) == 1:
        return installed[0]
    wanted = wanted_families(frozenset(providers))
    imported = [family for package, family in wanted.items() if package.replace("-", "_") in sys.modules]
    families = imported or [*wanted.values()] or installed
    return next((name for name in _FAMILIES if name in families), _FAMILIES[0])


@functools.lru_cache(maxsize=8)  # a search takes 20 ms, and programs may make a client for each request
def wanted_families(providers: frozenset[str]) -> dict[str, str]:
    """Return the families that the installed SDKs require, by their packages."""
    wanted = {package: family for package in providers if (family := _required_family(package)) is not None}
    return wanted or _wanted_by_words(providers)


def _required_family(package: str) -> str | None:
    """Return the family that an installed package requires; None for a missing package, and for no family."""
    try:
        requirements = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return None
    names = {match[0].lower() for text in requirements if "extra ==" not in text and (match := _NAME.match(text))}
    return next((name for name in _FAMILIES if name in names), None)


def _wanted_by_words(providers: frozenset[str]) -> dict[str, str]:
    """Return the families that packages require whose names have a provider's name as a word, by the packages."""
    names = {str(distribution.name).lower() for distribution in metadata.distributions() if distribution.name}
    return {
        name: family
        for name in names
        if not providers.isdisjoint(re.split("[-_.]", name)) and (family := _required_family(name)) is not None
    }
