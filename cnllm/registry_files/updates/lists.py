"""Find and read the public lists: by name from their own addresses, or from a file."""

from __future__ import annotations

import datetime
from pathlib import Path

from cnllm.errors import RegistryError
from cnllm.registry_files.public_lists import ListName, published_models
from cnllm.registry_files.updates.changes import PublicList
from cnllm.system.files import read_bounded

__all__ = ["LIST_URLS", "MAX_BYTES", "list_from_bytes", "list_from_file"]

LIST_URLS: dict[str, str] = {
    "models.dev": "https://models.dev/api.json",
    "litellm": "https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json",
}
"""The addresses that the two projects name: the README of anomalyco/models.dev, and litellm/__init__.py."""

MAX_BYTES = 64 * 1024 * 1024
"""The largest list that is read; those of 2026-09 have 3 to 5 MB."""


def list_from_bytes(content: bytes, url: str, seen: datetime.date) -> PublicList:
    """Return the list with this content. Raises `RegistryError` for a content that is none."""
    name, models = published_models(content, url)
    return PublicList(name, url, seen, models)


def list_from_file(path: Path) -> PublicList:
    """Return the list in a file, as of the day on which the file was written. Raises `RegistryError`."""
    try:
        content = read_bounded(path, MAX_BYTES)
        seen = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC).date()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        names = ", ".join(LIST_URLS)
        raise RegistryError(
            f"cannot be read: {reason}", file=str(path), hint=f"name {names}, a file or a URL"
        ) from error
    name, models = published_models(content, str(path))
    return PublicList(name, _cited(name, path), seen, models)


def _cited(name: ListName, path: Path) -> str:
    """Return the source to cite: the list's own address, because a path says nothing on another machine."""
    return f"{LIST_URLS[name]} ({path.name})" if path.name.isprintable() else LIST_URLS[name]
