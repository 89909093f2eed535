"""Name what an answer that was nothing but markup asked for, and choose the sentence about it by the script."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from cnllm.leaks.grammars.base import ParsedCall

__all__ = [
    "CALL",
    "FallbackText",
    "Wish",
    "call_wish",
    "fallback",
    "language_script",
    "script",
]


CALL = "{call}"
WISH = "{wish}"
_UNNAMED = "-unnamed"
_MAX_LENGTH = 300  # characters of a wish
_MAX_SEARCH = 4096  # characters of markup that are searched
_MAX_VALUES = 8  # arguments of a call that are named
_UNSAFE = r"[<>`“”「」『』{}]+"
_ASSIGNMENT = r"\w+=\S*\s+"
_WORDS = r"[^\W\d_]+"
_HUMPS = r"(?<=[a-z])(?=[A-Z])"
_CLOCKS = frozenset({"date", "time", "datetime", "now", "clock", "today", "timezone"})
_CLOCK_PROGRAMS = frozenset({"date", "uptime", "timedatectl", "cal"})
# The keys of arguments that show what a call is for, without case, `_` and `-`.
_COMMANDS = ("command", "cmd", "commands", "commandline", "shellcommand", "script", "bash")
_SEARCHES = ("query", "q", "queries", "searchquery", "searchterm", "keyword", "keywords", "pattern", "search")
_FILES = ("path", "filepath", "file", "filename", "paths", "files", "absolutepath", "targetfile", "directory")
# The text in the place of a name, in markup that is not read as a call.
_NAME_IN_MARKUP = (
    r"(?i)\"name\"\s{0,8}:\s{0,8}\"([\w.:/@-]{1,128})\""
    r"|<[^<>]{0,40}\b(?:invoke|function)\s{1,8}name\s{0,2}=\s{0,2}[\"']?([\w.:/@-]{1,128})"
    r"|<function=([\w.:/@-]{1,128})|\bfunctions\.([\w./@-]{1,128})"
)

_Kind = Literal["time", "command", "search", "file", "call"]

# First and last character. Kana and hangul stand before han: Japanese and Korean use it too.
_SCRIPTS = (
    ("kana", "぀", "ヿ"),
    ("hangul", "가", "힣"),
    ("han", "一", "鿿"),
    ("cyrillic", "Ѐ", "ӿ"),
    ("arabic", "؀", "ۿ"),
)
_LANGUAGES = {
    **dict.fromkeys(("zh", "yue", "wuu", "hans", "hant"), "han"),
    **dict.fromkeys(("ru", "uk", "be", "bg", "sr", "mk", "kk", "ky", "mn"), "cyrillic"),
    **dict.fromkeys(("ar", "fa", "ur"), "arabic"),
    "ja": "kana",
    "ko": "hangul",
}
_MAX_CHARACTERS = 2000  # characters of a text that are read


class Wish(Struct, frozen=True):
    """The purpose of a call: its kind, the tool, and the command, query, path or call as text."""

    kind: _Kind
    tool: str
    text: str


class FallbackText(Struct, frozen=True):
    """The sentences of a registry, by script. They may hold {call} and {wish}.

    {call} is the text of a wish, {wish} a phrase about it, SCRIPT-KIND. SCRIPT-unnamed is for markup without a name.
    `prompt` is the text whose language counts, None where it is not known; `script` is a script that a caller sets.
    """

    sentences: Mapping[str, str]
    prompt: str | None
    script: str | None = None

    def sentence(self, wish: Wish | None, reply_text: str) -> str:
        """Return the sentence about a wish, or about markup that names nothing.

        Its language is that of the prompt, or of `reply_text` if the prompt is not known.
        """
        name = self.script or script(reply_text if self.prompt is None else self.prompt)
        sentence = _in_script(self.sentences, name)
        if CALL not in sentence and WISH not in sentence:
            return sentence
        if wish is None:
            return self.sentences.get(name + _UNNAMED, self.sentences.get("other" + _UNNAMED, ""))
        written_in = name if name in self.sentences else "other"
        phrase = self.sentences.get(f"{written_in}-{wish.kind}", CALL)
        return sentence.replace(WISH, phrase).replace(CALL, wish.text)


def call_wish(calls: Sequence[ParsedCall], raw: str) -> Wish | None:
    """Return what the first call that names anything is for. Without calls, return the name in `raw`."""
    for call in calls:
        if (wish := _wish(call.name, call.arguments or {})) is not None:
            return wish
    match = re.search(_NAME_IN_MARKUP, raw[:_MAX_SEARCH])
    return _wish(next(filter(None, match.groups()), ""), {}) if match else None


def _wish(name: str, arguments: Mapping[str, Any]) -> Wish | None:
    """Return what a call of a tool is for; None where nothing is named. A number counts the calls and names no tool."""
    tool = "" if name.isdecimal() else _single_line(name)
    values = {key.lower().replace("_", "").replace("-", ""): value for key, value in arguments.items()}
    if command := _first(values, _COMMANDS):
        program = re.sub(_ASSIGNMENT, "", command + " ").split(" ")[0].rpartition("/")[2]
        return Wish("time" if program in _CLOCK_PROGRAMS else "command", tool, command)
    if query := _first(values, _SEARCHES):
        return Wish("search", tool, query)
    if path := _first(values, _FILES):
        return Wish("file", tool, path)
    if not tool:
        return None
    if _CLOCKS.intersection(map(str.lower, re.findall(_WORDS, re.sub(_HUMPS, " ", name)))):
        return Wish("time", tool, tool)
    texts = [text for value in list(arguments.values())[:_MAX_VALUES] if (text := _value_text(value))]
    return Wish("call", tool, _single_line(f"{tool}: {', '.join(texts)}" if texts else tool))


def _first(values: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Return the text of the first of some arguments that has one."""
    return next((text for key in keys if (text := _value_text(values.get(key)))), "")


def _value_text(value: Any) -> str:
    """Return an argument as text: a text, a number, or a list of them."""
    if type(value) is list:
        return _single_line(" ".join(filter(None, map(_value_text, value[:_MAX_VALUES]))))
    return _single_line(str(value)) if type(value) in (str, int, float) else ""


def _single_line(text: str) -> str:
    """Return a text as one line without markup and of bounded length."""
    text = "".join(char if char.isprintable() else " " for char in text[:_MAX_SEARCH])
    text = " ".join(re.sub(_UNSAFE, " ", text).split())
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1].rstrip() + "…"


# ── scripts ──────────────────────────────────────────────────────────────────


def script(text: str) -> str:
    """Return the script of a text: kana, hangul, han, cyrillic, arabic, or other."""
    text = text[:_MAX_CHARACTERS]
    for name, first, last in _SCRIPTS:
        if any(first <= char <= last for char in text):
            return name
    return "other"


def language_script(tag: str) -> str:
    """Return the script of a language tag (`zh`, `ja-JP`), or of a script's own name."""
    name = tag.strip().lower().replace("_", "-").partition("-")[0]
    scripts = {script_name for script_name, _, _ in _SCRIPTS}
    return name if name in scripts else _LANGUAGES.get(name, "other")


def fallback(sentences: Mapping[str, str], prompt: str | None) -> str:
    """Return the sentence for the script of a prompt, or for any other; may be empty."""
    return _in_script(sentences, script(prompt or ""))


def _in_script(sentences: Mapping[str, str], name: str) -> str:
    """Return the sentence for a script, or for any other; may be empty."""
    return sentences.get(name, sentences.get("other", ""))
