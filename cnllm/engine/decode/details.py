"""Join the fragments of structured items of reasoning again, as their endpoints require."""

from __future__ import annotations

from typing import Any

__all__ = ["join_fragments"]

_MIN_SNAPSHOT = 24  # characters; a shorter repetition may be chance
_TEXT_KEYS = ("text", "summary")  # keys of an item of reasoning that arrive in fragments


def join_fragments(details: list[Any], snapshots: bool, part: str | None = None) -> list[Any]:
    """Join fragments of one item again: neighbours with the same type and index, as their endpoints require.

    `part` is the type of the parts of content that hold reasoning.
    """
    if part is not None and any(type(item) is dict and item.get("type") == part for item in details):
        return _join_parts(details, snapshots, part)
    out: list[Any] = []
    texts: dict[str, _Fragments] = {}  # texts of the last item, where it has fragments
    for item in details:
        last = out[-1] if out else None
        if (
            type(item) is dict
            and type(last) is dict
            and item.get("type") == last.get("type")
            and item.get("index") == last.get("index")
            and (item.get("id") is None or last.get("id") in (None, item.get("id")))
            and any(type(item.get(k)) is str and type(last.get(k)) is str for k in _TEXT_KEYS)
        ):
            if not texts:
                out[-1] = last = dict(last)
                texts = {key: _Fragments(last[key]) for key in _TEXT_KEYS if type(last.get(key)) is str}
            for key, value in item.items():
                if type(value) is str and key in texts:
                    texts[key].add(value, snapshots)
                elif value is not None:
                    last[key] = value
                    if key in _TEXT_KEYS:
                        texts.pop(key, None)
                        if type(value) is str:
                            texts[key] = _Fragments(value)
        else:
            _settle(out, texts)
            texts = {}
            out.append(item)
    _settle(out, texts)
    return out


def _settle(out: list[Any], texts: dict[str, _Fragments]) -> None:
    """Write the joined texts into the last item."""
    for key, fragments in texts.items():
        out[-1][key] = "".join(fragments.pieces)


def _join_parts(details: list[Any], snapshots: bool, part: str) -> list[Any]:
    """Join the parts of content with reasoning that follow each other; other items stay as they are."""
    out: list[Any] = []
    texts: list[Any] = []  # of the last part: fragments of a text, texts of parts, and others as they are
    for item in [*details, None]:
        last = out[-1] if texts else None
        continues = type(item) is dict and item.get("type") == part and type(item.get(part)) in (str, list)
        if last is not None and not (continues and type(item[part]) is type(last[part])):
            whole = [_inner_part(inner) for inner in texts]
            last[part] = whole[0] if type(last[part]) is str else whole
            texts = []
        if not continues:
            out += [] if item is None else [item]
            continue
        inner = [item[part]] if type(item[part]) is str else item[part]
        if not texts:
            out.append(dict(item))
            texts = [_inner_fragments(one) for one in inner]
            continue
        out[-1].update({key: value for key, value in item.items() if key != part and value is not None})
        for index, one in enumerate(map(_inner_fragments, inner)):
            before = texts[-1]
            if index == 0 and type(one) is tuple and type(before) is tuple and one[0] == before[0]:
                before[1].add("".join(one[1].pieces), snapshots)
            else:
                texts.append(one)
    return out


def _inner_fragments(inner: Any) -> Any:
    """Return a text, or a part of text, as (its other keys, its fragments); anything else as it is."""
    if type(inner) is str:
        return None, _Fragments(inner)
    if type(inner) is dict and type(inner.get("text")) is str:
        return {**inner, "text": None}, _Fragments(inner["text"])
    return inner


def _inner_part(inner: Any) -> Any:
    """Return what `_inner_fragments` was given, with all of its fragments."""
    if type(inner) is not tuple:
        return inner
    text = "".join(inner[1].pieces)
    return text if inner[0] is None else {**inner[0], "text": text}


class _Fragments:
    """The fragments of one text, joined once."""

    __slots__ = ("pieces", "size")

    def __init__(self, text: str) -> None:
        self.pieces = [text]
        self.size = len(text)

    def add(self, text: str, snapshots: bool) -> None:
        """Add a fragment.

        With `snapshots`, a fragment that begins with all the text so far replaces it. A long one that equals all the
        text so far is ignored.
        """
        if len(text) == self.size >= _MIN_SNAPSHOT:
            self.pieces = ["".join(self.pieces)]
            if text == self.pieces[0]:
                return
        if snapshots and len(text) >= self.size:
            self.pieces = ["".join(self.pieces)]
            if text.startswith(self.pieces[0]):
                self.pieces, self.size = [text], len(text)
                return
        self.pieces.append(text)
        self.size += len(text)
