"""Read the address of a source: a package, a repository, a thread or a page."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

__all__ = ["Location", "locate"]

_FORMS = (
    ("npm", re.compile(r"https://www\.npmjs\.com/package/(?P<name>(?:@[^/]+/)?[^/#]+)(?:/v/(?P<version>[^/#]+))?/?")),
    ("pypi", re.compile(r"https://pypi\.org/project/(?P<name>[^/#]+)(?:/(?P<version>[^/#]+))?/?")),
    ("page", re.compile(r"(?P<name>https?://\S+)")),
    ("thread", re.compile(r"(?P<name>[\w.-]+/[\w.-]+)#(?P<version>\d+)")),
    ("repository", re.compile(r"(?P<name>[\w.-]+/[\w.-]+?)(?::(?P<path>[^@]+))?(?:@(?P<version>[\w.-]+))?")),
)


class Location(Struct, frozen=True):
    """The address of a source.

    `name` is that of the package or the repository, `version` the version, the commit or the number of a thread, `path`
    a file or a folder. Of a page, `name` is the URL. Words that are no address are a "note".
    """

    kind: Literal["npm", "pypi", "page", "thread", "repository", "note"]
    name: str
    version: str = ""
    path: str = ""


def locate(url: str, path: str = "") -> Location:
    """Return where a source is. `path` is the file that the citation names."""
    for kind, form in _FORMS:
        if found := form.fullmatch(url):
            part = found.groupdict()
            return Location(kind, part["name"], part.get("version") or "", path or part.get("path") or "")  # type: ignore[arg-type]
    return Location("note", url)
