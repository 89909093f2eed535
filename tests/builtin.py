"""The built-in registry alone, read once for all tests of a process: what many tests make of its models is kept."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from cnllm.registry import Registry
from cnllm.registry.model import ATOMS, conditions
from docs.generate.builtin import registry

__all__ = ["BUILTIN", "modes"]

BUILTIN: Registry = registry()


def modes() -> Iterator[frozenset[str]]:
    """Yield every complete mode of a model, with all conditions decided."""
    for values in itertools.product((True, False), repeat=len(ATOMS)):
        yield conditions(**dict(zip(ATOMS, values, strict=True)))
