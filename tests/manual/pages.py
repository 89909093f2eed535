"""Read the pages of the manual: their code blocks, and what the comments around a block say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
GENERATED = "<!-- Written by `python -m docs.generate`."  # in the head of a page that nobody writes by hand

_COMMENT = re.compile(r"<!-- (not run|before|after):(.*?)-->\n", re.DOTALL)
_FENCE = re.compile(r"(?P<fence>`{3,})(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=fence)\n", re.DOTALL | re.MULTILINE)


_PROMISE = re.compile(r"without a key|needs? no key|\bno key\b|不需要密钥|不用密钥|无需密钥", re.IGNORECASE)
_WITH_KEY = re.compile(
    r"with a key|要有密钥|_API_KEY=|simulate=True\) (needs no|不需要)|then for real|once from a real|一次来自真实"
)


class Block(NamedTuple):
    """A code block. `why` it is not run, or None; `kind` is a language, or `before` or `after` of a hidden comment.

    `keyless`: the page says that it needs no key: in the block, in the heading or the paragraph before it, or in the
    introduction of the page.
    """

    kind: str
    code: str
    line: int
    why: str | None = None
    keyless: bool = False


def pages() -> list[Path]:
    """List the pages that people write."""
    texts = {page: page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").rglob("*.md"))}
    written = [page for page, text in texts.items() if GENERATED not in text[:100]]
    beside = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / ".github").rglob("*.md"))]
    return [*beside, *written]


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a page and its hidden comments, in their order."""
    place, why = 0, None
    introduction = text.partition("\n## ")[0].partition("\n```")[0]
    is_promised = _PROMISE.search(introduction) is not None and _WITH_KEY.search(introduction) is None
    before = ""  # the heading and the paragraph that a block follows
    while place < len(text):
        begins = place == 0 or text[place - 1] == "\n"
        if begins and (comment := _COMMENT.match(text, place)):
            kind, said = comment.groups()
            line = text.count("\n", 0, place) + 1
            if kind == "not run":
                why = said.strip()
            else:
                yield Block(kind, said.strip("\n") + "\n", line)
            place = comment.end()
        elif begins and (fence := _FENCE.match(text, place)):
            if not fence["language"].startswith("{"):  # a directive of MyST
                code = fence["code"]
                keyless = (is_promised or _PROMISE.search(before + code) is not None) and not _WITH_KEY.search(code)
                yield Block(fence["language"].strip(), code, text.count("\n", 0, place) + 2, why, keyless)
                before = ""
            place, why = fence.end(), None
        else:
            end = text.find("\n", place) + 1 or len(text)
            line_text = text[place:end]
            before = line_text if line_text.startswith("#") else before + line_text
            if line_text.strip():
                why = None
            place = end
