"""The built-in registry alone, read once for all tests of a process: what many tests make of its models is kept."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

from cnllm.registry import Registry
from cnllm.registry.model import ATOMS, conditions
from cnllm.registry.read import builtin_path
from docs.generate.builtin import registry

__all__ = ["BUILTIN", "modes", "written"]

BUILTIN: Registry = registry()


def modes() -> Iterator[frozenset[str]]:
    """Yield every complete mode of a model, with all conditions decided."""
    for values in itertools.product((True, False), repeat=len(ATOMS)):
        yield conditions(**dict(zip(ATOMS, values, strict=True)))


@cache
def written() -> dict[str, Any]:
    """Return what providers.toml says, as TOML has it. It takes half a second to parse: tests change nothing of it."""
    return tomllib.loads(builtin_path().read_text(encoding="utf-8"))
