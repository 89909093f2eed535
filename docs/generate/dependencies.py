"""The packages that pip installs with this one, from their own metadata."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from cnllm.config.distribution import NAME
from docs.generate.markdown import cell, table

__all__ = ["closure", "licence", "page"]

_PROJECT = Path(__file__).parents[2] / "pyproject.toml"
_SYSTEM = {
    "extra": "",
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "python_version": "3.11",
    "python_full_version": "3.11.0",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}
_DIRECT = {
    "click": "the command line",
    "httpx": "HTTP, proxies, and your own transports",
    "jsonschema": "arguments and answers against a JSON Schema",
    "msgspec": "messages, events and replies; JSON at speed; the parsed registry",
    "platformdirs": "where configuration, data and caches stand on macOS and Windows",
    "pydantic": "tools from functions, and models as schemas",
    "referencing": "references inside of a JSON Schema",
    "tomli-w": "registry files that commands write",
    "typing-extensions": "defaults of type variables, which Python has from 3.13 on",
}
_CLASSIFIERS = {"MIT License": "MIT", "BSD License": "BSD", "Apache Software License": "Apache-2.0"}


def closure() -> dict[str, str]:
    """Return the packages that pip installs with this one here, and which package needs each first."""
    found: dict[str, str] = {}
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]  # pip's record may be an older one
    waiting = [(name, NAME) for name in _names(project["dependencies"])]
    while waiting:
        name, parent = waiting.pop(0)
        if name not in found:
            found[name] = parent
            waiting += [(each, name) for each in _requirements(name)]
    return found


def _requirements(distribution: str) -> list[str]:
    """Return the names of what a distribution needs without extras."""
    return _names(metadata.requires(distribution) or [])


def _names(requirements: list[str]) -> list[str]:
    lines = map(Requirement, requirements)
    names = [each.name for each in lines if each.marker is None or each.marker.evaluate(_SYSTEM)]
    return sorted(re.sub(r"[-_.]+", "-", name).lower() for name in names)


def licence(distribution: str) -> str:
    """Return the licence that a distribution states: as an expression, in a word, or as a classifier."""
    data = metadata.metadata(distribution)
    stated = [*(data.get_all("License-Expression") or []), *(data.get_all("License") or [])]
    for line in stated:
        if line and "\n" not in line and len(line) < 40:
            return str(_CLASSIFIERS.get(line, line))
    for classifier in data.get_all("Classifier") or []:
        if classifier.startswith("License :: "):
            name = classifier.rpartition(" :: ")[2]
            return str(_CLASSIFIERS.get(name, name))
    return "not stated"


def page() -> str:
    """Return a page with every package, its use and its licence."""
    rows = [
        [f"`{name}`", cell(_DIRECT.get(name, "")) or f"for `{parent}`", cell(licence(name))]
        for name, parent in sorted(closure().items(), key=lambda item: (item[1] != NAME, item[0]))
    ]
    return "\n\n".join(
        [
            "# Dependencies",
            f"pip installs these with `{NAME}`, on Linux and Python 3.11. Extras bring more, and each only where you "
            "ask for it. No version has a ceiling here: a library must not keep another one's newer release out.",
            table(["package", "for", "licence"], rows),
            f"`{NAME}` itself is under Apache-2.0. The sources of its data have their own licences: `DATA_SOURCES.md` "
            "names them.",
        ]
    ) + "\n"  # fmt: skip
