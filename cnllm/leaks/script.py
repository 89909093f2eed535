"""Tell the script of a text, to choose a sentence in a language of its reader."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["fallback", "in_script", "language_script", "script"]

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
    return in_script(sentences, script(prompt or ""))


def in_script(sentences: Mapping[str, str], name: str) -> str:
    """Return the sentence for a script, or for any other; may be empty."""
    return sentences.get(name, sentences.get("other", ""))
