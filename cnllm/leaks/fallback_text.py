"""Name the call in an answer that was nothing but markup, and choose the sentence about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cnllm.leaks.script import in_script, script

if TYPE_CHECKING:  # loads the grammars, which many programs never need
    from cnllm.leaks.grammars.base import ParsedCall

__all__ = ["CALL", "FallbackText", "call_name", "short_name"]

CALL = "{call}"
_UNNAMED = "-unnamed"
_MAX_LENGTH = 40  # characters of a name
_MAX_SEARCH = 4096  # characters of markup that are searched
_COMMANDS = ("cmd", "command")
_UNSAFE = re.compile(r"[<>`\"'“”‘’「」『』{}\[\]|｜‖*\\#!]+")
_ASSIGNMENT = re.compile(r"\w+=")
# The text in the place of a name, in markup that is not read as a call.
_NAME_IN_MARKUP = re.compile(
    r"\"name\"\s{0,8}:\s{0,8}\"([\w.:/@-]{1,128})\""
    r"|<[^<>]{0,40}\b(?:invoke|function)\s{1,8}name\s{0,2}=\s{0,2}[\"']?([\w.:/@-]{1,128})"
    r"|<function=([\w.:/@-]{1,128})|\bfunctions\.([\w./@-]{1,128})"
)


class FallbackText(Struct, frozen=True):
    """The sentences of a registry, by script. They may hold {call}; SCRIPT-unnamed is for markup without a name.

    `prompt` is the text whose language counts, None where it is not known; `script` is a script that a caller sets.
    """

    sentences: Mapping[str, str]
    prompt: str | None
    script: str | None = None

    def sentence(self, call: str, reply_text: str) -> str:
        """Return the sentence about a call, or "" where the call is unknown.

        Its language is that of the prompt, or of `reply_text` if the prompt is not known.
        """
        name = self.script or script(reply_text if self.prompt is None else self.prompt)
        sentence = in_script(self.sentences, name)
        if CALL not in sentence:
            return sentence
        if call:
            return sentence.replace(CALL, call)
        return self.sentences.get(name + _UNNAMED, self.sentences.get("other" + _UNNAMED, ""))


def call_name(calls: Sequence[ParsedCall], raw: str) -> str:
    """Return the command that the first call runs, else its tool. Without calls, return the name in `raw`."""
    for call in calls:
        if name := _command_name(call.arguments) or short_name(call.name):
            return name
    match = _NAME_IN_MARKUP.search(raw[:_MAX_SEARCH])
    return short_name(next(filter(None, match.groups()), "")) if match else ""


def _command_name(arguments: dict[str, Any] | None) -> str:
    """Return the program that a command line runs."""
    for key in _COMMANDS:
        value = (arguments or {}).get(key)
        if type(value) is list and value:
            value = value[0]
        if type(value) is str:
            words = [word for word in value[:_MAX_SEARCH].split() if not _ASSIGNMENT.match(word)]
            return short_name(words[0]) if words else ""
    return ""


def short_name(text: str) -> str:
    """Return a text as a few characters of one line without markup."""
    text = "".join(char if char.isprintable() else " " for char in text[:_MAX_SEARCH])
    text = " ".join(_UNSAFE.sub(" ", text).split())
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1].rstrip() + "…"
