"""Tell which pages of the Chinese manual are behind their English twins.

python -m docs.twins               name the pages whose English page has changed; exit status 1 if there are any
python -m docs.twins PAGE…         mark these pages as up to date, after you have read what changed and translated it

Each page ends with a mark: the English page, and the digest of the text that was translated.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docs.status import without_status

__all__ = ["ROOT", "Twin", "mark", "twins"]

ROOT = Path(__file__).parents[1]
_MARK = re.compile(r"\n<!-- translated from (\S+), sha256 (\w+) -->\n$")
_INCLUDE = re.compile(r"\A```\{include\} (\S+)\n")


class Twin(NamedTuple):
    """A Chinese page, its English page, and the digest of that page when it was translated; None without a mark."""

    page: Path
    original: Path
    digest: str | None

    @property
    def is_current(self) -> bool:
        """Whether the English page is the one that was translated."""
        return self.digest == _digest(self.original)


def twins() -> Iterator[Twin]:
    """Yield the pages that translate another page. The index of the Chinese manual has a text of its own."""
    docs = ROOT / "docs"
    pages = {page: docs / page.relative_to(docs / "zh") for page in _translated(docs / "zh")}
    for page, original in {ROOT / "README.zh-CN.md": ROOT / "README.md", **pages}.items():
        match = _MARK.search(page.read_text(encoding="utf-8"))
        yield Twin(page, _included(original), match[2] if match else None)


def _translated(folder: Path) -> list[Path]:
    """Return the pages that people translate: the generated ones are as current as what they come from."""
    return [page for page in sorted(folder.glob("*/**/*.md")) if page.parent.name not in ("reference", "vendors")]


def _included(page: Path) -> Path:
    """Return the file outside of the manual that makes up a page, or the page."""
    match = _INCLUDE.match(page.read_text(encoding="utf-8"))
    return (page.parent / match[1]).resolve() if match else page


def mark(twin: Twin) -> None:
    """Write into a page that it translates the present English page."""
    text = _MARK.sub("", twin.page.read_text(encoding="utf-8"))
    name = twin.original.relative_to(ROOT).as_posix()
    twin.page.write_text(
        f"{text.rstrip()}\n\n<!-- translated from {name}, sha256 {_digest(twin.original)} -->\n", encoding="utf-8"
    )


def _digest(page: Path) -> str:
    text = re.sub(r"(<!-- faults -->).*?(<!-- /faults -->)", r"\1\2", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = without_status(text)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def main() -> int:
    """Name the pages that are behind, or mark pages. Return the exit status."""
    known = {twin.page: twin for twin in twins()}
    for name in sys.argv[1:]:
        if (twin := known.get(Path(name).resolve())) is None:
            sys.stderr.write(f"{name}: no page of docs/zh that translates another one\n")
            return 2
        mark(twin)
    if sys.argv[1:]:
        return 0
    behind = [twin for twin in known.values() if not twin.is_current]
    for twin in behind:
        sys.stdout.write(f"{twin.page.relative_to(ROOT)}: {twin.original.relative_to(ROOT)} has changed\n")
    return int(bool(behind))


if __name__ == "__main__":
    sys.exit(main())
