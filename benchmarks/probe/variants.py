"""Change one flag of a model: the flags as a tree, and the model that a tree makes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from cnllm.registry.flags import Flags
from cnllm.registry.merge import stack_layers
from cnllm.registry.model import Model, ModelSource

Tree = dict[str, Any]
_ABSENT = object()


def tree(model: Model) -> Tree:
    """Return the effective flags of a model as a tree, those of a mode under `when`."""
    out: Tree = {}
    for fact in model.explain():
        put(out, fact.flag, msgspec.to_builtins(fact.value))
    return out


def make(model: Model, flags: Tree) -> Model:
    """Return the model with these flags. Raises `msgspec.ValidationError` where they are none."""
    table = {key: value for key, value in flags.items() if key != "when"}
    when: Tree = flags.get("when", {})
    plain = msgspec.convert(table, Flags)
    for part in when.values():
        msgspec.convert(part, Flags)

    @cache
    def flags_for(mode: frozenset[str]) -> Flags:
        merged = table
        for key in sorted((k for k in when if set(k.split("+")) <= mode), key=lambda k: (k.count("+"), k)):
            merged = stack_layers(merged, when[key])
        return plain if merged is table else msgspec.convert(merged, Flags)

    return Model(
        id=model.id,
        provider=model.provider,
        protocol=model.protocol,
        flags=plain,
        source=ModelSource(flags_for=flags_for, where=lambda flag, mode: "", explain=list),
    )


def valid(flags: Tree) -> bool:
    """Whether a tree holds flags."""
    try:
        for part in ({k: v for k, v in flags.items() if k != "when"}, *flags.get("when", {}).values()):
            msgspec.convert(part, Flags)
    except msgspec.ValidationError:
        return False
    return True


def get(flags: Tree, flag: str) -> Any:
    """Return the value of a flag by its dotted name, or None."""
    value: Any = flags
    for key in split(flag):
        value = value.get(key, _ABSENT) if isinstance(value, dict) else _ABSENT
    return None if value is _ABSENT else value


def changed(flags: Tree, flag: str, value: Any) -> Tree:
    """Return a tree with another value of a flag; without it for None. The rest of the tree is shared."""
    out = dict(flags)
    inner = out
    for key in split(flag)[:-1]:
        if not isinstance(inner.get(key), dict):
            break
        inner[key] = dict(inner[key])
        inner = inner[key]
    put(out, flag, value)
    return out


def put(flags: Tree, flag: str, value: Any) -> None:
    """Set a flag in a tree, or remove it, with the tables that are empty without it: an empty patch fits any body."""
    keys = split(flag)
    tables = [flags]
    for key in keys[:-1]:
        inner = flags.get(key)
        if not isinstance(inner, dict):  # a parameter's path may stand for its table
            inner = {"as": inner} if isinstance(inner, str) and inner != "ignored" else {}
            if value is None and not inner:
                return
            flags[key] = inner
        flags = inner
        tables.append(flags)
    if value is not None:
        flags[keys[-1]] = value
        return
    flags.pop(keys[-1], None)
    for table, key, inner in zip(tables[-2::-1], keys[-2::-1], tables[:0:-1], strict=True):
        if inner:
            break
        table.pop(key)


def split(flag: str) -> list[str]:
    """Return the keys of a dotted name."""
    return flag.split(".")


def others(flags: Tree, flag: str) -> Iterator[Any]:
    """Yield other values of a flag: none, other words, the other boolean, numbers beside it, shorter lists."""
    value = get(flags, flag)
    yield None
    allowed = words(split(flag))
    match value:
        case bool():
            yield not value
        case int() | float():
            yield from (value + 1, value - 1, value * 2)
        case str():
            yield from (word for word in allowed if word != value)
            if not allowed:
                yield f"{value}x"
                siblings = get(flags, flag.rpartition(".")[0]) or {}
                yield from (v for v in dict.fromkeys(map(str, siblings.values())) if v != value and len(v) < 20)
        case list():
            yield from ([*value[:n], *value[n + 1 :]] for n in range(len(value)))
            yield from ([*value, word] for word in allowed if word not in value)
            if all(isinstance(item, str) for item in value) and not allowed:
                yield [f"{item}x" for item in value]


def words(keys: list[str]) -> list[str]:
    """Return the words that a flag may have, [] where it has no list of them."""
    if keys[0] == "when":
        keys = keys[2:]
    kind = _types()
    for key in keys:
        kind = next((k for k in _kinds(kind) if isinstance(k, inspect.StructType | inspect.DictType)), None)
        if isinstance(kind, inspect.StructType):
            kind = next((f.type for f in kind.fields if f.encode_name == key), None)
        elif isinstance(kind, inspect.DictType):
            kind = kind.value_type
        if kind is None:
            return []
    found: list[str] = []
    for each in _kinds(kind):
        inner = each.item_type if isinstance(each, inspect.ListType) else each
        found += [
            w for k in _kinds(inner) if isinstance(k, inspect.LiteralType) for w in k.values if isinstance(w, str)
        ]
    return found


@cache
def _types() -> Any:
    return inspect.type_info(Flags)


def _kinds(kind: Any) -> list[Any]:
    """Return the members of a union without annotations, or the type alone."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        return [member for k in kind.types for member in _kinds(k)]
    return [kind]
