"""Say what becomes of each field and block of a wire, and check the types of a request's fields.

Each wire has one table, in the module `fields` of its folder. A place is a path in a body: "" is the body itself,
`messages[].content[]` the blocks of a message. A name at a place is a key, or the type of a block; `text.citations` is
a key of blocks of one type, and `*.cache_control` a key of blocks of any type. A block without rows for its keys is
passed on, or left out, as a whole. A name may have the types of its value (`seed:integer`), as JSON Schema calls them,
and another name under which other wires know it (`candidateCount=n`). At a place inside messages or tools, `*` stands
for any other key, and `text.*` or `*.*` for any other key of a block.

The decoders and the engine read the tables, and the manual shows them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

__all__ = [
    "Field",
    "Fields",
    "Outcome",
    "Rows",
    "read_fields",
    "read_rows",
    "require_one_reply",
    "require_types",
    "snake_case",
]

Outcome = Literal[
    "translate",
    "forward",
    "keep",
    "return",
    "permit",
    "search",
    "offer",
    "media",
    "describe",
    "refuse",
    "reject",
    "answer",
    "drop",
    "omit",
]

Rows = Mapping[str, Mapping[Outcome, str]]
"""The names with each outcome, by place."""

_CLASSES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "string": (str,),
    "integer": (int,),
    "number": (float, int),
    "array": (list,),
    "object": (dict, Mapping),
}
_DECODED: tuple[Outcome, ...] = ("translate", "answer")
_ROW = re.compile(r"(?P<name>[^=:]+)(=(?P<meaning>[^:]+))?(:(?P<types>.+))?")


class Field(Struct, frozen=True):
    """One row: its outcome, the name that other wires know, and the types of its value; none where any will do.

    `classes` are Python's types of such values.
    """

    outcome: Outcome
    meaning: str
    types: tuple[str, ...] = ()
    classes: tuple[type, ...] = ()


class Fields(Struct, frozen=True):
    """The table of one wire: the rows of a request, by place and name."""

    request: dict[str, dict[str, Field]]

    @property
    def body_keys(self) -> frozenset[str]:
        """Return the keys of a request's body, in both spellings."""
        names = self.request[""].keys()
        return frozenset((*names, *map(snake_case, names)))

    def rest(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys of a body that no option of a call, and no part of cnllm itself, stands for."""
        rows = self.request[""]
        return {
            key: value
            for key, value in body.items()
            if value is not None and ((row := rows.get(key)) is None or row.outcome not in _DECODED)
        }

    def row(self, path: str) -> Field | None:
        """Return the row of a key of a request's body, or of one in an object there; None for an unknown key."""
        place, _, name = path.rpartition(".")
        return self.request.get(place, {}).get(name)

    def outcome(self, path: str) -> Outcome:
        """Return the outcome of a key of a request's body, or of one in an object there. An unknown key is kept."""
        row = self.row(path)
        return "keep" if row is None else row.outcome

    @property
    def inner(self) -> list[tuple[str, Field]]:
        """Return the rows of places inside messages and tools, with their names."""
        return [item for place, rows in self.request.items() if "[]" in place for item in rows.items()]

    def has_inner(self, meaning: str) -> bool:
        """Whether messages or tools have a place for a meaning."""
        return any(row.meaning == meaning and row.outcome in ("forward", "permit") for _, row in self.inner)

    def place(self, meaning: str) -> str | None:
        """Return the path of the field that goes on and has a meaning; None where the wire has none."""
        for place, rows in self.request.items():
            for name, row in rows.items():
                if row.outcome == "forward" and row.meaning == meaning:
                    return f"{place}.{name}" if place else name
        return None


def read_fields(request: Rows) -> Fields:
    """Return the table of a wire from its written form."""
    return Fields(read_rows(request))


def read_rows(rows: Rows) -> dict[str, dict[str, Field]]:
    """Return rows by place and name from their written form."""
    out: dict[str, dict[str, Field]] = {}
    for place, groups in rows.items():
        fields = out[place] = {}
        for outcome, names in groups.items():
            for row in names.split():
                match = _ROW.fullmatch(row)
                assert match is not None
                name = match["name"]
                assert name not in fields, f"{place}: {name} stands twice"
                types = tuple(match["types"].split("|")) if match["types"] else ()
                classes = tuple(kind for word in types for kind in _CLASSES[word])
                fields[name] = Field(outcome, match["meaning"] or snake_case(name), types, classes)
    return out


def snake_case(name: str) -> str:
    """Return a name in lower case with underscores."""
    return re.sub(r"(?<=[a-z0-9])[A-Z]", lambda match: f"_{match[0]}", name).lower()


def require_types(body: Mapping[str, Any], fields: Fields) -> None:
    """Raise `ValueError` for a field of another type than its row says.

    A field that is null counts as not given, and one without a row, or without types in it, is not checked.
    """
    rows = fields.request[""]
    for name, value in body.items():
        row = rows.get(name)
        if row is None or not row.types or value is None or type(value) in row.classes:  # most of them
            continue
        kind = next((word for word, classes in _CLASSES.items() if isinstance(value, classes)), "array")
        if kind == "number" and value.is_integer():
            kind = "integer"
        if kind in row.types or (kind == "integer" and "number" in row.types):
            continue
        expected = " or ".join(map(_with_article, row.types))
        raise ValueError(f"{name}: {expected} is required, not {_with_article(kind)}")


def _with_article(word: str) -> str:
    """Return the word for a type with its article."""
    return f"{'an' if word[0] in 'aio' else 'a'} {word}"


def require_one_reply(count: Any, name: str) -> None:
    """Raise `ValueError` for a count of replies other than one: only one would come back, and all would be paid for."""
    if count is not None and count != 1:
        raise ValueError(f"{name}: a request has one reply; send it once for each reply")
