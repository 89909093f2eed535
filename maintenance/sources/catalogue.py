"""Find the entries of models in the files of a source, by the forms in `catalogues.toml`."""

from __future__ import annotations

import fnmatch
import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cnllm.registry_files.public_lists import CURRENCY, PublishedModel
from maintenance.sources import parse

__all__ = ["Entry", "Form", "entries", "forms", "get", "has_flag"]

HERE = Path(__file__).resolve().parent
_KINDS = {"pdf": "file", "document": "file"}
_CURRENCIES = {"RMB": "CNY", "¥": "CNY", "$": "USD"}
_STEP = re.compile(r"([^.\[\]]+)|\[(-?\d+)\]|\[([\w.]*)=([^\]]*)\]")
_DEEPEST = 12

Form = Mapping[str, Any]
"""One table of `catalogues.toml`."""

Entry = tuple[str, PublishedModel]
"""An entry and the file in which it stands."""


@functools.cache
def forms(url: str) -> list[Form]:
    """Return the forms of the catalogues in a source."""
    tables = tomllib.loads((HERE / "catalogues.toml").read_text(encoding="utf-8"))["catalogues"]
    return [table for table in tables if re.search(table["source"], url)]


def entries(form: Form, files: Mapping[str, bytes]) -> Iterator[Entry]:
    """Yield the entries of a catalogue. A file that cannot be read as its suffix says has none."""
    for path in files:
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in form["files"]):
            try:
                values = parse.data(path, files[path], form.get("start", ""))
            except (KeyError, ValueError, SyntaxError, RecursionError):
                continue
            for value in values:
                for trail, keys in _objects(form, value, (), ()):
                    if (model := _model(form, files, path, trail, keys)) is not None:
                        yield path, model


def has_flag(form: Form, flag: str) -> bool:
    """Whether the entries of a form may have the value of a flag."""
    names = {"reasoning.mode": "reasoning", "tools.supported": "tools"}
    return flag in form["fields"] or names.get(flag, flag) in form


def get(data: Any, path: str) -> Any:
    """Return the value at a path, or at the first of several with " | " between them that is there and not false."""
    value: Any = None
    for choice in path.split(" | "):
        value = _at(data, choice)
        if value is not None and value is not False:
            return value
    return value


def _at(value: Any, path: str) -> Any:
    """Return the value at one path."""
    for step in _STEP.finditer(path):
        key, index, name, wanted = step.groups()
        if key is not None:
            value = value.get(key) if isinstance(value, dict) else None
        elif not isinstance(value, list):
            return None
        elif index is not None:
            value = value[int(index)] if -len(value) <= int(index) < len(value) else None
        elif name:
            value = next((one for one in value if isinstance(one, dict) and one.get(name) == wanted), None)
        else:
            value = wanted in value
    return value


def _objects(
    form: Form, value: Any, trail: tuple[dict[str, Any], ...], keys: tuple[str, ...]
) -> Iterator[tuple[tuple[dict[str, Any], ...], tuple[str, ...]]]:
    """Yield the objects that have one of the form's fields, each at the end of the way to it, with the keys."""
    if len(keys) > _DEEPEST:
        return
    if isinstance(value, dict):
        trail = (*trail, value)
        told = [*form["fields"].values(), form.get("input", {}).get("list", "")]
        if any(path and get(value, path) is not None for path in told) or get(value, _base_field(form)) is not None:
            yield trail, keys
        for key, item in value.items():
            if isinstance(item, dict | list):
                yield from _objects(form, item, trail, (*keys, str(key)))
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict | list):
                yield from _objects(form, item, trail, keys)


def _model(
    form: Form, files: Mapping[str, bytes], path: str, trail: tuple[dict[str, Any], ...], keys: tuple[str, ...]
) -> PublishedModel | None:
    """Return an object as an entry, None where it has no id."""
    entry = _with_base(form, files, trail[-1])
    for field, values in form.get("only", {}).items():
        if get(entry, field) not in values:
            return None
    provider = _named(form["provider"], path, trail, keys)
    id = _named(form["id"], path, trail, keys)
    if not id:
        return None
    values = {flag: number for flag, at in form["fields"].items() if (number := _number(get(entry, at))) is not None}
    times = form.get("times", 1) * (_number(get(entry, form["times_at"])) or 0 if "times_at" in form else 1)
    for flag in list(values):
        if flag.startswith("price."):
            values[flag] = round(values[flag] * times, 9)
        if (not values[flag] and (flag.startswith("limits.") or flag in form.get("zero_is_unknown", ()))) or (
            flag.startswith("price.") and not times
        ):
            del values[flag]
    currency = get(entry, form["currency_at"]) if "currency_at" in form else None
    currency = currency or _above(trail, form.get("currency_above", "")) or CURRENCY
    base_url = _above(trail, form.get("base_url", ""))
    reasoning, tools = get(entry, form.get("reasoning", "")), get(entry, form.get("tools", ""))
    return PublishedModel(
        provider,
        id,
        values,
        base_url=base_url if isinstance(base_url, str) else None,
        input_only=form.get("input_only", False),
        input=_input(form.get("input", {}), entry),
        reasoning=bool(reasoning) if isinstance(reasoning, bool | int) else None,
        tools=bool(tools) if isinstance(tools, bool | int) else None,
        currency=_CURRENCIES.get(str(currency), str(currency)),
    )


def _input(form: Mapping[str, str], entry: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the kinds of input of an entry; a kind that it leaves out is none of them."""
    if "list" in form:
        kinds = get(entry, form["list"])
        return frozenset(_KINDS.get(k, k) for k in kinds if isinstance(k, str)) if isinstance(kinds, list) else None
    return frozenset({"text"} | {kind for kind, path in form.items() if get(entry, path)}) if form else None


def _named(ways: list[Mapping[str, Any]], path: str, trail: tuple[dict[str, Any], ...], keys: tuple[str, ...]) -> str:
    """Return the id or the provider of an entry: the first that is there, "" where none is."""
    for way in ways:
        value: Any = None
        if "field" in way:
            value = get(trail[-1], way["field"])
        elif "above" in way:
            value = _above(trail[:-1], way["above"])
        elif "key" in way and -len(keys) <= way["key"] < len(keys):
            value = keys[way["key"]]
            if "without" in way:  # the name repeats another field
                value = value.removeprefix(f"{get(trail[-1], way['without'])}/")
        elif "file" in way and (found := re.search(way["file"], path)):
            value = found[1]
        if isinstance(value, str) and value:
            return value
    return ""


def _above(trail: tuple[dict[str, Any], ...], field: str) -> Any:
    """Return a field of the nearest object on the way that has it."""
    return next((value for one in reversed(trail) if field and (value := get(one, field)) is not None), None)


def _base_field(form: Form) -> str:
    return str(form.get("base", {}).get("field", "-"))


def _with_base(form: Form, files: Mapping[str, bytes], entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry over the one that it is based on."""
    base = form.get("base")
    if base is None or not isinstance(name := get(entry, base["field"]), str):
        return entry
    path = base["file"].format(name)
    if path not in files:
        return entry
    below = dict(parse.data(path, files[path])[0])
    below.pop(base["without"], None)
    for omitted in get(entry, base["omit"]) or ():
        *parents, last = omitted.split(".")
        table = get(below, ".".join(parents)) if parents else below
        if isinstance(table, dict):
            table.pop(last, None)
    return _merged(below, entry)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return one table over another."""
    out = dict(below)
    for key, value in above.items():
        under = out.get(key)
        out[key] = _merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return out


def _number(value: Any) -> float | None:
    """Return a number, also one that is written as text; None for anything else."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
