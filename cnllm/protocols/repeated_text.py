"""Compare the texts of a reply that begins again with those that were delivered."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

__all__ = ["RepeatedText"]


class RepeatedText:
    """The delivered texts that a reply has yet to repeat, by key: the kind of a part, or the index of a call."""

    __slots__ = ("_texts",)

    def __init__(self, texts: Mapping[Hashable, str]) -> None:
        self._texts = dict(texts)

    def __contains__(self, key: Hashable) -> bool:
        """Whether anything was delivered under a key."""
        return key in self._texts

    @property
    def is_complete(self) -> bool:
        """Whether the reply has repeated everything."""
        return not any(self._texts.values())

    def new_part(self, key: Hashable, text: str) -> str | None:
        """Return the part of a text that was not delivered yet; None where the text differs from the delivered one."""
        delivered = self._texts.get(key, "")
        if delivered.startswith(text):
            self._texts[key] = delivered[len(text) :]
            return ""
        if text.startswith(delivered):
            self._texts[key] = ""
            return text[len(delivered) :]
        return None

    def forget(self, key: Hashable) -> None:
        """Compare no more texts under a key: all of them are new."""
        self._texts[key] = ""
