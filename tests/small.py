"""A small built-in registry: the shipped file with a few of its providers, for tests that do not ask about its models.

The cost of a check, a listing or a comparison grows with the number of models, and these tests pay it many times.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

from cnllm.model_facts import summary
from cnllm.registry import files, read

__all__ = ["small_catalogue", "small_file", "use", "use_catalogue"]

PROVIDERS = ("anthropic", "deepseek", "openai-compatible", "zai", "zhipuai")  # the last two are sites of one vendor
_TABLE = re.compile(r"^\[(?=[a-z])", re.MULTILINE)
_HEAD = re.compile(r"(models|providers)\.\"?([A-Za-z0-9_-]+)")
_ITEM = re.compile(r"\"(?P<provider>[\w-]+)/[^\"\n]+\",")
_CITED = re.compile(r"(?:^sources *= \{ |^(?:sources\.)?|, )(?P<name>[a-z0-9-]+) *= [\[{\"]", re.MULTILINE)
_MODEL = re.compile(r"\"(?P<provider>[^/\"]+)/")
_ALIAS = re.compile(r"^(?P<name>\"?[\w./:-]+\"?)\s*=\s*\"(?P<provider>[\w-]+)/")


def small_file(folder: Path) -> Path:
    """Return the path of the small file in a folder, written if it is not there."""
    path = folder / "providers.toml"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(_small_text(), encoding="utf-8")
        part.replace(path)
    return path


def small_catalogue(folder: Path, *providers: str) -> Path:
    """Write the catalogue with these providers only to a folder, and return its path."""
    path = folder / "catalogue.toml"
    kept = "".join(_without_others(table, providers) for table in _tables(read.catalogue_path()))
    path.write_text(kept, encoding="utf-8")
    return path


def _tables(path: Path) -> Iterator[str]:
    """Yield the tables of a registry file; the first is what stands above all of them."""
    text = path.read_text(encoding="utf-8")
    starts = [0, *(match.start() for match in _TABLE.finditer(text)), len(text)]
    return (text[start:end] for start, end in itertools.pairwise(starts))


@functools.cache
def _small_text() -> str:
    kept = [_without_others(table, PROVIDERS) for table in _tables(read.builtin_path())]
    cited = set(_CITED.findall("".join(table for table in kept if not table.startswith("[sources]"))))
    return "".join(_cited_sources(table, cited) if table.startswith("[sources]") else table for table in kept)


def _cited_sources(table: str, cited: set[str]) -> str:
    """Return the table of sources with those that are cited."""
    return "".join(
        line
        for line in table.splitlines(keepends=True)
        if (source := _CITED.match(line)) is None or source["name"] in cited
    )


def _without_others(table: str, providers: Container[str]) -> str:
    """Return a table, or nothing where it belongs to a provider that is left out."""
    if table.startswith("#:schema"):
        return _ITEM.sub(lambda item: item[0] if item["provider"] in providers else "", table)
    if table.startswith(("[aliases]", "[family_aliases]")):
        return "".join(
            line
            for line in table.splitlines(keepends=True)
            if (alias := _ALIAS.match(line)) is None or alias["provider"] in providers
        )
    if table.startswith("[models]"):  # of the catalogue, where a model is a line
        return "".join(
            line
            for line in table.splitlines(keepends=True)
            if (model := _MODEL.match(line)) is None or model["provider"] in providers
        )
    head = _HEAD.match(table, 1)
    return table if head is None or head[2] in providers else ""


def use(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Make this file the built-in one, beside an empty catalogue."""
    catalogue = path.with_name("catalogue.toml")
    if not catalogue.exists():
        catalogue.write_text("schema = 1\n", encoding="utf-8")
    for module in (files, read, summary):
        monkeypatch.setattr(module, "builtin_file", lambda: str(path))
    use_catalogue(monkeypatch, catalogue)


def use_catalogue(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Make this file the catalogue."""
    for module in (files, read, summary):
        monkeypatch.setattr(module, "catalogue_file", lambda: str(path))
