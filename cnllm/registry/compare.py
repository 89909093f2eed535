"""Compare the registry with a public file of limits and prices, and list their differences for a person to settle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from cnllm.registry.flags import Flags
from cnllm.registry.model import Fact, Model
from cnllm.registry.public_lists import CURRENCY, PublishedModel
from cnllm.registry.registry import Registry

__all__ = ["Comparison", "Disagreement", "compare"]

FLAGS = ("limits.context", "limits.output", "price.input", "price.output", "price.cached", "price.cache_write")
_LOCAL = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\]|0\.0\.0\.0)(?![\w.])")


class Disagreement(Struct, frozen=True):
    """A number that differs: `fact` is ours, with line and source, `there` is the file's name of the model."""

    model: str
    flag: str
    ours: float
    theirs: float
    there: str
    fact: Fact | None


class Comparison(Struct, frozen=True):
    """The result of a comparison: `found` of `models` are in the file, `numbers` could be compared."""

    models: int
    found: int
    numbers: int
    disagreements: tuple[Disagreement, ...]


def compare(registry: Registry, published: Iterable[PublishedModel]) -> Comparison:
    """Compare every model that is in the file, number by number. Prices in another currency are skipped."""
    index: dict[str, list[PublishedModel]] = {}
    for entry in published:
        index.setdefault(entry.id.casefold(), []).append(entry)
    match_count, numbers, disagreements = 0, 0, list[Disagreement]()
    names = registry.names()
    for name in names:
        model = registry.resolve(name)
        matches = _matching(model, index.get(model.id.casefold(), []))
        match_count += bool(matches)
        for match in matches:
            pairs = list(_pairs(model.flags, match))
            numbers += len(pairs)
            disagreements += [
                Disagreement(name, flag, ours, theirs, f"{match.provider}/{match.id}", _fact(model, flag))
                for flag, ours, theirs, same in pairs
                if not same
            ]
    return Comparison(len(names), match_count, numbers, tuple(dict.fromkeys(disagreements)))


def _matching(model: Model, entries: list[PublishedModel]) -> list[PublishedModel]:
    """Return the entries for the same id at the same provider.

    A provider is the same by its name; otherwise by its URL, unless that is of this machine, where every server may
    answer; otherwise if the model's key is named after it.
    """
    flags = model.flags
    address = _address(flags.base_url or "")
    words = {_plain(key.removesuffix("_KEY").removesuffix("_API")) for key in flags.keys or ()}
    for matches in (
        [entry for entry in entries if _plain(entry.provider) == _plain(model.provider)],
        [entry for entry in entries if entry.base_url and _address(entry.base_url) == address != ""],
        [entry for entry in entries if _plain(entry.provider) in words],
    ):
        if matches:
            return matches
    return []


def _plain(name: str) -> str:
    """Return a name without case and punctuation."""
    return "".join(c for c in name.casefold() if c.isalnum())


def _address(url: str) -> str:
    """Return a URL without case and scheme; "" for one of this machine."""
    address = url.casefold().partition("://")[2].rstrip("/")
    return "" if _LOCAL.match(address) else address


def _pairs(flags: Flags, match: PublishedModel) -> Iterator[tuple[str, float, float, bool]]:
    """Yield (flag, ours, theirs, whether they agree) for the numbers that both have."""
    has_price = flags.price is not None and flags.price.currency == CURRENCY
    for flag in FLAGS:
        table, _, name = flag.partition(".")
        if table == "price" and not has_price:
            continue
        ours, theirs = getattr(getattr(flags, table), name, None), match.values.get(flag)
        if ours is None or theirs is None:
            continue
        agree = _near(ours, theirs)
        if flag == "limits.context" and match.input_only and flags.limits is not None:
            output = max(flags.limits.output or 0, match.values.get("limits.output", 0))
            agree = theirs <= ours <= theirs + output
        yield flag, ours, theirs, agree


def _near(a: float, b: float) -> bool:
    """Whether two numbers are equal up to rounding."""
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def _fact(model: Model, flag: str) -> Fact | None:
    """Return the fact on a flag."""
    return next((fact for fact in model.explain() if fact.flag == flag), None)
