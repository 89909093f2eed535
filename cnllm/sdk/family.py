"""Choose the family of HTTP clients, httpx2 or httpx, that the installed SDKs want. No SDK is imported for that."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from importlib import metadata, util
from pathlib import Path
from typing import Any

from cnllm.errors import CnllmError

__all__ = ["httpx_family"]

_FAMILIES = ("httpx2", "httpx")  # the newer first
_NAME = re.compile(r"[\w.-]+")


def httpx_family(name: str | None) -> Any:
    """Return the package of a family; None chooses one. Raises `ValueError` for another name."""
    if name is not None and name not in _FAMILIES:
        raise ValueError(f'family: "httpx2", "httpx" or None is expected, not {name!r}')
    name = name or _choose()
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CnllmError(f"{name} is not installed", hint=f"pip install {name}") from error


def _choose() -> str:
    """Return the family of the installed SDKs. Of several the imported ones count, then those that want the newer."""
    installed = [name for name in _FAMILIES if util.find_spec(name) is not None]
    if len(installed) == 1:
        return installed[0]
    wanted = {module: family for package, module in _modules().items() if (family := _wanted(package)) is not None}
    imported = [family for module, family in wanted.items() if module in sys.modules]
    families = imported or [*wanted.values()] or installed
    return next((name for name in _FAMILIES if name in families), _FAMILIES[0])


def _wanted(package: str) -> str | None:
    """Return the family that an installed package requires; None for a missing package, and for no family."""
    try:
        requirements = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return None
    names = {match[0].lower() for text in requirements if "extra ==" not in text and (match := _NAME.match(text))}
    return next((name for name in _FAMILIES if name in names), None)


def _modules() -> dict[str, str]:
    """Return the modules of the SDKs by their packages."""
    with (Path(__file__).parent / "packages.toml").open("rb") as file:
        modules: dict[str, str] = tomllib.load(file)["modules"]
    return modules
