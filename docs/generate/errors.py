"""The errors: when each is raised, whether it is tried again, and what its hints say."""

from __future__ import annotations

import ast
from functools import cache

from cnllm import errors
from cnllm.engine.decode.endpoint_errors import CLASSES, HINTS
from cnllm.engine.decode.error_body import RETRYABLE
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
        [f"`{error.__name__}`", cell(error.__doc__ or ""), _retried(error), _hints(error)]
        for error in sorted(classes, key=_place)
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


def _place(error: type[CnllmError]) -> list[int]:
    """Return the position of a class in the tree; the classes of one parent are in the order of the module."""
    path = [list(vars(errors)).index(base.__name__) for base in error.__mro__ if issubclass(base, CnllmError)]
    return path[::-1]


def _tree(root: type[CnllmError], depth: int = 0) -> str:
    lines = ["  " * depth + root.__name__]
    public = [error for error in root.__subclasses__() if error.__module__ == errors.__name__]
    lines += [_tree(error, depth + 1) for error in sorted(public, key=_place)]
    return "\n".join(lines)


@cache
def _rules() -> dict[str, set[bool]]:
    """Return for each kind of an endpoint's error whether the defaults allow a retry."""
    rules = registry().resolve("openai-compatible/any").flags.errors or []
    out: dict[str, set[bool]] = {}
    for rule in rules:
        kind = rule.kind
        out.setdefault(kind, set()).add(kind in RETRYABLE if rule.retry is None else rule.retry)
    return out


def _retried(error: type[CnllmError]) -> str:
    if issubclass(error, TransportError):
        return "if nothing of a response came"
    kinds = [kind for kind, kind_class in CLASSES.items() if kind_class is error]
    retries = {retry for kind in kinds for retry in _rules().get(kind, set())}
    if issubclass(error, EndpointError) and retries:
        return "yes" if retries == {True} else "no" if retries == {False} else "as the rule says"
    return "no"


@cache
def _raised() -> dict[str, dict[str, None]]:
    """Return for each error the hints with which the package raises it; those for several processes come last."""
    hints: dict[str, dict[str, None]] = {}
    for module, name, call in sorted(calls(r"\bhint="), key=lambda found: found[0].startswith("batch/shared/")):
        if name in errors.__all__ and module != "errors.py":
            for keyword in call.keywords:
                if keyword.arg == "hint" and (text := _text(keyword.value)):
                    hints.setdefault(name, {})[text] = None
    return hints


def _text(node: ast.expr) -> str:
    """Return a text in the source, with … for each value in it; of a sum, its constant parts."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case _:
            return ""


def _hints(error: type[CnllmError]) -> str:
    kinds = [kind for kind, kind_class in CLASSES.items() if kind_class is error]
    hints = [*(HINTS[kind] for kind in kinds if kind in HINTS), *_raised().get(error.__name__, {})]
    more = "; …" if len(hints) > _SHOWN else ""
    return cell("; ".join(hints[:_SHOWN]).replace("{provider}", "…")) + more
