"""Place the data files among the loaded files, and name the version of the data.

A data file corrects models that the built-in file or the user describes. What it adds on its own ranks with the
catalogue: it counts only for a name that the other files do not have. So no short name and no alias leads elsewhere
because of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from cnllm._version import VERSION
from cnllm.registry.documents import CATALOGUE, Document
from cnllm.registry.files import RELEASE

__all__ = ["data_version", "documents_in_force", "is_outdated", "release_version"]

_HASH = 4  # bytes


def documents_in_force(documents: Sequence[Document]) -> list[Document]:
    """Return the documents, the data files among them with the models that count here.

    With the catalogue every model counts; otherwise those that another file describes.
    """
    if not any(document.is_data for document in documents):
        return list(documents)
    has_catalogue = any(document.builtin and document.path.name == CATALOGUE for document in documents)
    names = {name for document in documents if not document.is_data for name in document.data.get("models", ())}
    return [
        _part(document, None if has_catalogue else names) if document.is_data else document for document in documents
    ]


def _part(document: Document, names: set[str] | None) -> Document:
    """Return a data file with these of its models; None: all. An outdated one has none."""
    models = {} if is_outdated(document) else document.data.get("models", {})
    counted = {name: models[name] for name in models if names is None or name in names}
    return replace(document, data={"models": counted})


def is_outdated(document: Document) -> bool:
    """Whether a data file was made for an older version of the package: the data of this version are newer."""
    made_for = document.data.get("made_for")
    return made_for is not None and _numbers(made_for) < _numbers(VERSION)


def release_version(document: Document) -> str | None:
    """Return the version of a data release, as "2026-11-23.3"; None for a file that is none."""
    head = document.data.get("release")
    return None if head is None else f"{head['date']}.{head['serial']}"


def data_version(documents: Sequence[Document]) -> str:
    """Return the version of the data, such as "0.1.0+3f9a1c2b release 2026-11-23.3 updates 5d41402a"."""
    parts: list[str] = []
    for document in documents:
        if document.builtin and document.path.name != CATALOGUE:
            parts.insert(0, f"{VERSION}+{_digest(document)}")
        elif document.is_data and not is_outdated(document):
            if document.path.name != RELEASE:
                parts.append(f"updates {_digest(document)}")
            elif (version := release_version(document)) is not None:  # none is left by a rollback of the first one
                parts.append(f"release {version}")
    return " ".join(parts) or VERSION


def _digest(document: Document) -> str:
    """Return the beginning of the digest of a file's text, in hex."""
    return document.digest[:_HASH].hex()


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, so that versions can be compared."""
    numbers = (part for part in version.partition("+")[0].split("."))
    return tuple(int(part) for part in numbers if part.isdigit())
