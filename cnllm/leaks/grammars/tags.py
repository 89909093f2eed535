"""Tags as models write them: found in a block in one pass, however they are decorated.

A tag may carry a namespace (`<ns:word …>`) or a word between bars before the grammar's own word, and all tags of a
block may follow a prefix, which its opener shows. What is decorated otherwise than the first tag is text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from cnllm.leaks.grammars.base import NotACall
from cnllm.leaks.markers import BARS, spelling_pattern

__all__ = ["Tag", "adjacency", "find_tags", "head_end", "is_tail", "may_be_head", "opener_prefix"]

_BAR = spelling_pattern(BARS[0])
_DECORATION = rf"(?P<decoration>{_BAR}\w{{1,32}}{_BAR}|[\w.-]{{1,64}}:\s{{0,2}})?"
_VALUE = r"(?:\"[^\"]{0,512}+\"|'[^']{0,512}+')"
_ATTRIBUTE = rf"\s{{0,4}}[\w:.-]{{1,64}}\s{{0,2}}=\s{{0,2}}{_VALUE}"
_ATTRIBUTES = re.compile(rf"([\w:.-]{{1,64}})\s{{0,2}}=\s{{0,2}}({_VALUE})")
_AFTER = (
    r"(?:\s{0,2}=\s{0,2}(?P<set>\"[^\"<>\n]{1,256}\"|'[^'<>\n]{1,256}'|[^<>\n\"']{1,256}+)"
    rf"|(?P<attributes>(?:{_ATTRIBUTE}){{0,8}}))\s{{0,4}}(?P<empty>/)?>"
)
_MOST = 10_000  # tags of a block that are read: what has more was not written for a tool
_NOISE = re.compile(rf"[\s{re.escape(BARS)}]")
_BEGUN = re.compile(
    r"(?:\s{0,2}=\s{0,2}[\"']?[\w.:/@-]{0,128}[\"']?\s{0,4}"
    rf"|(?:{_ATTRIBUTE}){{0,8}}\s{{0,4}}(?:[\w:.-]{{1,64}}\s{{0,2}}(?:=\s{{0,2}}(?:\"[^\"]{{0,512}}|'[^']{{0,512}})?)?)?/?)\Z"
)
_NAME = re.compile(r"[\"']?[\w:./@-]{1,128}[\"']?\s{0,4}")
"""What `_BEGUN` waits for to become whole: anything else is no call, whether it came at once or in pieces."""
_HEADLESS = re.compile(rf"(?:<[\s{re.escape(BARS)}\w.:-]{{0,100}})?\Z")


class Tag(Struct, frozen=True):
    """An opening or closing tag: where it stands, which word it is, and what it says."""

    start: int
    end: int
    which: int
    closes: bool
    empty: bool
    name: str
    says: dict[str, str]


@lru_cache(maxsize=64)
def _pattern(words: tuple[str, ...], prefix: str) -> re.Pattern[str]:
    any_word = "|".join(map(re.escape, words))
    return re.compile(
        rf"{re.escape(prefix)}<\s{{0,2}}(?P<closes>/)?\s{{0,2}}{_DECORATION}(?P<word>{any_word})(?=[\s=/>]){_AFTER}"
    )


@lru_cache(maxsize=64)
def _head(word: str, prefix: str) -> re.Pattern[str]:
    return re.compile(rf"\s*{re.escape(prefix)}<\s{{0,2}}{_DECORATION}{re.escape(word)}")


def opener_prefix(opener: str) -> str:
    """What the opener has before its tag. A line or a tag before it is no prefix."""
    prefix = opener[: max(opener.rfind("<"), 0)].lstrip()
    return "" if prefix[:1] in ("<", "`") or "\n" in prefix else prefix


def find_tags(text: str, words: tuple[str, ...], prefix: str, *, mixed: bool = False) -> list[Tag]:
    """The tags of these words in a text. An opening tag that names nothing is none.

    With `mixed` any decoration will do: models forget it in some of the tags of a block. Raises Unreadable for a block
    that is nothing but tags.
    """
    out: list[Tag] = []
    decoration: str | None = None
    for match in _pattern(words, prefix).finditer(text):
        this = _NOISE.sub("", match["decoration"] or "")
        closes = match["closes"] is not None
        says = dict(_ATTRIBUTES.findall(match["attributes"] or ""))
        says = {key: _unescaped(value[1:-1]) for key, value in says.items()}
        name = (match["set"] or "").strip().strip("\"'") or says.get("name", "")
        if decoration is None and not closes and name:
            decoration = this
        if (mixed or this == decoration) and (closes or name):
            if len(out) == _MOST:
                raise NotACall(f"it has more than {_MOST} tags")
            which = words.index(match["word"])
            out.append(Tag(match.start(), match.end(), which, closes, match["empty"] is not None, name, says))
    return out


def _unescaped(value: str) -> str:
    """Without entities, whose names are read when one may be there."""
    if "&" not in value:
        return value
    import html

    return html.unescape(value)


def head_end(text: str, word: str, prefix: str) -> int | None:
    """Where an opening tag that a text begins with has said its word; None when it does not begin with one."""
    match = _head(word, prefix).match(text)
    return match.end() if match else None


def is_tail(text: str, word: str, prefix: str) -> bool | None:
    """Is the rest of an opening tag whole (True), begun (None) or something else (False)? `text` begins with it."""
    at = head_end(text, word, prefix)
    if at is None:
        return False
    whole = _pattern((word,), prefix).match(text.lstrip())
    if whole:
        return bool(whole["attributes"] or (whole["set"] and _NAME.fullmatch(whole["set"])))
    return None if _BEGUN.match(text, at) else False


def may_be_head(text: str, prefix: str) -> bool:
    """Could a text that says no word yet become an opening tag?"""
    text = text.lstrip()
    if len(text) <= len(prefix):
        return prefix.startswith(text)
    return text.startswith(prefix) and _HEADLESS.match(text, len(prefix)) is not None


def adjacency(text: str, tags: Sequence[Tag], stop: int) -> list[bool]:
    """For each tag: is there nothing but space between it and the next one, or the end?"""
    ends = [*(tag.start for tag in tags[1:]), stop][: len(tags)]
    return [not text[tag.end : end].strip() for tag, end in zip(tags, ends, strict=True)]
