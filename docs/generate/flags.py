"""The flags of the registry, from the classes in `cnllm.registry.flags`: values, meaning, and who sets them."""

from __future__ import annotations

import datetime
import tomllib
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from cnllm.registry import flags
from cnllm.registry.read import builtin_path
from docs.generate.markdown import cell, prose, table

__all__ = ["Flag", "all_flags", "page", "plain", "setters"]

PATCH = flags.Patch
CALL = "call"  # its keys are those of `flags.Call`, though the field itself takes any
OPEN = {"params": "params.NAME", "finish": "finish.WORD"}
"""Tables whose keys are the endpoint's own names: one flag each."""

_SHOWN = 3  # who set a flag, by name


class Flag(Struct, frozen=True):
    """A row of a table: `names` are flags of one table with the same meaning."""

    names: tuple[str, ...]
    values: str
    meaning: str  # Markdown
    inner: type[Struct] | None = None

    @property
    def name(self) -> str:
        """The flag's name; where several are one row, the first and the last."""
        first, *others = self.names
        return f"`{first}` … `.{others[-1].rpartition('.')[2]}`" if others else f"`{first}`"


def plain(kind: Any) -> Any:
    """Return a type without its marks and without None."""
    while typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    several = [member for member in typing.get_args(kind) if member is not type(None)]
    optional = typing.get_origin(kind) in (types.UnionType, typing.Union) and len(several) == 1
    return plain(several[0]) if optional else kind


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _keys(struct: type[Struct]) -> str:
    if issubclass(struct, flags.Flags):
        return "table"
    return f"`{{ {', '.join(field.encode_name for field in msgspec.structs.fields(struct))} }}`"


_WORDS = {bool: "true false", int: "number", float: "number", str: "text", datetime.date: "date"}


def values(kind: Any) -> str:
    """Return the values of a type."""
    kind = plain(kind)
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " ".join(f"`{value}`" for value in inside)
    if origin in (types.UnionType, typing.Union):
        shown = [values(member) for member in inside if member is not type(None)]
        return ", ".join("`false`" if member == "true false" else member for member in shown)
    if origin is list:
        return f"list of {values(inside[0])}"
    if origin is dict:
        return "table"
    return _keys(kind) if _is_struct(kind) else _WORDS.get(kind, "any")


def meaning(struct: type[Struct], field: msgspec.structs.FieldInfo) -> str:
    """Return the meaning of a flag, and in italics the reason for it, if the code gives one."""
    does, why = flags.flag_texts(struct).get(field.encode_name, ("", ""))
    return f"{cell(does)} *{cell(why)}*" if why else cell(does)


def _rows(struct: type[Struct], prefix: str = "") -> Iterator[Flag]:
    """Yield a row for each flag, also for those of inner tables."""
    for field in msgspec.structs.fields(struct):
        name = prefix + field.encode_name
        kind = plain(field.type)
        text = meaning(struct, field)
        if _is_struct(kind) and kind is not PATCH:
            yield from _rows(kind, f"{name}.")
        elif name == CALL:
            yield Flag((name,), _keys(flags.CallFlags), text, flags.CallFlags)
        else:
            structs = [one for one in _within(kind) if _is_struct(one) and one is not PATCH]
            yield Flag((OPEN.get(name, name),), _open(name, kind), text, structs[0] if structs else None)


def _open(name: str, kind: Any) -> str:
    return values(typing.get_args(kind)[1]) if name in OPEN else values(kind)


def _within(kind: Any) -> Iterator[Any]:
    """Yield a type and the types inside it."""
    yield kind
    for inner in typing.get_args(kind):
        yield from _within(inner)


def _value_and_meaning(flag: Flag) -> tuple[str, str]:
    return flag.values, flag.meaning


def _table(flag: Flag) -> str:
    return flag.names[0].rpartition(".")[0]


def all_flags(struct: type[Struct] = flags.Flags) -> list[Flag]:
    """List the flags. Neighbours of one table with the same values and the same meaning are one row."""
    out: list[Flag] = []
    for flag in _rows(struct):
        last = out[-1] if out else None
        if last is not None and _table(last) == _table(flag) and _value_and_meaning(last) == _value_and_meaning(flag):
            out[-1] = msgspec.structs.replace(last, names=(*last.names, *flag.names))
        else:
            out.append(flag)
    return out


# ── who sets a flag ──────────────────────────────────────────────────────────


