"""The known issues of every provider of the built-in registry."""

from __future__ import annotations

from cnllm.registry.known_issues import KnownIssue, known_issues
from docs.generate.builtin import registry
from docs.generate.markdown import cell, code

__all__ = ["page"]


def page() -> str:
    """Return a page with a section for each provider: where it differs from its protocol, and what cnllm does."""
    builtin = registry()
    parts = [
        "# Known issues",
        "Where each endpoint differs from the protocol that it speaks, and what cnllm does about it. Every line comes "
        "from `providers.toml` and has its source. A model may differ further: `cnllm models show M --issues`. "
        "“It” is the endpoint; *inferred* means that no source says it in so many words.",
    ]
    for provider in builtin.providers:
        model = builtin.resolve(f"{provider}/any")
        if lines := [_line(issue) for issue in known_issues(model)]:
            parts += [f"## {provider}", cell(model.flags.title or ""), "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _line(issue: KnownIssue) -> str:
    source = issue.source or ""
    if source.startswith(("https://", "http://")):
        source = f"<{source}>"
    elif source:
        source = code(source)
    return f"- {cell(issue.text)} ({', '.join(filter(None, [issue.how, issue.seen, source]))})"
