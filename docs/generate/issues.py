"""Count the known issues of each provider of the built-in registry, with links to them."""

from __future__ import annotations

from cnllm.model_facts.known_issues import known_issues
from docs.generate.builtin import registry
from docs.generate.markdown import cell, code, table

__all__ = ["page"]


def page() -> str:
    """Return a page with the number of issues of each provider that has any."""
    builtin = registry()
    rows = []
    for provider in builtin.providers:
        model = builtin.resolve(f"{provider}/any")
        if found := known_issues(model):
            link = f"[{code(provider)}](providers/{provider}.md#known-issues)"
            rows.append([link, cell(model.flags.title or ""), str(len(found))])
    return "\n\n".join(
        [
            "# Known issues",
            "An issue is a place where an endpoint differs from the protocol that it speaks. The page of a provider "
            "says what differs, what cnllm does about it, and which source says so. A model may differ further: "
            "`cnllm models show M --issues`.",
            table(["provider", "name", "issues"], rows),
        ]
    ) + "\n"  # fmt: skip
