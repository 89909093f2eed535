"""The list of providers of the built-in registry, and the address and key of each."""

from __future__ import annotations

from docs.generate.builtin import registry
from docs.generate.markdown import cell, code, table

__all__ = ["page"]


def page() -> str:
    """Return a page with every provider: its models, wires and key variables."""
    builtin = registry()
    names = builtin.names()
    rows = []
    for provider in builtin.providers:
        any_model = f"{provider}/any"
        flags = builtin.resolve(any_model).flags
        count = sum(name.startswith(f"{provider}/") for name in names)
        keys = ", ".join(map(code, flags.keys or ())) or "none"
        link = f"[{code(provider)}](providers/{provider}.md)"
        rows.append([link, cell(flags.title or ""), str(count or ""), ", ".join(builtin.wires(any_model)), keys])
    return "\n\n".join(
        [
            "# Providers",
            f"{len(builtin.providers)} providers and {len(names):,} models are described in `providers.toml`. Each has "
            "a page with its models, where it differs from its protocol, and the sources.",
            "A model is named `PROVIDER/ID`, with the id that the endpoint knows; an id that is not described works "
            "too, with the provider's facts. Keys are looked up in the variables of the last column, the first one "
            "first.",
            table(["provider", "name", "models described", "wires", "key"], rows),
            "On the command line: `cnllm models list`, `cnllm models show M`, with `--explain` every fact and its "
            "source, with `--issues` where a model differs from its protocol.",
        ]
    ) + "\n"  # fmt: skip
