"""The providers of the built-in registry."""

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
        rows.append(
            [code(provider), cell(flags.title or ""), str(count or ""), ", ".join(builtin.wires(any_model)), keys]
        )
    return "\n\n".join(
        [
            "# Providers",
            f"{len(builtin.providers)} providers and {len(names):,} models are described in `providers.toml`. A model "
            "is named `PROVIDER/ID`, with the id that the endpoint knows; an id that is not described works too, with "
            "the provider's facts. Keys are looked up in the variables of the last column, the first one first.",
            table(["provider", "name", "models described", "wires", "key"], rows),
            "`cnllm models list` shows the models, `cnllm models show M --explain` every fact with its source, "
            "`--issues` where it differs from its protocol: see also [known issues](known-issues.md).",
        ]
    ) + "\n"  # fmt: skip