@cache
def setters() -> dict[str, list[str]]:
    """Return for each flag the providers (with their models), families and wires that set it, and the defaults."""
    names_by_flag: dict[str, dict[str, None]] = {name: {} for flag in all_flags() for name in flag.names}
    starts = {f"{table}.": shown for table, shown in OPEN.items()}

    def walk(who: str, part: dict[str, Any], prefix: str = "") -> None:
        for key, value in part.items():
            if not prefix and key in ("when", "on", "families"):
                for inner in value.values():
                    walk(who, inner)
                continue
            name = prefix + key
            for shown in (name, *(shown for start, shown in starts.items() if name.startswith(start))):
                if shown in names_by_flag:
                    names_by_flag[shown][who] = None
            if isinstance(value, dict):
                walk(who, value, f"{name}.")

    document = tomllib.loads(builtin_path().read_text(encoding="utf-8"))
    labels = {"providers": "{}", "models": "{}", "families": "{} (family)", "protocols": "{} (wire)"}
    for section, label in labels.items():
        for name, part in document[section].items():
            walk(label.format(name.split("/")[0] if section == "models" else name), part)
    walk("the defaults", document["defaults"])
    return {name: list(who) for name, who in names_by_flag.items()}


def _set_by(flag: Flag) -> str:
    who = list(dict.fromkeys(provider for name in flag.names for provider in setters()[name]))
    more = f" and {len(who) - _SHOWN} more" if len(who) > _SHOWN else ""
    return ", ".join(who[:_SHOWN]) + more


# ── the page ─────────────────────────────────────────────────────────────────


def page() -> str:
    """Return a page with every flag, with a section for each table."""
    parts = [
        "# Flags",
        "What an endpoint does on the wire, as data. A flag that nobody sets is unknown, which is neither false nor "
        "zero. Where flags stand and which one wins is under [the registry file](registry-file.md). Paths are dotted "
        "(`thinking.budget_tokens`); a number in a path is an index. In italics stands why there is a flag. The last "
        "column names who sets it in the built-in file.",
    ]
    sections: dict[str, list[Flag]] = {}
    for flag in all_flags():
        sections.setdefault(_section(flag), []).append(flag)
    for name, rows in sections.items():
        parts.append(f"## {_title(name)}")
        struct = _struct(name)
        if struct is not None and struct.__doc__:
            parts.append(prose(flags.table_text(struct).does))
        parts.append(
            table(["flag", "values", "meaning", "set by"], [[f.name, f.values, f.meaning, _set_by(f)] for f in rows])
        )
        for flag in rows:
            if flag.inner is not None:
                parts += _inner(flag)
    parts += [
        "## Sources",
        "Where the facts come from. A file names each source once, as `[sources]` at its top level, and a table cites "
        'it in its own `sources`: `NAME = "price"`, or `NAME = ["limits", "price"]`, says what the source backs there. '
        'A `?` behind a flag marks it as inferred: `"price?"`. A source is one text, `"HOW DAY URL"` or '
        '`"HOW DAY URL PATH"`, or a table:',
        _keys_table(flags.Source),
        "A provider, and `[defaults.sources]` for the whole file, may state once what backs a flag of many models: "
        '`NAME = ["models.limits"]`. Of all sources of a flag, the one that names it most precisely counts; of equally '
        "precise ones, the nearest: the model's own, then the provider's, then the file's.",
        '`NAME = { backs = ["limits"], how = "code" }` says what differs; a list may hold both forms. In a '
        "small file a citation may name its own `url`, and then needs no entry in `[sources]`.",
        _keys_table(flags.SourceFacts),
    ]
    parts += ["## What a table may hold besides", _keys_table(flags.Table, flags.Flags)]
    parts += ["## A registry file", _keys_table(flags.RegistryFile)]
    return "\n\n".join(parts) + "\n"


def _section(flag: Flag) -> str:
    """Return the section of a flag; flags without a table are in the first section."""
    head, dot, _ = flag.names[0].partition(".")
    return head if dot or flag.inner is not None else ""


def _title(name: str) -> str:
    return name or "The endpoint"


def _struct(name: str) -> type[Struct] | None:
    for field in msgspec.structs.fields(flags.Flags):
        kind = plain(field.type)
        if field.encode_name == name and _is_struct(kind):
            table: type[Struct] = kind
            return table
    return None


def _inner(flag: Flag) -> list[str]:
    """Return the content of a flag that is a table or a list of tables."""
    assert flag.inner is not None
    parts = [f"The keys of `{flag.names[0]}`:", _keys_table(flag.inner)]
    return [prose(flags.table_text(flag.inner).does), *parts] if flag.inner.__doc__ else parts


def _keys_table(struct: type[Struct], without: type[Struct] | None = None) -> str:
    inherited = {field.name for field in msgspec.structs.fields(without)} if without is not None else set()
    rows = [
        [f"`{field.encode_name}`", values(field.type), meaning(struct, field)]
        for field in msgspec.structs.fields(struct)
        if field.name not in inherited
    ]
    return table(["key", "values", "meaning"], rows)
