"""What a docstring says of a function and of its parameters: Google's, NumPy's and Sphinx's way of writing it."""

from __future__ import annotations

import re
import textwrap

from msgspec import Struct

__all__ = ["Docstring", "parse_docstring"]

_SECTIONS = (
    "Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters|Returns?|Yields?|Raises?|"
    "Examples?|Notes?|Warns|Warnings?|Attributes|References|See Also"
)
_OF_PARAMETERS = {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters"}
_HEAD = re.compile(rf"^({_SECTIONS})\s*(:?)\s*$")
_GOOGLE = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:(?!:)\s*(.*)$")
_NUMPY = re.compile(r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_SPHINX = re.compile(r"^:(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*?\s)?\*{0,2}(\w+)\s*:\s*(.*)$")
_FIELD = re.compile(r"^:\w+[^:]*:")


class Docstring(Struct, frozen=True):
    """`text`: what it says before its first section. `parameters`: name → description."""

    text: str
    parameters: dict[str, str]


def parse_docstring(doc: str) -> Docstring:
    """A docstring, its indentation cleaned (`inspect.getdoc`), taken apart."""
    lines = doc.splitlines()
    first = next((at for at in range(len(lines)) if _head(lines, at) or _FIELD.match(lines[at])), len(lines))
    parameters: dict[str, str] = {}
    at = first
    while at < len(lines):
        head = _head(lines, at)
        end = next((n for n in range(at + 1, len(lines)) if _head(lines, n) or _FIELD.match(lines[n])), len(lines))
        if head and head[1].lower() in _OF_PARAMETERS:
            numpy = not head[2]
            parameters |= _entries(lines[at + (2 if numpy else 1) : end], _NUMPY if numpy else _GOOGLE)
        elif found := _SPHINX.match(lines[at]):
            parameters[found[1]] = _flat([found[2], *lines[at + 1 : end]])
        at = end
    return Docstring("\n".join(lines[:first]).strip(), {name: said for name, said in parameters.items() if said})


def _head(lines: list[str], at: int) -> re.Match[str] | None:
    """A section's heading: with a colon, or underlined."""
    found = _HEAD.match(lines[at])
    if found is None or found[2]:
        return found
    following = lines[at + 1].strip() if at + 1 < len(lines) else ""
    return found if len(following) > 2 and set(following) == {"-"} else None


def _entries(lines: list[str], entry: re.Pattern[str]) -> dict[str, str]:
    """A section's parameters: each begins at the left, what is further in goes on with it."""
    out: dict[str, list[str]] = {}
    names: list[str] = []
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        found = None if line[:1].isspace() else entry.match(line)
        if found:
            names = [name.strip(" *") for name in found[1].split(",")]
            out |= {name: [found[2] if entry is _GOOGLE else ""] for name in names}
        elif line.strip() or names:
            for name in names:
                out[name].append(line)
    return {name: _flat(said) for name, said in out.items()}


def _flat(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())
