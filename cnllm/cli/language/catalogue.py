"""Read a catalogue in gettext's format, and find the translation of a message whose values are filled in already.

Messages are made all over the package, most of them as f-strings, and become text before anything is printed. So the
English text is matched with the templates of the catalogue. That costs nothing where the language is English, and a
message needs no other form than an f-string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["WORD", "Catalogue", "CatalogueEntry", "read_catalogue"]

WORD = "word|"
"""The beginning of an entry that is a heading or a cell of a table, and no message: "input" is a name elsewhere."""

_PLACEHOLDER = re.compile(r"\{(\d+)\}")
_ENTRY = re.compile(r'(#, [^\n]*python-brace-format[^\n]*\n)?msgid ((?:".*"\n)+)msgstr ((?:".*"(?:\n|\Z))+)')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_WORD = re.compile(r"[A-Za-z][a-z']+")
_CLAUSE = r"(?:(?!: |; ).)*?"
_LAST = r"(?:(?!: |; | \([^()]*\)$).)*?"  # a clause whose end in brackets is another message
_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d"
_INNER = r"(?:(?!; ).)*?"  # a value ends at a semicolon: the clause before it is another message
_NAME = rf"(?:{_TIME}|[A-Za-z]*(?![:;,]\s)[^\sA-Za-z](?:\S*[^\s,:;])?|[A-Z]{{2,}}|'[^']*'|\"[^\"]*\")(?:, \S*[^\s,:;])*"
_TOKEN = rf"(?:{_TIME}|'[^']*'|\S*?[^\s,:;])(?:, \S*[^\s,:;])*?"
_QUOTED = re.compile(r"(['\"])(.*)\1")
_INDENT = re.compile(r"(?:cnllm: )?\s*")
_SEPARATOR = re.compile(r"; | → |: |(?<=\?) |(?=, |\. )")  # before a comma, nothing is between two messages
_CLAUSE_STARTS = ("; ", ", ", ". ")
_CHINESE_SEPARATORS = {"; ": "；", ": ": "：", " ": ""}
_NOTE = re.compile(
    r"(?:(note): )?([^\s:]+): (.+?) → (.+?)(?: \(([^()\s]+:\d+)\))?"
)  # FLAG: SUBJECT → CHANGE (FILE:LINE)
_ORIGIN = re.compile(r"(.+) \(([^()]+)\)")
_CHINESE = re.compile(r"[\u3000-\u9fff\uff00-\uffef]")
# a value that begins so is not written for people
_DATA = re.compile(r"[{/]|\[(?!Errno )|https?://|'[^']*'$|\"[^\"]*\"$")
_ITEM = r"""(?:[\w./:*@+~#%$=-]*\w\*?|'[^']*'|"[^"]*"|`[^`]*`)"""
_NAMES = re.compile(r"\S+(?:: \S+)+")
_COUNTED = rf"{_ITEM}(?: \d[\d,.]*)?"  # a name with its number: `retired 2`
_LIST = re.compile(rf"{_COUNTED}(?:, {_COUNTED})+")
_ALTERNATIVES = " or "
_MAX_PARTS = 12
_MAX_DEPTH = 8  # of messages in the values of messages
_JOINT = re.compile(r"; | → |: | \(| · | or |\. ")
_MAX_JOINTS = 24  # in a line; the words of an endpoint may have thousands, and each of them would be looked up


class CatalogueEntry(NamedTuple):
    """A message and its translation. A template has values, which stand as `{0}` in both."""

    message: str
    translation: str
    is_template: bool


class Catalogue:
    """The messages of one language."""

    def __init__(self, entries: list[CatalogueEntry]) -> None:
        used = [entry for entry in entries if entry.translation != entry.message]
        self._texts = {entry.message: entry.translation for entry in used if not entry.is_template}
        templates = sorted(
            (_MessageTemplate(entry) for entry in used if entry.is_template), key=lambda item: -item.weight
        )
        self._sentences = [template for template in templates if not template.is_clause]
        self._clauses = [template for template in templates if template.is_clause]

    def translate(self, text: str) -> str:
        """Return a text in this language. What has no translation stays as it is."""
        if (whole := self._texts.get(text)) is not None:
            return whole
        return "\n".join(map(self._line, text.split("\n")))

    def word(self, text: str) -> str:
        """Return a heading or a cell of a table in this language."""
        return self._texts.get(f"{WORD}{text}", text)

    def _line(self, line: str) -> str:
        indent = _INDENT.match(line)
        assert indent is not None
        text = line[indent.end() :].rstrip()
        if len(_JOINT.findall(text)) > _MAX_JOINTS:
            return line
        return indent[0] + self._parts(text, 0) + line[indent.end() + len(text) :]

    def _whole(self, text: str, depth: int) -> str | None:
        """Return the translation of a message as a whole; None where there is none, or for one in too many others."""
        if depth > _MAX_DEPTH:
            return None
        if (found := self._texts.get(text)) is not None:
            return found
        for template in self._clauses if text.startswith(_CLAUSE_STARTS) else self._sentences:
            if (values := template.match(text)) is not None:
                return template.fill([self._value(value, depth + 1) for value in values])
        return None

    def _value(self, value: str, depth: int) -> str:
        """Return a value of a template, which may hold a message itself."""
        text = value.lstrip(" ")
        if _LIST.fullmatch(text) and text not in self._texts:
            return text.replace(", ", "、")
        if len(items := text.split(", ")) > 1 and all(
            re.fullmatch(_ITEM, item) or item in self._texts for item in items
        ):
            return "、".join(self._texts.get(item, item) for item in items)
        if _DATA.match(text) or not (_WORD.search(text) or text.endswith(" s")):  # " s" is seconds
            return value
        found = self._parts(text, depth)
        return found if _CHINESE.match(found) else value[: len(value) - len(text)] + found

    def _parts(self, text: str, depth: int) -> str:
        """Return a text that is put together from messages."""
        if (match := _NOTE.fullmatch(text)) is not None:
            head, flag, subject, change, origin = match.groups()
            head = "" if head is None else f"{self._texts.get(head, head)}："
            change = f"{self._parts(subject, depth + 1)} → {self._parts(change, depth + 1)}"
            return f"{head}{flag}：{change}" + (f"（{origin}）" if origin else "")
        for match in list(re.finditer("; ", text))[:_MAX_PARTS]:
            if text not in self._texts and (first := self._texts.get(text[: match.start()])) is not None:
                return self._join(first, match[0], self._parts(text[match.end() :], depth))
        if " · " in text and text not in self._texts:
            return " · ".join(self._parts(part, depth) for part in text.split(" · "))
        if (found := self._whole(text, depth)) is not None:
            return found
        if (alternatives := self._alternatives(text, depth)) is not None:
            return alternatives
        if None not in (parts := list(self._clauses_of(text, depth))):
            return "，".join(map(str, parts))
        if (match := _ORIGIN.fullmatch(text)) is not None:
            first, second = self._parts(match[1], depth), self._in_brackets(match[2], depth)
            if (first, second) != match.groups():
                return f"{first}（{second}）" if _CHINESE.search(first) else f"{first} ({second})"
        separators = list(_SEPARATOR.finditer(text))[:_MAX_PARTS]
        for match in separators:
            left = text[: match.start()]
            if (right := self._whole(text[match.start() :], depth)) is not None:  # some messages begin with a separator
                return self._parts(left, depth) + right
            if match[0] and (right := self._whole(text[match.end() :], depth)) is not None:
                return self._join(self._parts(left, depth), match[0], right)
        for match in reversed(separators):
            if (found := self._whole(text[: match.start()], depth)) is not None:
                return self._join(found, match[0], self._parts(text[match.end() :], depth))
        for match in [match for match in separators if match[0]][:1]:
            rest = text[match.end() :]
            left, right = self._parts(text[: match.start()], depth), self._parts(rest, depth)
            return self._join(left, match[0], right) if right != rest else f"{left}{match[0]}{right}"
        return text

    def _clauses_of(self, text: str, depth: int) -> Iterator[str | None]:
        """Yield the translations of the clauses between commas, and None for the first one without a translation."""
        for part in text.split(", "):
            yield (found := self._whole(part, depth))
            if found is None:
                return

    def _alternatives(self, text: str, depth: int) -> str | None:
        """Return names or messages with "or" between them; None where one of them is neither."""
        items = re.split(r",\s|\sor\s", text) if _ALTERNATIVES in text else []
        if len(items) > _MAX_PARTS:
            return None
        found = [item if re.fullmatch(_ITEM, item) else self._whole(item, depth) for item in items]
        known = [item for item in found if item is not None]
        if not known or len(known) != len(items):
            return None
        first, last = "、".join(known[:-1]), known[-1]
        return f"{first}{'' if _CHINESE.match(first[-1]) else ' '}或{'' if _CHINESE.match(last) else ' '}{last}"

    def _in_brackets(self, text: str, depth: int) -> str:
        """Return what stands in brackets; some messages have the brackets themselves."""
        whole = self._whole(f"({text})", depth)
        return self._parts(text, depth) if whole is None else whole.strip("（）()")

    @staticmethod
    def _join(left: str, separator: str, right: str) -> str:
        if _NAMES.fullmatch(left):  # MODEL: FLAG: VALUE
            left = left.replace(": ", "：")
        return f"{left}{_CHINESE_SEPARATORS.get(separator, separator)}{right}"


class _MessageTemplate:
    """A template and the pattern of its texts.

    `weight` is the length of its own text. A clause follows another text.
    """

    def __init__(self, entry: CatalogueEntry) -> None:
        self._message = entry.message
        self._translation = entry.translation
        self._texts = [_unescape(text) for text in _PLACEHOLDER.split(entry.message)[::2]]
        self._key = max(self._texts, key=len)
        self._pattern: re.Pattern[str] | None = None
        self.is_clause = self._texts[0].startswith(_CLAUSE_STARTS)
        self.weight = sum(map(len, self._texts))

    def match(self, text: str) -> list[str] | None:
        """Return the values of a text; None where it is another message."""
        if self._key not in text:
            return None
        if self._pattern is None:
            self._pattern = re.compile("".join(self._regex()), re.DOTALL)
        match = self._pattern.fullmatch(text)
        return None if match is None else list(match.groups())

    def _regex(self) -> Iterator[str]:
        """Yield the pattern in pieces. Where few words are the template's own, its values must be names."""
        words = len(_WORD.findall(" ".join(self._texts)))
        if self.is_clause:
            value = _CLAUSE
        elif self._texts[0] and (words > 1 or self._texts[0].endswith((": ", "[Errno "))):
            value = ".*?"
        elif words > 2:
            value = _CLAUSE if words == 3 else ".*?"
        else:
            value = _TOKEN if words == 2 or ":" in "".join(self._texts) else _NAME
        last = len(self._texts) - 1
        for index, text in enumerate(self._texts):
            if index:
                before = self._texts[index - 1]
                follows = before[-1:].isalpha() or (not before and index > 1)  # directly after a word or another value
                if follows and not text and index == last:
                    yield r"(\w*|(?:[;,.](?=\s|$)| \().*)"  # the end of a word, or another clause
                elif before[-1:].isalpha():
                    yield r"(\w*)"
                elif not text and index < last:
                    yield r"([^;,(]*)(?!(?<=\d)[\d.,])"  # another value follows at once, and no number is cut
                elif not text and words <= 3 and not before.endswith(": "):
                    yield f"({_LAST if value in ('.*?', _CLAUSE) else value})"  # few words do not hold the next clause
                elif text and not self._texts[0] and value == ".*?":
                    yield f"({_INNER})"
                else:
                    yield f"({value})"
            yield re.escape(text)

    def fill(self, values: list[str]) -> str:
        """Return the translation with these values."""
        pieces = _PLACEHOLDER.split(self._translation)
        pieces[::2] = map(_unescape, pieces[::2])
        for index in range(1, len(pieces), 2):
            value = values[int(pieces[index])]
            if pieces[index - 1].endswith("“") and (match := _QUOTED.fullmatch(value)) is not None:
                value = match[2]  # it has quotation marks already
            if _CHINESE.match(value) and pieces[index - 1].endswith(" ") and _CHINESE.match(pieces[index - 1][-2:-1]):
                pieces[index - 1] = pieces[index - 1][:-1]  # the space was for a Latin value
            pieces[index] = value
        return "".join(pieces)


def _unescape(text: str) -> str:
    return text.replace("{{", "{").replace("}}", "}")


def read_catalogue(text: str) -> list[CatalogueEntry]:
    """Return the entries of a catalogue that have a translation. It has no contexts and no plurals."""
    found = ((flag, _unquote(message), _unquote(translation)) for flag, message, translation in _ENTRY.findall(text))
    return [
        CatalogueEntry(message, translation, bool(flag))
        for flag, message, translation in found
        if message and translation
    ]


def _unquote(lines: str) -> str:
    """Return the text of quoted lines."""
    text = lines[1:-2] if lines.endswith("\n") else lines[1:-1]
    if "\n" in text:
        text = text.replace('"\n"', "")
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text) if "\\" in text else text
