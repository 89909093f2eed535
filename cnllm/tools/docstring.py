"""Parse a docstring's text and parameters, in the styles of Google, NumPy and Sphinx."""

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
    """`text`: the text before the first section. `parameters`: name → description."""

    text: str
    parameters: dict[str, str]


def parse_docstring(doc: str) -> Docstring:
    """Parse a docstring with clean indentation (`inspect.getdoc`)."""
    lines = doc.splitlines()
    first_section = next(
        (index for index in range(len(lines)) if _head(lines, index) or _FIELD.match(lines[index])), len(lines)
    )
    parameters: dict[str, str] = {}
    index = first_section
    while index < len(lines):
        head = _head(lines, index)
        end = next((n for n in range(index + 1, len(lines)) if _head(lines, n) or _FIELD.match(lines[n])), len(lines))
        if head and head[1].lower() in _OF_PARAMETERS:
            numpy = not head[2]
            parameters |= _entries(lines[index + (2 if numpy else 1) : end], _NUMPY if numpy else _GOOGLE)
        elif match := _SPHINX.match(lines[index]):
            parameters[match[1]] = _join_lines([match[2], *lines[index + 1 : end]])
        index = end
    return Docstring(
        "\n".join(lines[:first_section]).strip(), {name: text for name, text in parameters.items() if text}
    )


def _head(lines: list[str], index: int) -> re.Match[str] | None:
    """Match a section's heading: with a colon, or underlined."""
    match = _HEAD.match(lines[index])
    if match is None or match[2]:
        return match
    next_line = lines[index + 1].strip() if index + 1 < len(lines) else ""
    return match if len(next_line) > 2 and set(next_line) == {"-"} else None


def _entries(lines: list[str], entry: re.Pattern[str]) -> dict[str, str]:
    """Return a section's parameters. Each begins at the left margin, and indented lines continue it."""
    descriptions: dict[str, list[str]] = {}
    names: list[str] = []
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        match = None if line[:1].isspace() else entry.match(line)
        if match:
            names = [name.strip(" *") for name in match[1].split(",")]
            descriptions |= {name: [match[2] if entry is _GOOGLE else ""] for name in names}
        elif line.strip() or names:
            for name in names:
                descriptions[name].append(line)
    return {name: _join_lines(description) for name, description in descriptions.items()}


def _join_lines(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())
