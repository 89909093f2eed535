"""Parse the short form of a schema, such as "name, age int, tags [str]", to a JSON Schema of an object.

    name, age int, tags [str]              fields; text without a type; lists in brackets
    address {street, zip str}              an object within
    people [{name, age int}]               a list of objects
    size (small | large), note?            one of several texts; a field that may be left out
    name: as in the passport, age int      a description, up to the next comma
    age: int, note str?                    other places for a type and the mark

Fields may also stand on lines of their own. Then a description may hold commas.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["parse_short_form"]

_TYPES = {
    **dict.fromkeys(("str", "string", "text"), "string"),
    **dict.fromkeys(("int", "integer"), "integer"),
    **dict.fromkeys(("float", "number"), "number"),
    **dict.fromkeys(("bool", "boolean"), "boolean"),
}
_WORD = re.compile(r"[^\W\d][\w-]*")
_SPACE = re.compile(r"[ \t\r]*")
_SEPARATORS = re.compile(r"[,\n \t\r]*")
_CHOICES = re.compile(r"\(([^()]*)\)")
_FIELD_END = re.compile(r"[,\n}\])]|\Z")
_LINE, _WORDS = re.compile(r"[^\n]*"), re.compile(r"[^\n,}\]]*")
_LINE_END = re.compile(r",?[ \t\r]*(\n|\Z)")
_BRACKETS = re.compile(r"[^\n]*[\[\]{}]\??,?[ \t\r]*(\n|\Z)")
_MAX_DEPTH = 20


def parse_short_form(text: str) -> dict[str, Any]:
    """Return the JSON Schema. Raise `ValueError` with what is wrong, and where."""
    stripped = text.strip()
    if stripped.startswith("{") and stripped.endswith("}"):
        stripped = stripped[1:-1].strip()
    parser = _Parser(stripped)
    schema = parser.fields("")
    if parser.position < len(stripped):
        raise parser.error(f"{stripped[parser.position]!r} has no beginning")
    return schema


class _Parser:
    """Reads a text from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self._depth = 0
        self._lines = _has_line_break(text)

    def error(self, message: str) -> ValueError:
        return ValueError(f"{message}, at character {self.position + 1}")

    def fields(self, end: str) -> dict[str, Any]:
        """Read fields up to a closing bracket, or to the end of the text."""
        properties: dict[str, Any] = {}
        required: list[str] = []
        self._enter()
        while True:
            self._match(_SEPARATORS)
            if self._peek() in ("", "}", "]", ")"):
                break
            name = self._match(_WORD)
            if name is None:
                raise self.error("here a field's name is missing")
            if name in properties:
                raise self.error(f"the field {name} stands twice")
            is_optional = self._question_mark()
            schema = self._type() or self._type_after_colon(end)
            if not self._question_mark() and not is_optional:
                required.append(name)
            properties[name] = (schema or {"type": "string"}) | self._description(end)
            self._match(_SPACE)
            if self._peek() not in ("", ",", "\n", "}", "]", ")"):
                raise self.error(f"after {name} a comma is missing")
        if not properties:
            raise self.error("there are no fields")
        self._depth -= 1
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def _question_mark(self) -> bool:
        """Skip a question mark. Return whether there was one."""
        is_there = self._peek() == "?"
        self.position += is_there
        return is_there

    def _type_after_colon(self, end: str) -> dict[str, Any]:
        """Read a type after a colon, as Python has it; nothing where a description stands there."""
        start = self.position
        if self._peek() != ":":
            return {}
        self.position += 1
        self._match(_SPACE)
        if self._peek() in ("[", "{") and (not self._is_line(end) or _BRACKETS.match(self.text, self.position)):
            return self._type()
        word = self._match(_WORD) or ""
        self._question_mark()
        self._match(_SPACE)
        rest = _LINE_END if self._is_line(end) else _FIELD_END
        if word.lower() in _TYPES and rest.match(self.text, self.position):
            self.position = start + 1
            return self._type()
        self.position = start
        return {}

    def _is_line(self, end: str) -> bool:
        """Whether the field stands on a line of its own, where a description takes the rest of the line."""
        return self._lines and not end

    def _type(self) -> dict[str, Any]:
        """Read a type; nothing where there is none."""
        self._match(_SPACE)
        match self._peek():
            case "[":
                self.position += 1
                self._enter()
                item = self._type() or {"type": "string"}
                self._depth -= 1
                self._close("]")
                return {"type": "array", "items": item}
            case "{":
                self.position += 1
                schema = self.fields("}")
                self._close("}")
                return schema
            case "(":
                return self._choices()
        word = self._match(_WORD)
        if word is None:
            return {}
        if word.lower() not in _TYPES:
            self.position -= len(word)
            raise self.error(f"{word} is not a type: use str, int, float, bool, [list], {{object}} or (one | other)")
        return {"type": _TYPES[word.lower()]}

    def _enter(self) -> None:
        """Count a bracket. Raise for more than anyone needs: each takes a part of Python's stack."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.error("too many brackets")

    def _choices(self) -> dict[str, Any]:
        match = _CHOICES.match(self.text, self.position)
        choices = [choice.strip() for choice in match[1].split("|")] if match is not None else []
        if match is None or not all(choices) or (len(choices) == 1 and "," in match[1]):
            raise self.error("choices look like (one | other)")
        self.position = match.end()
        return {"type": "string", "enum": list(dict.fromkeys(choices))}

    def _description(self, end: str) -> dict[str, str]:
        """Read a description: up to the next comma or bracket, or on lines of its own up to the end of the line."""
        self._match(_SPACE)
        if self._peek() != ":":
            return {}
        self.position += 1
        text = (self._match(_LINE if self._is_line(end) else _WORDS) or "").strip()
        text = text.rstrip(",") if self._lines else text
        return {"description": text} if text else {}

    def _close(self, bracket: str) -> None:
        self._match(_SEPARATORS)
        if self._peek() != bracket:
            raise self.error(f"{bracket!r} is missing")
        self.position += 1

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        return match[0]


def _has_line_break(text: str) -> bool:
    """Whether fields stand on lines of their own, outside of brackets."""
    depth = 0
    for character in text:
        depth += (character in "[{(") - (character in "]})")
        if character == "\n" and depth == 0:
            return True
    return False
