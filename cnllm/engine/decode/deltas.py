"""Tell deltas from snapshots, follow fields that repeat one another, and join the fragments of an item."""

from __future__ import annotations

from typing import Any

__all__ = ["Deltas", "DuplicateField", "join_fragments", "pack_pieces"]

_MIN_SNAPSHOT = 24  # characters; a shorter repetition may be chance
_TEXT_KEYS = ("text", "summary")  # keys of an item of reasoning that arrive in fragments
_MIN_SNAPSHOTS = 3  # snapshots in a row before deltas count as cumulative


class Deltas:
    """Tells pieces of text from snapshots of all the text so far, by the declared `mode`.

    `either`: the second delta decides, and a later one that contradicts it corrects the decision. Undeclared: only long
    snapshots in a row count. In both cases the text may have to begin again with `restart`.
    """

    __slots__ = ("_all", "_hits", "_last", "half", "mode", "restart")

    def __init__(self, mode: str | None) -> None:
        self.mode = mode
        self.restart: str | None = None
        self.half = ""  # half of a character at the end of the newest snapshot
        self._last = ""
        self._hits = 0
        self._all: list[str] = []

    def new(self, text: str) -> str:
        """Return the new part of a delta.

        Where `restart` is set afterwards, all the text so far was misread, and `restart` is the right text.
        """
        if self.mode == "incremental":
            return text
        match self.mode:
            case "cumulative":
                return self._snapshot(text)
            case "either":
                return self._either(text)
            case _:
                return self._undeclared(text)

    def _snapshot(self, text: str) -> str:
        last = self._last
        whole, text = text, _without_half(text)
        self.half = whole[len(text) :]  # the next snapshot has the whole character
        if last.startswith(text):
            return ""
        self._last = text
        return text[len(last) :] if text.startswith(last) else text

    def _either(self, text: str) -> str:
        self._all.append(text)
        last, safe = self._last, _without_half(text)
        self.half = text[len(safe) :]
        if not last or safe.startswith(last):
            self._last = safe
            return safe[len(last) :]
        self.mode, self.half = "incremental", ""
        if len(self._all) > 2 or "".join(self._all[:-1]) != last:  # until now the deltas looked like snapshots
            self.restart = "".join(self._all)
        self._all = []
        return text

    def _undeclared(self, text: str) -> str:
        last, self._last = self._last, text
        if len(last) >= _MIN_SNAPSHOT and len(text) > len(last) and text.startswith(last):
            self._hits += 1
            if self._hits == _MIN_SNAPSHOTS:
                self.mode, self.restart = "cumulative", text
        elif text:
            self._hits = 0
        return text


def _without_half(text: str) -> str:
    """Return a text without half of a character at its end."""
    return text[:-1] if "\ud800" <= text[-1:] <= "\udbff" else text


class DuplicateField:
    """Follows how much of one field another field has repeated. Takes linear time: nothing is compared twice.

    White space at both ends of a field is ignored. `ahead` means that the field has more text than the other one.
    """

    __slots__ = ("_has_text", "_offset", "_piece", "_pieces", "_space", "ahead")

    def __init__(self, pieces: list[str], *, caught_up: bool = False) -> None:
        self._pieces = pieces
        self._piece = len(pieces) if caught_up else 0  # with `caught_up` all the text so far counts as repeated
        self._offset = 0
        self._has_text = caught_up
        self._space = ""  # white space at the end of the text so far
        self.ahead = False

    def before_pack(self, start: int) -> None:
        """Prepare for joining the pieces from `start` on."""
        if self._piece > start:
            self._offset += sum(len(piece) for piece in self._pieces[start : self._piece])
            self._piece = start

    def new(self, text: str) -> str:
        """Return the part of a text that the other field does not have."""
        text, self._space = self._space + text, ""
        whole = text
        if not self._has_text:
            text = text.lstrip()
            if not text:
                self._space = whole
                return ""
            self._has_text = True
            self._skip_space()
        piece, offset, at = self._piece, self._offset, 0
        while at < len(text) and piece < len(self._pieces):
            other = self._pieces[piece]
            size = min(len(other) - offset, len(text) - at)
            if other[offset : offset + size] != text[at : at + size]:
                return whole
            at, offset = at + size, offset + size
            if offset == len(other):
                piece, offset = piece + 1, 0
        self._piece, self._offset = piece, offset
        rest = text[at:]
        if not rest.strip():
            self._space = rest
            return ""
        self.ahead = True
        return rest

    def _skip_space(self) -> None:
        """Skip the white space at the beginning of the other field."""
        while self._piece < len(self._pieces):
            piece = self._pieces[self._piece]
            rest = piece[self._offset :].lstrip()
            if rest:
                self._offset = len(piece) - len(rest)
                return
            self._piece, self._offset = self._piece + 1, 0


def pack_pieces(pieces: list[str], start: int) -> int:
    """Join the pieces from `start` on, in place; return the new start."""
    joined = "".join(pieces[start:])
    del pieces[start:]
    pieces.append(joined)
    return len(pieces)


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
