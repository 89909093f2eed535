"""The options of a call as `cnllm.types.call_options` describes them: for the manual, and for `help`."""

from __future__ import annotations

import ast
import re
import textwrap
from functools import cache
from pathlib import Path

from docs.generate.source import texts

__all__ = ["HEADINGS", "HELP", "descriptions", "help_module"]

HELP = Path(__file__).parents[2] / "cnllm" / "client" / "verb_help.py"
"""The module whose last part, the options, is written here."""

_SOURCE = "types/call_options.py"

HEADINGS = {"CallOptions": "Options, each a keyword that may be left out:", "LoopOptions": "Options of the tool loop:"}
"""The heading above the options of a TypedDict, as `help` shows them."""


@cache
def descriptions(name: str) -> dict[str, str]:
    """Return the options of a TypedDict of that module and what each means, those of its bases first."""
    classes = {node.name: node for node in ast.parse(texts()[_SOURCE]).body if isinstance(node, ast.ClassDef)}
    found: dict[str, str] = {}
    for base in classes[name].bases:
        if isinstance(base, ast.Name) and base.id in classes:
            found |= descriptions(base.id)
    body = classes[name].body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            found[node.target.id] = " ".join(str(text).split())
    return found


def help_module() -> str:
    """Return the module of the package that adds the options to `help`, with the options as they are now."""
    head, mark, _ = HELP.read_text(encoding="utf-8").partition("`call_options.py` ──\n")
    return "\n".join(
        [head + mark, _constant("CALL_OPTIONS", "CallOptions"), "", _constant("LOOP_OPTIONS", "LoopOptions"), ""]
    )


def _constant(name: str, options: str) -> str:
    lines = [HEADINGS[options], ""]
    for option, text in descriptions(options).items():
        plain = re.sub(r"`([^`]*)`", r"\1", text)
        lines += textwrap.wrap(f"{option}: {plain}", 96, initial_indent="  ", subsequent_indent="      ")
    return f'{name} = """\\\n' + "\n".join(lines) + '"""'
