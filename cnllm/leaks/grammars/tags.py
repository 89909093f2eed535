"""Find tags as models write them, in one pass over a block, however they are decorated.

A tag may carry a namespace (`<ns:word …>`) or a word between bars before the grammar's own word, and all tags of a
block may follow a prefix, which the opener shows, and spaces. A tag with another decoration than the first is text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice

from msgspec import Struct

from cnllm.leaks.grammars.base import NotACall
from cnllm.leaks.markers import BAR, BARS

__all__ = [
    "Tag",
    "adjacency",
    "find_tags",
    "head_end",
    "is_tail",
    "iter_tags",
    "may_be_head",
    "opener_prefix",
    "prefix_pattern",
]

_DECORATION = rf"(?P<decoration>{BAR}\w{{1,32}}{BAR}|[\w.-]{{1,64}}:\s{{0,2}})?"
_VALUE = r"(?:\"[^\"]{0,512}+\"|'[^']{0,512}+'|[\w:./@-]{1,128}+)"
_ATTRIBUTE = rf"\s{{0,4}}[\w:.-]{{1,64}}\s{{0,2}}=\s{{0,2}}{_VALUE}"
_ATTRIBUTES = re.compile(rf"([\w:.-]{{1,64}})\s{{0,2}}=\s{{0,2}}({_VALUE})")
_AFTER = (
    r"(?:\s{0,2}=\s{0,2}(?P<set>\"[^\"<>\n]{1,256}\"|'[^'<>\n]{1,256}'|[^<>\n\"'=]{1,256}?)"
    rf"(?P<more>(?:(?=\s){_ATTRIBUTE}){{0,8}}+)"
    rf"|(?P<attributes>(?:{_ATTRIBUTE}){{0,8}}))\s{{0,4}}(?P<empty>/)?>"
)
_MAX_TAGS = 10_000  # tags of a block that are read: a longer block was not written for a tool
_NOISE = re.compile(rf"[\s{re.escape(BARS)}]")
_INCOMPLETE_TAIL = re.compile(
    r"(?:\s{0,2}=\s{0,2}[\"']?[\w.:/@-]{0,128}[\"']?)?"
    rf"(?:{_ATTRIBUTE}){{0,8}}\s{{0,4}}(?:[\w:.-]{{1,64}}\s{{0,2}}(?:=\s{{0,2}}(?:\"[^\"]{{0,512}}|'[^']{{0,512}})?)?)?/?\Z"
)
_NAME = re.compile(r"[\"']?[\w:./@-]{1,128}[\"']?\s{0,4}")
"""The end that completes `_BEGUN`: anything else is no call, whether it arrives at once or in pieces."""
_HEADLESS = re.compile(rf"\s{{0,4}}(?:<[\s{re.escape(BARS)}\w.:-]{{0,100}})?\Z")


class Tag(Struct, frozen=True):
    """An opening or closing tag: its position, the index of its word, its name and its attributes."""

    start: int
    end: int
    word_index: int
    closes: bool
    empty: bool
    name: str
    attributes: dict[str, str]


@lru_cache(maxsize=64)
def _pattern(words: tuple[str, ...], prefix: str) -> re.Pattern[str]:
    """Return the pattern of a tag with one of these words behind a prefix."""
    any_word = "|".join(map(re.escape, words))
    return re.compile(
        rf"{prefix_pattern(prefix)}<\s{{0,2}}(?P<closes>/)?\s{{0,2}}{_DECORATION}(?P<word>{any_word})(?=[\s=/>]){_AFTER}",
        re.IGNORECASE,
    )


@lru_cache(maxsize=64)
def _head(word: str, prefix: str) -> re.Pattern[str]:
    """Return the pattern of the beginning of an opening tag, up to its word."""
    return re.compile(rf"\s*{prefix_pattern(prefix)}<\s{{0,2}}{_DECORATION}{re.escape(word)}", re.IGNORECASE)


def opener_prefix(opener: str) -> str:
    """Return the text of the opener before its tag. A line or a tag before it is no prefix."""
    prefix = opener[: max(opener.rfind("<"), 0)].strip()
    return "" if prefix[:1] in ("<", "`") or "\n" in prefix else prefix


def prefix_pattern(prefix: str) -> str:
    """Return the pattern of a prefix with the spaces that may stand behind it; "" where there is no prefix."""
    return rf"{re.escape(prefix)}\s{{0,4}}" if prefix else ""


def find_tags(text: str, words: tuple[str, ...], prefix: str, *, mixed: bool = False) -> list[Tag]:
    """Return the tags of these words in a text. An opening tag without a name is text.

    With `mixed` every decoration is accepted: models forget it in some of the tags of a block. Raises `NotACall` for
    a block with too many tags.
    """
    tags = list(islice(iter_tags(text, words, prefix, mixed=mixed), _MAX_TAGS + 1))
    if len(tags) > _MAX_TAGS:
        raise NotACall(f"it has more than {_MAX_TAGS} tags")
    return tags


def iter_tags(text: str, words: tuple[str, ...], prefix: str, *, mixed: bool = False) -> Iterator[Tag]:
    """Yield the tags that `find_tags` returns, as many as there are."""
    decoration: str | None = None
    spellings = [word.lower() for word in words]
    for match in _pattern(words, prefix).finditer(text):
        own_decoration = _NOISE.sub("", match["decoration"] or "").lower()
        closes = match["closes"] is not None
        attributes = dict(_ATTRIBUTES.findall(match["attributes"] or match["more"] or ""))
        attributes = {key.lower(): html.unescape(value.strip("\"'")) for key, value in attributes.items()}
        name = (match["set"] or "").strip().strip("\"'") or attributes.get("name", "")
        if decoration is None and not closes and name:
            decoration = own_decoration
        if (mixed or own_decoration == decoration) and (closes or name):
            word_index = spellings.index(match["word"].lower())
            yield Tag(match.start(), match.end(), word_index, closes, match["empty"] is not None, name, attributes)


def head_end(text: str, word: str, prefix: str) -> int | None:
    """Return the position behind the word of the opening tag that a text begins with; None if there is no such tag."""
    match = _head(word, prefix).match(text)
    return match.end() if match else None


def is_tail(text: str, word: str, prefix: str) -> bool | None:
    """Whether the rest of an opening tag is complete (True), incomplete (None) or something else (False).

    `text` begins with the tag.
    """
    position = head_end(text, word, prefix)
    if position is None:
        return False
    tag = _pattern((word,), prefix).match(text.lstrip())
    if tag:
        return bool(tag["attributes"] or (tag["set"] and _NAME.fullmatch(tag["set"])))
    return None if _INCOMPLETE_TAIL.match(text, position) else False


def may_be_head(text: str, prefix: str) -> bool:
    """Whether a text that has no word yet could become an opening tag."""
    text = text.lstrip()
    if len(text) <= len(prefix):
        return prefix.startswith(text)
    return text.startswith(prefix) and _HEADLESS.match(text, len(prefix)) is not None


def adjacency(text: str, tags: Sequence[Tag], stop: int) -> list[bool]:
    """Return for each tag whether only white space stands between it and the next one, or the end."""
    ends = [*(tag.start for tag in tags[1:]), stop][: len(tags)]
    return [not text[tag.end : end].strip() for tag, end in zip(tags, ends, strict=True)]
