"""The whole table, and a share of it that is always the same."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator

from .documents import documents, environment
from .judge import Input
from .options import messages, options, parts, tools
from .surface import folder, surface
from .values import VALUES
from .wires import bodies, requests, wires

__all__ = ["alone", "inputs", "share"]


def inputs() -> Iterator[Input]:
    """Yield every odd input."""
    yield from surface()
    yield from options()
    yield from messages()
    yield from parts()
    yield from tools()
    yield from bodies(VALUES)
    yield from wires()
    yield from requests()
    yield from documents()
    yield from environment()


def share(of: int, among: Iterable[Input] | None = None) -> Iterator[Input]:
    """Return one input of so many, chosen by its name, so that a new one changes nothing about the others."""
    return (
        one
        for one in (inputs() if among is None else among)
        if zlib.crc32(one.name.encode("utf-8", "surrogatepass")) % of == 0
    )


def alone() -> None:
    """Set an environment in which no key, setting or file of the user's has a part."""
    for name in list(os.environ):
        if name.endswith(("_KEY", "_TOKEN")) or name.startswith("CNLLM_") or name.lower().endswith("_proxy"):
            del os.environ[name]
    for kind in ("CONFIG", "DATA", "CACHE"):
        os.environ[f"CNLLM_{kind}_DIR"] = str(folder() / kind.lower())
    os.environ["CNLLM_ATTEMPTS"] = "1"
    os.chdir(folder())
