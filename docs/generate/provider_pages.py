"""A page for each provider of the built-in registry: models, known issues, sources."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from cnllm.cli.output.format import format_count, format_price, to_plain
from cnllm.model_facts.known_issues import KnownIssue, known_issues
from cnllm.model_facts.summary import short_names
from cnllm.registry.model import Model
from docs.generate.builtin import registry
from docs.generate.markdown import cell, code, table

__all__ = ["example", "pages"]


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name of each provider, and its page."""
    models: dict[str, list[str]] = {}
    for name in registry().names():
        models.setdefault(name.partition("/")[0], []).append(name)
    for provider in registry().providers:
        yield provider, _page(provider, models.get(provider, []))


def _page(provider: str, names: list[str]) -> str:
    model = registry().resolve(f"{provider}/any")
    models = [registry().resolve(name) for name in names]
    current = [one for one in models if not _is_retired(one)]
    retired = [code(one.id) for one in models if _is_retired(one)]
    parts = [f"# {cell(model.flags.title or provider)}", *_access(provider, model, current)]
    if current:
        parts += ["## Models", _models(current)]
    if retired:
        parts.append(f"Retired: {', '.join(retired)}.")
    parts += ["## Known issues", *_issues(model), "## Sources", *_sources(model)]
    return "\n\n".join(parts) + "\n"


def _is_retired(model: Model) -> bool:
    return model.flags.status is not None and model.flags.status.is_ == "retired"


@cache
def _short_names() -> dict[str, list[str]]:
    return short_names(registry().aliases)


def example(provider: str, models: list[Model]) -> str:
    """Return the name of a model to begin with: the vendor's default one, here or at its other sites, or the newest."""
    names, vendor = {one.name for one in models}, provider.partition("-")[0]
    defaults = [name.partition("/")[::2] for name in registry().default_models]
    for site, id in sorted(defaults, key=lambda default: default[0] != provider):
        if site.partition("-")[0] == vendor and f"{provider}/{id}" in names:
            return f"{provider}/{id}"
    released = {one.name: str(one.flags.status.released or "") if one.flags.status else "" for one in models}
    return max(released, key=released.__getitem__, default=f"{provider}/ID")


def _access(provider: str, model: Model, models: list[Model]) -> Iterator[str]:
    """Yield how to ask the provider: a command, addresses and keys."""
    name = example(provider, models)
    keys = model.flags.keys or []
    lines = [f"cnllm keys set {provider}"] if keys else []
    lines.append(f'cnllm -m {name} "Hi"' if model.flags.base_url else f'cnllm -m {name} --base-url URL "Hi"')
    yield "```sh\n" + "\n".join(lines) + "\n```"
    wires = [registry().resolve(f"{provider}/any", protocol=wire) for wire in registry().wires(f"{provider}/any")]
    yield table(["wire", "address"], [[wire.protocol, _address(wire)] for wire in wires])
    yield f"Key: {', '.join(map(code, keys))}." if keys else "No key is looked up; `--key-env NAME` names one."


def _address(wire: Model) -> str:
    return code(wire.flags.base_url) if wire.flags.base_url else "give `--base-url`"


def _models(models: list[Model]) -> str:
    head = ["model", "short name", "context", "output", "reads", "reasoning", "price (in / out)"]
    return table(head, [_row(model) for model in models])


def _row(model: Model) -> list[str]:
    flags = model.flags
    return [
        code(model.id),
        ", ".join(map(code, _short_names().get(model.name, ()))),
        format_count(flags.limits.context),
        format_count(flags.limits.output),
        ", ".join(flags.input or ["?"]),
        flags.reasoning.mode or "?",
        format_price(to_plain(flags.price)),
    ]


def _issues(model: Model) -> Iterator[str]:
    """Yield where the endpoint differs from its protocol, and what cnllm does."""
    found = known_issues(model)
    if not found:
        yield "None is known."
        return
    yield "“It” is the endpoint. *inferred* means that no source says it in so many words."
    yield "\n".join(_issue(issue) for issue in found)
    yield "A model may differ further: `cnllm models show M --issues`."


def _issue(issue: KnownIssue) -> str:
    return f"- {cell(issue.text)} ({', '.join(filter(None, [issue.how, issue.seen, _link(issue.source)]))})"


def _link(source: str | None) -> str:
    if (source or "").startswith(("https://", "http://")):
        return f"<{source}>"
    return code(source or "")


def _sources(model: Model) -> Iterator[str]:
    """Yield the sources of the provider's own facts, and what each says."""
    backed: dict[tuple[str, str, str], list[str]] = {}
    for fact in model.explain():
        if fact.source and fact.layer.startswith("providers."):
            key = (fact.source, str(fact.how or ""), str(fact.seen or ""))
            backed.setdefault(key, []).append(fact.flag)
    if not backed:
        yield "Its facts are those of its protocol."
        return
    rows = [[_link(source), how, seen, _flags(flags)] for (source, how, seen), flags in sorted(backed.items())]
    yield table(["source", "kind", "read on", "flags"], rows)
    yield "Sources of a model's own facts: `cnllm models show M --explain`. [Flags](../flags.md) says what each means."


def _flags(flags: list[str]) -> str:
    """Return the flags, those with the same first two words as one."""
    short = dict.fromkeys(".".join(flag.split(".")[:2]) for flag in flags if not flag.startswith("when."))
    modes = dict.fromkeys(".".join(flag.split(".")[:2]) for flag in flags if flag.startswith("when."))
    return ", ".join(map(code, [*short, *modes]))
