"""Find the bound of a number: a wild value is refused, the bound in the refusal's words passes, the next does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from cnllm.probe.exchange import Ask, Asking, ProbeAnswer

__all__ = ["BoundSearch", "ProvenBound", "find_bound", "numbers"]

_NUMBER = re.compile(r"(?<![\w.])[-−]?\d[\d,_]*(?:\.\d+)?(?![\w])")
_MOST_TRIES = 3

Number = float | int


class ProvenBound(Struct, frozen=True):
    """A bound that two requests prove. `open`: the bound itself is refused. `quote`: the words of a refusal."""

    value: Number
    open: bool = False
    quote: str = ""


BoundSearch = ProvenBound | ProbeAnswer | None
"""What a search found: a bound; else the endpoint's refusal of a value far outside; None where it takes that value."""


def numbers(text: str) -> list[Number]:
    """Return the numbers in a text, in order, each once."""
    found: list[Number] = []
    for match in _NUMBER.findall(text):
        plain = match.replace(",", "").replace("_", "").replace("−", "-")
        value: Number = float(plain) if "." in plain else int(plain)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value not in found:
            found.append(value)
    return found


def find_bound(
    ask: Callable[[Number], Ask],
    wild: Number,
    step: Number,
    *,
    known: Iterable[Number] = (),
    hint: Number | None = None,
    least: Number | None = None,
) -> Asking[BoundSearch]:
    """Find the bound between the accepted values and a wild one.

    `step` is the least distance that counts, `known` are bounds that endpoints have, and a number below `least` in the
    words of a refusal is none. Returns None where the wild value passes, and its refusal where no bound was found. With
    `hint` only that bound is tried.
    """
    quote = ""
    refusal: ProbeAnswer | None = None
    if hint is None:
        refusal = yield ask(wild)
        if not refusal.refused:
            return None
        quote = refusal.message
        figures = [n for n in numbers(quote) if n != wild and _is_before(n, wild) and (least is None or n >= least)]
        candidates = list(dict.fromkeys([*figures[:_MOST_TRIES], *(k for k in known if _is_before(k, wild))]))
    else:
        candidates = [hint]
    outward = step if wild > 0 else -step
    for value in candidates:
        at = yield replace(ask(value), control=True)  # that it is taken is proven by one answer
        if at.refused:
            inside = yield ask(_plus(value, -outward))
            if inside.passed:
                return ProvenBound(value, open=True, quote=quote or at.message)
            continue
        beyond = yield ask(_plus(value, outward))
        if beyond.refused:
            return ProvenBound(value, quote=quote or beyond.message)
    return refusal


def _is_before(value: Number, wild: Number) -> bool:
    return -abs(wild) <= value < wild if wild > 0 else wild < value <= max(1, abs(wild) * 4096)


def _plus(value: Number, step: Number) -> Number:
    total = value + step
    return total if isinstance(total, int) else round(total, 6)
