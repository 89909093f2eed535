"""What a model wanted to do with a call that nobody can make, in a few safe words, and a sentence that says so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from cnllm.leaks.grammars.base import ParsedCall
from cnllm.leaks.script import in_script, script

__all__ = ["CALL", "FallbackText", "short_name", "wanted_name"]

CALL = "{call}"
_UNNAMED = "-unnamed"
_LONGEST = 40  # characters of what was wanted
_LOOKED_AT = 4096  # characters in which it is looked for
_COMMANDS = ("cmd", "command")
_UNSAFE = re.compile(r"[<>`\"'“”‘’「」『』{}\[\]|｜‖*\\#!]+")
_SETTING = re.compile(r"\w+=")
# In markup that does not read as a call, what stands where a name does.
_NAMED = re.compile(
    r"\"name\"\s{0,8}:\s{0,8}\"([\w.:/@-]{1,128})\""
    r"|<[^<>]{0,40}\b(?:invoke|function)\s{1,8}name\s{0,2}=\s{0,2}[\"']?([\w.:/@-]{1,128})"
    r"|<function=([\w.:/@-]{1,128})|\bfunctions\.([\w./@-]{1,128})"
)


class FallbackText(Struct, frozen=True):
    """The sentences of a registry, by script. They may hold {call}; SCRIPT-unnamed is for markup that names nothing.

    `prompt` is the text whose language counts, None where it is not known; `script` is a script that was asked for.
    """

    sentences: Mapping[str, str]
    prompt: str | None
    script: str | None = None

    def sentence(self, call: str, own: str) -> str:
        """The sentence about a call ("" where nobody can tell which), in the language of the prompt or of `own`."""
        name = self.script or script(own if self.prompt is None else self.prompt)
        sentence = in_script(self.sentences, name)
        if CALL not in sentence:
            return sentence
        if call:
            return sentence.replace(CALL, call)
        return self.sentences.get(name + _UNNAMED, self.sentences.get("other" + _UNNAMED, ""))


def wanted_name(calls: Sequence[ParsedCall], raw: str) -> str:
    """What the first of some calls is about: the command to run, else the tool. Without calls, the name in `raw`."""
    for call in calls:
        if said := _command(call.arguments) or short_name(call.name):
            return said
    found = _NAMED.search(raw[:_LOOKED_AT])
    return short_name(next(filter(None, found.groups()), "")) if found else ""


def _command(arguments: dict[str, Any] | None) -> str:
    """The program that a command line runs."""
    for key in _COMMANDS:
        said = (arguments or {}).get(key)
        if type(said) is list and said:
            said = said[0]
        if type(said) is str:
            words = [word for word in said[:_LOOKED_AT].split() if not _SETTING.match(word)]
            return short_name(words[0]) if words else ""
    return ""


def short_name(text: str) -> str:
    """A text as a few characters of one line that are no markup."""
    text = "".join(char if char.isprintable() else " " for char in text[:_LOOKED_AT])
    text = " ".join(_UNSAFE.sub(" ", text).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1].rstrip() + "…"
