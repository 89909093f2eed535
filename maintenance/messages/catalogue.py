"""Read and write a catalogue in gettext's format, with the messages of the source in their order."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

from maintenance.messages.extract import PACKAGE, messages

__all__ = ["CATALOGUES", "catalogue_bytes", "catalogues", "translations"]

CATALOGUES = PACKAGE / "cli" / "language"


def catalogues() -> list[Path]:
    """Return the files of all languages."""
    return sorted(CATALOGUES.glob("*.po"))


def translations(path: Path) -> dict[str, str]:
    """Return the translation of each message of a file; messages without one are not in it."""
    with path.open("rb") as file:
        catalogue = read_po(file, abort_invalid=True)
    return {str(entry.id): str(entry.string) for entry in catalogue if entry.id and entry.string}


def catalogue_bytes(language: str, known: Mapping[str, str]) -> bytes:
    """Return the catalogue with every message of the source. A message that `known` lacks has an empty translation."""
    catalogue = Catalog(locale=language, fuzzy=False)
    catalogue.header_comment = "# The messages of the command line. `python -m maintenance.messages` keeps this file."
    for message, files in messages().items():
        comments = [f"{{{index}}} = {value}" for index, value in enumerate(message.values)]
        catalogue.add(
            message.text,
            known.get(message.text, ""),
            locations=[(f"cnllm/{name}", 0) for name in files],
            flags=["python-brace-format"] if message.is_template else [],
            auto_comments=comments,
        )
    out = io.BytesIO()
    write_po(out, catalogue, width=0, omit_header=True, include_lineno=False)
    head = f'{catalogue.header_comment}\nmsgid ""\nmsgstr ""\n' + "".join(f'"{line}\\n"\n' for line in _head(language))
    return head.encode() + b"\n" + out.getvalue()


def _head(language: str) -> tuple[str, ...]:
    """Return the header without the time, so that equal messages give equal bytes."""
    return (f"Language: {language}", "MIME-Version: 1.0", "Content-Type: text/plain; charset=utf-8")
