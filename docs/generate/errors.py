"""The errors: when each is raised, whether it is tried again, and what its hints say."""

from __future__ import annotations

import ast
from functools import cache

from cnllm import errors
from cnllm.engine.decode.endpoint_errors import CLASSES, HINTS
from cnllm.engine.decode.error_rules import RETRYABLE
from cnllm.errors import CnllmError, EndpointError, TransportError
from docs.generate.builtin import registry
from docs.generate.markdown import cell, table
from docs.generate.source import calls

__all__ = ["page"]

_SHOWN = 3  # hints of one error


def page() -> str:
    """Return a page with every error of the package."""
    classes = [getattr(errors, name) for name in errors.__all__]
    rows = [
        [f"`{one.__name__}`", cell(one.__doc__ or ""), _retried(one), _hints(one)]
        for one in sorted(classes, key=_place)
    ]
    return "\n\n".join(
        [
            "# Errors",
            "Everything that cnllm raises on purpose is a `CnllmError`; a wrong argument of yours is a `TypeError` "
            "or `ValueError` that names it. What arrived before an error is in its `reply`, what to do next in its "
            "`hint`. No message, repr or attribute holds a key.",
            "```text\n" + _tree(CnllmError) + "\n```",
            table(["error", "when, and what it holds", "tried again", "hint"], rows),
            "Of an endpoint's error, the registry says whether the same request may succeed later (`errors`); the "
            "column shows what the built-in defaults say. `…` in a hint stands for a name or a number.",
        ]
    ) + "\n"  # fmt: skip


def _place(one: type[CnllmError]) -> list[int]:
    """Where a class stands in the tree, those of one parent as the module names them."""
    path = [list(vars(errors)).index(base.__name__) for base in one.__mro__ if issubclass(base, CnllmError)]
    return path[::-1]


def _tree(root: type[CnllmError], depth: int = 0) -> str:
    lines = ["  " * depth + root.__name__]
    for one in sorted(root.__subclasses__(), key=_place):
        if one.__module__ == errors.__name__:
            lines.append(_tree(one, depth + 1))
    return "\n".join(lines)


@cache
def _rules() -> dict[str, set[bool]]:
    """Kind of an endpoint's error → what the defaults say of trying again."""
    rules = registry().resolve("openai-compatible/any").flags.errors or []
    out: dict[str, set[bool]] = {}
    for rule in rules:
        kind = rule.kind
        out.setdefault(kind, set()).add(kind in RETRYABLE if rule.retry is None else rule.retry)
    return out


def _retried(one: type[CnllmError]) -> str:
    if issubclass(one, TransportError):
        return "if nothing of a response came"
    kinds = [kind for kind, kind_class in CLASSES.items() if kind_class is one]
    said = {retry for kind in kinds for retry in _rules().get(kind, set())}
    if issubclass(one, EndpointError) and said:
        return "yes" if said == {True} else "no" if said == {False} else "as the rule says"
    return "no"


@cache
def _raised() -> dict[str, dict[str, None]]:
    """Error → the hints that stand where the package raises it."""
    found: dict[str, dict[str, None]] = {}
    for module, name, call in calls(r"\bhint="):
        if name in errors.__all__ and module != "errors.py":
            for keyword in call.keywords:
                if keyword.arg == "hint" and (text := _text(keyword.value)):
                    found.setdefault(name, {})[text] = None
    return found


def _text(node: ast.expr) -> str:
    """A text of the source, with … for what is put into it; of a sum, what is known of it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case _:
            return ""


def _hints(one: type[CnllmError]) -> str:
    kinds = [kind for kind, kind_class in CLASSES.items() if kind_class is one]
    said = [*(HINTS[kind] for kind in kinds if kind in HINTS), *_raised().get(one.__name__, {})]
    more = "; …" if len(said) > _SHOWN else ""
    return cell("; ".join(said[:_SHOWN]).replace("{provider}", "…")) + more
