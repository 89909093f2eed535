"""List the differences between two models, flag by flag."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from cnllm.registry.flags import Flags, walk_flags
from cnllm.registry.model import Fact, Model

__all__ = ["Difference", "differences", "in_order"]


class Difference(Struct, frozen=True):
    """A flag that differs between two models: the fact of each, None where there is none."""

    flag: str
    a: Fact | None
    b: Fact | None


def differences(a: Model, b: Model) -> list[Difference]:
    """Return every effective flag whose value differs, also in a mode (`when`), in the order of the flags."""
    left = {fact.flag: fact for fact in a.explain()}
    right = {fact.flag: fact for fact in b.explain()}
    flags = [fact.flag for fact in in_order([*left.values(), *(right[f] for f in right if f not in left)])]
    return [Difference(f, left.get(f), right.get(f)) for f in flags if not _same(left.get(f), right.get(f))]


def in_order(facts: Iterable[Fact]) -> list[Fact]:
    """Return facts in the order of the flags: those of one table together, those of a mode last."""
    order = {flag: index for index, (flag, _, _) in enumerate(walk_flags(Flags))}

    def rank(fact: Fact) -> tuple[bool, str, int, int, list[str], int]:
        keys = fact.flag.split(".")
        mode = ".".join(keys[:2]) if keys[0] == "when" else ""
        inner = keys[2:] if mode else keys
        first, second, third = (order.get(".".join(inner[:length]), len(order)) for length in (1, 2, 3))
        return bool(mode), mode, first, second, [] if second < len(order) else inner[1:2], third

    return sorted(facts, key=rank)


def _same(a: Fact | None, b: Fact | None) -> bool:
    """Whether two facts have the same value."""
    return a is not None and b is not None and a.value == b.value
