"""Every public name of the package: signature and docstring."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import msgspec
from msgspec import Struct

import cnllm
from docs.generate.events import kind
from docs.generate.markdown import prose

__all__ = ["page"]

GROUPS: dict[str, Callable[[Any], bool]] = {
    "Verbs": lambda one: isinstance(one, FunctionType),
    "Clients": lambda one: one.__module__.startswith("cnllm.client") and not issubclass(one, Struct),
    "The registry": lambda one: one.__module__.startswith("cnllm.registry"),
    "Tools": lambda one: one.__module__.startswith("cnllm.tools"),
    "Settings": lambda one: one.__module__ == "cnllm.types.policy",
    "Values": lambda one: True,
}
"""Heading → what stands below it; the first that fits."""

GIVEN = {"AsyncRun", "AsyncStream", "Model", "Plan", "Registry", "Run", "RunSummary", "Step", "Stream"}
"""What cnllm makes: nobody calls these."""

_PATHS = re.compile(r"\b(?:cnllm(?:\.\w+)*|collections\.abc|typing|types|os|httpx)\.(?=[A-Z]|tool\b)")
_DEFAULT = re.compile(r"<[^<>]*>")


def page() -> str:
    """Return a page with every public name but the errors and the events, which have pages of their own."""
    names = [name for name in cnllm.__all__ if name != "engine"]
    public = {name: getattr(cnllm, name) for name in names}
    parts = [
        "# Public names",
        "Every name of `cnllm`. [Errors](errors.md), [events](events.md) and the [options](options.md) of a call have "
        "pages of their own. How the names are used is under [the Python API](../python-api.md).",
    ]
    placed: dict[str, list[str]] = {heading: [] for heading in GROUPS}
    for name, one in public.items():
        if _has_a_page(one):
            continue
        if not isinstance(one, type) and not isinstance(one, FunctionType):
            placed["Values"] += _union(name, one)
            continue
        heading = next(heading for heading, fits in GROUPS.items() if fits(one))
        placed[heading] += _entry(name, one)
    for heading, entries in placed.items():
        parts += [f"## {heading}", *entries]
    parts += ["## The engine", prose(_doc(importlib.import_module("cnllm.engine")))]
    for name in importlib.import_module("cnllm.engine").__all__:
        one = getattr(cnllm.engine, name)
        if isinstance(one, type | FunctionType):
            parts += _entry(f"engine.{name}", one)
    return "\n\n".join(parts) + "\n"


def _has_a_page(one: Any) -> bool:
    if not isinstance(one, type):
        return False
    event = issubclass(one, Struct) and one in getattr(cnllm.Event, "__args__", ())
    return event or issubclass(one, cnllm.CnllmError)


def _union(name: str, one: Any) -> list[str]:
    members = ", ".join(f"`{member.__name__}`" for member in one.__args__)
    return [f"### {name}", f"One of {members}."]


def _doc(one: Any) -> str:
    return inspect.getdoc(one) or ""


def _entry(name: str, one: Any) -> list[str]:
    signature = [] if name in GIVEN else [f"```text\n{_signature(name, one, width=88)}\n```"]
    out = [f"### {name}", *signature, prose(_doc(one))]
    if isinstance(one, type):
        members = list(_members(one))
        out += ["\n".join(f"- `{shown}`: {text}" for shown, text in members)] if members else []
    return [part for part in out if part]


def _members(one: type) -> Iterator[tuple[str, str]]:
    """Public methods and properties, with the first paragraph of what they say."""
    for name in dict.fromkeys(n for base in one.__mro__ if base.__module__.startswith("cnllm") for n in vars(base)):
        member = inspect.getattr_static(one, name)
        if name.startswith("_") or not isinstance(member, FunctionType | property | staticmethod | classmethod):
            continue
        doc = " ".join(_doc(member).split("\n\n")[0].split())
        yield name if isinstance(member, property) else _signature(name, getattr(one, name)), prose(doc)


def _signature(name: str, one: Any, width: int | None = None) -> str:
    """Return how a name is called; where that is wider than `width`, one parameter a line."""
    result = ""
    if isinstance(one, type) and issubclass(one, Struct):
        inside = [_field(field) for field in msgspec.structs.fields(one)]
    else:
        shown = inspect.signature(one)
        inside = _parameters(shown)
        result = "" if isinstance(one, type) else f" -> {_short(str(shown.return_annotation))}"
    line = f"{name}({', '.join(inside)}){result}"
    if width is None or len(line) <= width:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in inside), f"){result}"])


def _parameters(shown: inspect.Signature) -> list[str]:
    """List the parameters but `self`, with the signs that divide them."""
    own = [p.replace(annotation=_Words(p.annotation)) for p in shown.parameters.values() if p.name != "self"]
    text: list[str] = []
    for parameter in own:
        if (
            parameter.kind is parameter.KEYWORD_ONLY
            and "*" not in text
            and not any(one.startswith("*") for one in text)
        ):
            text.append("*")
        text.append(_short(str(parameter)))
        if parameter.kind is parameter.POSITIONAL_ONLY:
            text.append("/")
    return text


def _short(text: str) -> str:
    return _DEFAULT.sub("…", _PATHS.sub("", text))


class _Words(str):
    """An annotation as its author wrote it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _field(field: msgspec.structs.FieldInfo) -> str:
    shown = f"{field.encode_name}: {_PATHS.sub('', kind(field.type)).replace('<class ', '')}"
    if field.default is not msgspec.NODEFAULT:
        return f"{shown} = {_DEFAULT.sub('…', repr(field.default))}"
    return f"{shown} = …" if field.default_factory is not msgspec.NODEFAULT else shown
