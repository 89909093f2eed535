"""In which script a text is written, so that a sentence can be said in a language of its reader."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["fallback", "script"]

# First and last character. Kana and hangul stand before han: Japanese and Korean use it too.
_SCRIPTS = (
    ("kana", "぀", "ヿ"),
    ("hangul", "가", "힣"),
    ("han", "一", "鿿"),
    ("cyrillic", "Ѐ", "ӿ"),
    ("arabic", "؀", "ۿ"),
)
_ENOUGH = 2000  # characters that are looked at


def script(text: str) -> str:
    """kana, hangul, han, cyrillic, arabic, or other."""
    text = text[:_ENOUGH]
    for name, first, last in _SCRIPTS:
        if any(first <= char <= last for char in text):
            return name
    return "other"


def fallback(sentences: Mapping[str, str], prompt: str | None) -> str:
    """The sentence for the script of a prompt, or for any other; may be empty."""
    return sentences.get(script(prompt or ""), sentences.get("other", ""))
