"""Translate what the command line prints for people, where the environment asks for a language with a catalogue.

JSON, exceptions, logs and codes stay English, and so does what stdout gets in a pipe. A message is translated where it
is printed, by its English text.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cnllm.cli.language.catalogue import Catalogue

__all__ = [
    "colon",
    "in_brackets",
    "join_localized",
    "language",
    "localize",
    "localize_word",
    "pick_localized",
    "translate",
    "translate_issue",
    "translate_to",
    "translate_word",
]

_SIMPLIFIED = ("zh_CN", "zh_SG", "zh_Hans", "zh")


def translate(text: str) -> str:
    """Return a text in the user's language, line by line; what has no translation stays English."""
    name = language()
    return text if name is None else _catalogue(name).translate(text)


def translate_to(name: str, text: str) -> str:
    """Return a text in the language of a catalogue, whatever the user's is."""
    return _catalogue(name).translate(text)


def translate_issue(text: str, into: Callable[[str], str]) -> str:
    """Return the sentence of a known issue, translated with `into`: its conditions and its rest are messages."""
    mode, colon, rest = text.removesuffix(".").partition(": it ")
    sentence = rest if colon else mode.removeprefix("It ")
    translated = into(sentence)
    if translated == sentence:
        return text
    conditions = f"{mode[:1].lower()}{mode[1:]}".split(" and ") if colon else []
    return "、".join(map(into, conditions)) + ("：" if colon else "") + translated


def localize(text: str) -> str:
    """Return a text for stdout: in the user's language on a terminal, in English in a pipe."""
    return translate(text) if sys.stdout.isatty() else text


def translate_word(word: str) -> str:
    """Return a heading or a name of a table in the user's language. Such words have entries of their own."""
    name = language()
    return word if name is None else _catalogue(name).word(word)


def localize_word(word: str) -> str:
    """Return a heading or a cell of a table for stdout, as `localize` does. Such words have entries of their own."""
    return translate_word(word) if sys.stdout.isatty() else word


def join_localized(texts: Iterable[str], *, sign: str = "、") -> str:
    """Return texts for stdout that are in the user's language as one; `sign` stands between those of Chinese."""
    return pick_localized(", ", sign).join(texts)


def in_brackets(text: str) -> str:
    """Return a text for stdout in the brackets of the user's language, with the space before them."""
    return pick_localized(f" ({text})", f"（{text}）")


def pick_localized(english: str, chinese: str) -> str:
    """Return the text for stdout: the Chinese one on a terminal whose user reads it."""
    return chinese if sys.stdout.isatty() and language() == "zh_CN" else english


def colon() -> str:
    """Return the colon of the user's language, for a text on stderr that ends with it."""
    return ": " if language() is None else "："


def language(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the name of the catalogue for the environment; None for English.

    The variables are gettext's: the first of LC_ALL, LC_MESSAGES and LANG that is set, and in a locale other than C the
    list in LANGUAGE before it.
    """
    locale = environ.get("LC_ALL") or environ.get("LC_MESSAGES") or environ.get("LANG") or ""
    if locale.partition(".")[0] in ("", "C", "POSIX"):
        return None
    for item in [*environ.get("LANGUAGE", "").split(":"), locale]:
        name = item.partition(".")[0].partition("@")[0].replace("-", "_")
        if name.startswith("en"):
            return None
        if name in _SIMPLIFIED or name.startswith("zh_Hans_"):
            return "zh_CN"
    return None


@cache
def _catalogue(name: str) -> Catalogue:
    from pathlib import Path

    from cnllm.cli.language.catalogue import Catalogue, read_catalogue

    return Catalogue(read_catalogue(Path(__file__).with_name(f"{name}.po").read_text(encoding="utf-8")))
