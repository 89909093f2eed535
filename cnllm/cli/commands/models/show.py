"""Define `cnllm models show`: the known facts about one model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import client_factory, completion, options
from cnllm.cli.language.messages import join_localized, localize, localize_word, translate_issue
from cnllm.cli.option_types import flag
from cnllm.cli.output import errors, stdout, terminal
from cnllm.cli.output.format import UNKNOWN, format_amount, format_count, plain_fact, plain_flags
from cnllm.cli.output.table import fields
from cnllm.config.http_address import address_fault

if TYPE_CHECKING:
    from cnllm.model_facts.known_issues import KnownIssue
    from cnllm.registry.flags import LimitFlags, Price
    from cnllm.registry.model import Model
    from cnllm.registry.param_rules import State

__all__ = ["show"]

_COMMON = ("temperature", "top_p", "max_tokens", "stop", "seed")


@click.command(cls=options.Command)
@click.argument("model", shell_complete=completion.complete_models)
@flag("--explain", help="Every flag, with the line that sets it and the source of the fact.")
@flag("--issues", help="Where the endpoint differs from its protocol, and what cnllm does.")
@click.option("--protocol", metavar="P", help="Show it over another protocol of the endpoint.")
@click.option("--base-url", metavar="URL", help="Show it at another address.")
@options.as_json("it")
def show(model: str, *, explain: bool, issues: bool, protocol: str | None, base_url: str | None, as_json: bool) -> None:
    """Show what is known about one model.

    --explain shortens long values so that a flag fits on a line; --json shortens nothing.

    Examples:
      cnllm models show glm-4.7
      cnllm models show zai/glm-4.7 --explain
      cnllm models show zai/glm-4.7 --issues
      cnllm models show zai/glm-4.7 --explain --json | jq '.[] | select(.source == null)'
    """
    from cnllm.registry import Registry

    if base_url is not None and (fault := address_fault(base_url)) is not None:
        raise errors.UsageError(f"--base-url: {fault}", "it begins with http:// or https://")
    registry = Registry.load()
    resolved = registry.resolve(model, protocol=protocol, base_url=base_url)
    if explain and issues:
        raise errors.UsageError("--explain and --issues print two listings", "give one of them")
    client_factory.print_age(resolved)
    if issues:
        _print_issues(resolved, as_json=as_json)
    elif explain and as_json:
        stdout.print_json(list(map(plain_fact, resolved.explain())))
    elif explain:
        from cnllm.cli.output.flag_table import flag_table

        stdout.print_line(flag_table(resolved))
    elif as_json:
        from cnllm.model_facts import summary

        short = summary.short_names(registry.aliases).get(resolved.name, [])
        flags = plain_flags(resolved.flags)
        more = {"parameters": parameters(resolved), "flags": flags, "notes": resolved.notes}
        stdout.print_json(summary.row(resolved, short) | more)
    else:
        chosen = client_factory.choose_site(registry, model, offline=True, protocol=protocol, base_url=base_url)
        sites = registry.sites(resolved.provider)
        stdout.print_line(
            _card(resolved, registry.wires(model), sites, chosen if chosen.name != resolved.name else None)
        )


def _print_issues(model: Model, *, as_json: bool) -> None:
    from cnllm.model_facts.known_issues import known_issues

    found = known_issues(model)
    nothing = f"no issue of {terminal.escape(model.name)} is known"
    stdout.print_listing(found, lambda: "\n".join(map(_issue, found)), nothing, as_json=as_json)


def _issue(issue: KnownIssue) -> str:
    source = " · ".join(filter(None, [issue.where, issue.how, issue.seen, issue.source]))
    return f"{terminal.escape(translate_issue(issue.text, localize))}\n  {terminal.escape(source)}"


# ── one model in short ───────────────────────────────────────────────────────
def _card(model: Model, wires: list[str], sites: dict[str, dict[str, Any]], chosen: Model | None) -> str:
    """Return the facts of a model. `chosen` is the one at the site that the keys of this environment choose."""
    from cnllm.model_facts.summary import endpoint

    flags = model.flags
    limits = flags.limits
    status = flags.status
    since = f" since {status.since}" if status and status.since else ""
    use = f"; use {status.use}" if status and status.use else ""
    others = [wire for wire in wires if wire != model.protocol]
    can, cannot, unknown = _capabilities(model)
    pairs = [
        ("endpoint", endpoint(model)),
        ("wire", localize("; also ").join(filter(None, [model.protocol, ", ".join(others)]))),
        ("keys", localize(_keys(flags.keys))),
        ("sites", _sites(model.provider, sites)),
        ("your key", "" if chosen is None else localize("; ".join(n.did for n in chosen.notes if n.code == "site"))),
        ("context", localize(_context(limits))),
        ("output", format_count(limits.output)),
        ("input", join_localized(map(localize_word, flags.input or [UNKNOWN]))),
        ("reasoning", _reasoning(model)),
        ("tool choice", ", ".join(flags.tool_choice.allowed or [UNKNOWN])),
        ("refused", _parameters(states := parameters(model), "refused")),
        ("ignored", _parameters(states, "ignored")),
        ("price", localize(_price(flags.price))),
        ("released", str(status.released) if status and status.released else ""),
        ("shutdown", str(status.shutdown) if status and status.shutdown else ""),
        ("status", localize_word(status.is_) + localize(since) + localize(use) if status and status.is_ else ""),
        ("can", can),
        ("cannot", cannot),
        ("unknown", unknown),
        *[(localize_word("note"), localize(f"{note.said}: {note.did}")) for note in model.notes],
    ]
    title = f" · {flags.title}" if flags.title else ""
    return f"{model.name}{title}\n{fields(pairs)}"


def parameters(model: Model) -> dict[str, dict[str, State]]:
    """Return the state of each parameter in each mode of reasoning that the model has: works, refused, …."""
    from cnllm.registry.model import conditions
    from cnllm.registry.param_rules import state

    reasoning = model.flags.reasoning.mode
    modes = {"always": ("reasoning",), "never": ("no-reasoning",), "toggle": ("no-reasoning", "reasoning")}
    rules_by_mode = {mode: model.flags_for(frozenset({mode})).params or {} for mode in modes.get(reasoning or "", ())}
    rules_by_mode = rules_by_mode or {"any": model.flags_for(conditions()).params or {}}
    names = dict.fromkeys([*_COMMON, *(name for rules in rules_by_mode.values() for name in rules)])
    return {name: {mode: state(rules.get(name)) for mode, rules in rules_by_mode.items()} for name in names}


def _parameters(states: dict[str, dict[str, State]], target: State) -> str:
    """Return the parameters in one state, with the mode where it is not so in each."""
    words: list[str] = []
    for name, by_mode in states.items():
        modes = [mode for mode, state in by_mode.items() if state == target]
        if modes:
            words.append(name if len(modes) == len(by_mode) else f"{name} ({localize_word(modes[0])})")
    return ", ".join(words)


def _capabilities(model: Model) -> list[str]:
    """Return what a model can do, what it cannot, and what is unknown of it."""
    from cnllm.model_facts.capabilities import capabilities

    states = capabilities(model).items()
    return [", ".join(name for name, state in states if state.value is value) for value in (True, False, None)]


def _keys(names: list[str] | None) -> str:
    from cnllm.config import keys

    if not names:
        return "none needed"
    return ", ".join(f"{name} (set)" if keys.key_source(name) else name for name in names)


def _reasoning(model: Model) -> str:
    from cnllm.model_facts.summary import levels

    reasoning = model.flags.reasoning
    if reasoning.mode is None:
        return UNKNOWN
    words: list[str] = [localize_word(reasoning.mode)]
    if reasoning.default:
        words.append(localize(f"{reasoning.default} by default"))
    if names := levels(model):
        words.append(f"{localize_word('levels')} {' '.join(names)}")
    if reasoning.budget is not None:
        words.append(localize("or a number of tokens"))
    return join_localized(words, sign="，")


def _sites(provider: str, sites: dict[str, dict[str, Any]]) -> str:
    """Return the other sites of the vendor, each with its region and the variables that mean it alone."""
    return "; ".join(
        f"{name} ({', '.join(filter(None, [site.get('region'), *site['keys']]))})"
        for name, site in sites.items()
        if name != provider
    )


def _context(limits: LimitFlags) -> str:
    of_input = f"; input at most {format_count(limits.input)}" if limits.input is not None else ""
    return format_count(limits.context) + of_input


def _price(price: Price | None) -> str:
    if price is None:
        return UNKNOWN
    parts = {
        "in": price.input,
        "out": price.output,
        "cached": price.cached,
        "cached where marked": price.cached_by_mark,
        "cache write": price.cache_write,
    }
    prices = [localize(f"{format_amount(value)} {word}") for word, value in parts.items() if value is not None]
    if not prices:
        return UNKNOWN
    borders = [format_count(int(tier.get("above", 0))) for tier in price.tiers or () if "output_below" not in tier]
    tiers = f"; other prices above {', '.join(borders)} tokens of input" if borders else ""
    short = [format_count(int(tier["output_below"])) for tier in price.tiers or () if "output_below" in tier]
    tiers += f"; other prices for a reply below {', '.join(short)} tokens" if short else ""
    until = (price.promotion or {}).get("until")
    promotion = f"; lower {f'until {until}' if until else 'for now'}" if price.promotion else ""
    return f"{join_localized(prices, sign='，')} {price.currency or ''} per million tokens{tiers}{promotion}"
