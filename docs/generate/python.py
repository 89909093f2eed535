"""The public names of the package: signature and docstring."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import msgspec
from msgspec import Struct

import cnllm
from docs.generate.events import kind
from docs.generate.markdown import prose
from docs.generate.option_docs import HEADINGS

__all__ = ["page"]

GROUPS: dict[str, Callable[[Any], bool]] = {
    "Verbs": lambda member: isinstance(member, FunctionType),
    "Clients": lambda member: member.__module__.startswith("cnllm.client") and not issubclass(member, Struct),
    "The registry": lambda member: member.__module__.startswith("cnllm.registry"),
    "Tools": lambda member: member.__module__.startswith("cnllm.tools"),
    "Settings": lambda member: member.__module__ == "cnllm.types.policy",
    "Values": lambda member: True,
    "Types": lambda member: False,
}
"""Heading → the test for the names below it; the first that passes decides."""

GIVEN = {"AsyncRun", "AsyncStream", "Model", "Plan", "Registry", "Run", "RunSummary", "Step", "Stream"}
"""Classes whose instances only cnllm creates."""

MODULES = {"daft": "provider for Daft", "ray": "class for Ray Data", "sdk": "SDKs"}
"""Headings of modules that are not their names."""

_PATHS = re.compile(r"\b(?:cnllm(?:\.\w+)*|collections\.abc|typing|types|os|httpx)\.(?=[A-Z]|tool\b)")
_VARIANCE = re.compile(r"[~+](?=[A-Z])")
_DEFAULT = re.compile(r"<[^<>]*>")
_OPTIONAL = re.compile(r"\bOptional\[((?:[^\[\]]|\[[^\[\]]*\])*)\]")  # Python 3.14 writes `X | None` itself
_TEXT_UNIT = "Literal['sentence'] | None"


def page() -> str:
    """Return a page with every public name but the errors and the events, which have pages of their own."""
    everything = {name: getattr(cnllm, name) for name in cnllm.__all__}
    modules = {name: member for name, member in everything.items() if isinstance(member, ModuleType)}
    public = {name: member for name, member in everything.items() if name not in modules}
    parts = [
        "# Public names",
        "Every name of `cnllm`. [Errors](errors.md), [events](events.md) and the [options](options.md) of a call have "
        "pages of their own. How the names are used is under [the Python API](python-api.md).",
    ]
    placed: dict[str, list[str]] = {heading: [] for heading in GROUPS}
    for name, member in public.items():
        if _has_a_page(member):
            continue
        if typing.is_typeddict(member):
            placed["Types"] += _typed_dict(name, member)
            continue
        if not isinstance(member, type) and not isinstance(member, FunctionType):
            placed["Types"] += _union(name, member)
            continue
        heading = next(heading for heading, fits in GROUPS.items() if fits(member))
        placed[heading] += _entry(name, member)
    for heading, entries in placed.items():
        parts += [f"## {heading}", *entries]
    for module_name, module in modules.items():
        parts += [f"## The {MODULES.get(module_name, module_name)}", prose(_doc(module))]
        for name in module.__all__:
            member = getattr(module, name)
            if typing.is_typeddict(member):
                parts += _typed_dict(f"{module_name}.{name}", member)
            elif isinstance(member, type | FunctionType):
                parts += _entry(f"{module_name}.{name}", member)
    return "\n\n".join(parts) + "\n"


def _has_a_page(member: Any) -> bool:
    if not isinstance(member, type):
        return False
    event = issubclass(member, Struct) and member in getattr(cnllm.Event, "__args__", ())
    return event or issubclass(member, cnllm.CnllmError)


def _union(name: str, member: Any) -> list[str]:
    if name == "NoteCode":
        return [f"### {name}", "One of [the codes of notes](notes.md)."]
    if name == "Messages":
        return [f"### {name}", "What a verb takes as messages: see [messages](../how-to/calls.md#messages)."]
    literal = typing.get_origin(member) is typing.Literal
    members = ", ".join(f'`"{part}"`' if literal else f"`{part.__name__}`" for part in typing.get_args(member))
    return [f"### {name}", f"One of {members}."]


def _typed_dict(name: str, member: Any) -> list[str]:
    options = cnllm.RunOptions.__annotations__
    listed = ", ".join(f"`{key}`" for key in member.__annotations__ if key not in options or name == "MessageDict")
    return [f"### {name}", prose(_doc(member)), f"Its keys: {listed}." if listed else "[The options](options.md)."]


def _doc(member: Any) -> str:
    """Return a docstring without the list of options, which has a page of its own."""
    text = inspect.getdoc(member) or ""
    for heading in HEADINGS.values():
        text = text.partition(f"\n\n{heading}")[0]
    return text


def _entry(name: str, member: Any) -> list[str]:
    signature = [] if name in GIVEN else [f"```text\n{_signature(name, member, width=88)}\n```"]
    out = [f"### {name}", *signature, prose(_doc(member))]
    if isinstance(member, type):
        members = list(_members(member))
        out += ["\n".join(f"- `{shown}`: {text}" for shown, text in members)] if members else []
    return [part for part in out if part]


def _members(owner: type) -> Iterator[tuple[str, str]]:
    """Yield public methods and properties, with the first paragraph of the docstring."""
    for name in dict.fromkeys(n for base in owner.__mro__ if base.__module__.startswith("cnllm") for n in vars(base)):
        member = inspect.getattr_static(owner, name)
        if name.startswith("_") or not isinstance(member, FunctionType | property | staticmethod | classmethod):
            continue
        doc = " ".join(_doc(member).split("\n\n")[0].split())
        yield name if isinstance(member, property) else _signature(name, getattr(owner, name)), prose(doc)


def _signature(name: str, member: Any, width: int | None = None) -> str:
    """Return the signature of a name; where it is wider than `width`, each parameter has a line."""
    result = ""
    if isinstance(member, type) and issubclass(member, Struct):
        inside = [_field(field) for field in msgspec.structs.fields(member)]
        kinds = [parameter.kind for parameter in inspect.signature(member).parameters.values()]
        if inspect.Parameter.KEYWORD_ONLY in kinds:
            inside.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    else:
        shown = inspect.signature(member)
        inside = _parameters(shown)
        transport = "AsyncTransport | AsyncBaseTransport" if name == "AsyncClient" else "Transport | BaseTransport"
        inside = [part.replace("AnyTransport", transport).replace("TextUnit", _TEXT_UNIT) for part in inside]
        result = "" if isinstance(member, type) else f" -> {_short(str(shown.return_annotation))}"
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
            and not any(member.startswith("*") for member in text)
        ):
            text.append("*")
        text.append(_short(str(parameter)))
        if parameter.kind is parameter.POSITIONAL_ONLY:
            text.append("/")
    return text


def _short(text: str) -> str:
    return _DEFAULT.sub("…", _plain(text))


def _plain(text: str) -> str:
    return _OPTIONAL.sub(r"\1 | None", _PATHS.sub("", _VARIANCE.sub("", text)))


class _Words(str):
    """Return an annotation as its author wrote it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _field(field: msgspec.structs.FieldInfo) -> str:
    shown = f"{field.encode_name}: {_plain(kind(field.type)).replace('<class ', '')}"
    if field.default is not msgspec.NODEFAULT:
        return f"{shown} = {_DEFAULT.sub('…', repr(field.default))}"
    return f"{shown} = …" if field.default_factory is not msgspec.NODEFAULT else shown
