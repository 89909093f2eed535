"""What deltas say: pieces or snapshots, said once or mirrored, fragments of one item."""

from __future__ import annotations

from typing import Any

__all__ = ["Deltas", "DuplicateField", "join_fragments", "pack_pieces"]

_SNAPSHOT = 24  # characters; a shorter repetition may be chance
_TEXTS = ("text", "summary")  # what comes in fragments of an item of the thinking
_PROOFS = 3  # snapshots in a row before deltas are taken to be cumulative


class Deltas:
    """Tells pieces from snapshots of everything so far, as far as the endpoint's habit is declared.

    `either`: the second delta decides, and a later one that contradicts it sets everything right. Not declared: only
    long snapshots in a row are believed. Both may have to begin again, with what `restart` says.
    """

    __slots__ = ("_all", "_hits", "_last", "half", "mode", "restart")

    def __init__(self, mode: str | None) -> None:
        self.mode = mode
        self.restart: str | None = None
        self.half = ""  # of a character, at the end of the newest snapshot
        self._last = ""
        self._hits = 0
        self._all: list[str] = []

    def new(self, text: str) -> str:
        """What is new in a delta. Where `restart` is set then, everything so far was misread and is that."""
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
        self.half = whole[len(text) :]  # the next snapshot has it whole
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
        if len(self._all) > 2 or "".join(self._all[:-1]) != last:  # it looked like snapshots until now
            self.restart = "".join(self._all)
        self._all = []
        return text

    def _undeclared(self, text: str) -> str:
        last, self._last = self._last, text
        if len(last) >= _SNAPSHOT and len(text) > len(last) and text.startswith(last):
            self._hits += 1
            if self._hits == _PROOFS:
                self.mode, self.restart = "cumulative", text
        elif text:
            self._hits = 0
        return text


def _without_half(text: str) -> str:
    """A text without the first half of a character at its end."""
    return text[:-1] if "\ud800" <= text[-1:] <= "\udbff" else text


class DuplicateField:
    """Follows how much of what one field said another field has repeated. Linear: nothing is compared twice.

    White space at the two ends of a field means nothing. `ahead`: the field has said more than the other one.
    """

    __slots__ = ("_begun", "_offset", "_piece", "_said", "_space", "ahead")

    def __init__(self, said: list[str], *, over: bool = False) -> None:
        self._said = said
        self._piece = len(said) if over else 0  # over: all so far counts as repeated
        self._offset = 0
        self._begun = over
        self._space = ""  # at the end of what came
        self.ahead = False

    def before_pack(self, start: int) -> None:
        """The pieces from `start` on are about to become one."""
        if self._piece > start:
            self._offset += sum(len(piece) for piece in self._said[start : self._piece])
            self._piece = start

    def new(self, text: str) -> str:
        """Return what of a text does not repeat what comes next in the mirrored field."""
        text, self._space = self._space + text, ""
        whole = text
        if not self._begun:
            text = text.lstrip()
            if not text:
                self._space = whole
                return ""
            self._begun = True
            self._skip_space()
        piece, offset, at = self._piece, self._offset, 0
        while at < len(text) and piece < len(self._said):
            said = self._said[piece]
            size = min(len(said) - offset, len(text) - at)
            if said[offset : offset + size] != text[at : at + size]:
                return whole
            at, offset = at + size, offset + size
            if offset == len(said):
                piece, offset = piece + 1, 0
        self._piece, self._offset = piece, offset
        rest = text[at:]
        if not rest.strip():
            self._space = rest
            return ""
        self.ahead = True
        return rest

    def _skip_space(self) -> None:
        """Step over the white space that the mirrored field begins with."""
        while self._piece < len(self._said):
            said = self._said[self._piece]
            rest = said[self._offset :].lstrip()
            if rest:
                self._offset = len(said) - len(rest)
                return
            self._piece, self._offset = self._piece + 1, 0


def pack_pieces(pieces: list[str], start: int) -> int:
    """Join the pieces from `start` on, in place; the new start."""
    joined = "".join(pieces[start:])
    del pieces[start:]
    pieces.append(joined)
    return len(pieces)


def join_fragments(details: list[Any], snapshots: bool) -> list[Any]:
    """Fragments of one item back together: neighbours of the same type and index, as their endpoints ask."""
    out: list[Any] = []
    texts: dict[str, _Fragments] = {}  # of the last item, where it is of fragments
    for item in details:
        last = out[-1] if out else None
        if (
            type(item) is dict
            and type(last) is dict
            and item.get("type") == last.get("type")
            and item.get("index") == last.get("index")
            and (item.get("id") is None or last.get("id") in (None, item.get("id")))
            and any(type(item.get(k)) is str and type(last.get(k)) is str for k in _TEXTS)
        ):
            if not texts:
                out[-1] = last = dict(last)
                texts = {key: _Fragments(last[key]) for key in _TEXTS if type(last.get(key)) is str}
            for key, value in item.items():
                if type(value) is str and key in texts:
                    texts[key].add(value, snapshots)
                elif value is not None:
                    last[key] = value
                    if key in _TEXTS:
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


class _Fragments:
    """The fragments of one text, joined once."""

    __slots__ = ("pieces", "size")

    def __init__(self, text: str) -> None:
        self.pieces = [text]
        self.size = len(text)

    def add(self, text: str, snapshots: bool) -> None:
        """Add a fragment; with `snapshots`, one that begins with all so far takes its place; a long one that is all so
        far once more is none."""
        if len(text) == self.size >= _SNAPSHOT:
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
