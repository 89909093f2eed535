"""Write data files: the text of their models, and the updates with new changes in them."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from cnllm._version import VERSION
from cnllm.errors import RegistryError
from cnllm.registry import merge
from cnllm.registry.check import require_valid
from cnllm.registry.data_layer import is_outdated
from cnllm.registry.data_rules import DataModel
from cnllm.registry.documents import Document, parse
from cnllm.registry.files import UPDATES, data_folder
from cnllm.registry.registry import Registry
from cnllm.registry_files.public_lists import PublicList
from cnllm.registry_files.updates.changes import Change
from cnllm.registry_files.updates.data_store import replace_data_file

__all__ = ["data_text", "toml_key", "toml_value", "updated_models", "updates_text", "write_updates"]

_HEAD = """\
# Limits, prices, kinds of input and new models from public lists, by `cnllm registry update`, which writes this file
# anew each time. Your own corrections belong into providers.toml, which ranks above this file.
"""
_LEAST_GROUPED = 10_000
_ORDER = list(DataModel.__struct_fields__)


def updates_text(models: Mapping[str, Any]) -> str:
    """Return the text of the file of updates."""
    return data_text(_HEAD, {"made_for": VERSION}, models)


def write_updates(registry: Registry, changes: Sequence[Change], lists: Sequence[PublicList]) -> Path:
    """Write these changes to the file of updates, and return its path.

    Raises `RegistryError` where that is impossible, or where the file is no longer the one that the registry has read.
    """
    text = updates_text(updated_models(registry, changes, lists)).encode()
    path = Path(data_folder()) / UPDATES
    document = Document(path, str(path), text, parse(text, str(path)), builtin=False, is_data=True)
    require_valid(document)
    read = next((d.text for d in registry.documents if d.is_data and d.path.name == UPDATES), None)

    def require_unchanged(present: bytes | None) -> None:
        if present != read:
            raise RegistryError("has changed meanwhile", file=str(path), hint="run the command again")

    return replace_data_file(UPDATES, text, require_unchanged)


def data_text(comment: str, head: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    """Return the text of a data file: the same for the same data, one line for each value.

    Raises `RegistryError` for data that TOML cannot hold.
    """
    lines = [f"{comment}schema = 1", *(f"{key} = {toml_value(value)}" for key, value in head.items())]
    for name, table in sorted(models.items()):
        lines += ["", f"[models.{toml_value(name)}]"]
        ordered = sorted(table.items(), key=lambda item: _ORDER.index(item[0]))
        for key, value in ordered:
            if key in ("limits", "price", "status", "reasoning", "sources"):
                lines += [f"{key}.{toml_key(inner)} = {toml_value(item)}" for inner, item in value.items()]
            else:
                lines.append(f"{key} = {toml_value(value)}")
    text = "\n".join(lines) + "\n"
    data = {"schema": 1, **head, **({"models": models} if models else {})}
    expected = parse(tomli_w.dumps(_plain(data)).encode(), UPDATES)
    if parse(text.encode(), UPDATES) != expected:
        raise RegistryError("would not hold the same data", file=UPDATES, hint="report this; nothing was written")
    return text


def updated_models(
    registry: Registry, changes: Sequence[Change], lists: Sequence[PublicList]
) -> dict[str, dict[str, Any]]:
    """Return the models of the file of updates with these changes in it.

    What the other files say as well is left out, and so are the updates of an older version of the package.
    """
    document = next((d for d in registry.documents if d.is_data and d.path.name == UPDATES), None)
    models: dict[str, dict[str, Any]] = {}
    if document is not None and not is_outdated(document):
        models = copy.deepcopy(dict(document.data.get("models", {})))
    for change in changes:
        table = models.setdefault(change.model, {})
        value = copy.deepcopy(change.theirs)
        if not change.flag:
            models[change.model] = table = value
            flags = [".".join(keys) for keys, _ in merge.flatten(value)]
        else:
            head, _, name = change.flag.partition(".")
            flags = [change.flag]
            if name:
                table.setdefault(head, {})[name] = value
            else:
                table[head] = value
        for flag in flags:
            _cite(table, flag, change, lists)
    below = Registry([d for d in registry.documents if d is not document])
    return {name: table for name, full in models.items() if (table := _without_known(below, name, full))}


def _cite(table: dict[str, Any], flag: str, change: Change, lists: Sequence[PublicList]) -> None:
    """Let the lists of a change back a flag, and no other source."""
    sources: dict[str, Any] = table.setdefault("sources", {})
    for name, source in list(sources.items()):
        source["backs"] = [backed for backed in source["backs"] if backed != flag]
        if not source["backs"]:
            del sources[name]
    provider = change.model.partition("/")[0]  # ours: a list's own name of it may hold anything
    for one in lists:
        if one.name in change.lists:
            key = one.name.replace(".", "-")
            cited = {"url": f"{one.url}#{provider}", "seen": one.seen.isoformat(), "how": "code"}
            sources[key] = {**cited, "backs": sorted({*sources.get(key, {}).get("backs", ()), flag})}


def _without_known(below: Registry, name: str, full: dict[str, Any]) -> dict[str, Any]:
    """Return the table of a model without the values that the other files have as well."""
    table = copy.deepcopy(full)
    if name in below.names(catalogue=True):
        facts = {fact.flag: fact.value for fact in below.resolve(name).explain()}
        for keys, value in list(merge.flatten({k: v for k, v in table.items() if k != "sources"})):
            if (flag := ".".join(keys)) in facts and facts[flag] == value:
                inner = table if len(keys) == 1 else table[keys[0]]
                del inner[keys[-1]]
                for source in table.get("sources", {}).values():
                    source["backs"] = [backed for backed in source["backs"] if backed != flag]
    sources = {key: source for key, source in table.pop("sources", {}).items() if source["backs"]}
    table = {key: value for key, value in table.items() if value != {}}
    return {**table, "sources": sources} if table else {}


def _plain(value: Any) -> Any:
    """Return data without None, which TOML does not have."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return list(value) if isinstance(value, tuple) else value


def toml_key(name: str) -> str:
    """Return a key as TOML, in quotes where it needs them."""
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else toml_value(name)


def _is_date(text: str) -> bool:
    """Whether a text is a day of the calendar, as TOML writes one without quotes."""
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def toml_value(value: Any, *, is_grouped: bool = False) -> str:
    """Return a value as TOML, on one line; its large whole numbers in groups where `is_grouped`."""
    if isinstance(value, Mapping):
        members = (f"{toml_key(key)} = {toml_value(item, is_grouped=is_grouped)}" for key, item in value.items())
        return f"{{ {', '.join(members)} }}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if is_grouped and type(value) is int and abs(value) >= _LEAST_GROUPED:
        return f"{value:_}"
    if isinstance(value, str) and _is_date(value):
        return value
    return tomli_w.dumps({"x": value}).rstrip("\n").removeprefix("x = ")
