"""Write sampling parameters and limits into the body, by the flags: renamed, dropped, clamped, fixed.

A parameter that no rule of the registry is about is sent, unless its name is a typing error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from cnllm.config.redact import is_secret_name
from cnllm.engine.adjustments import Ledger
from cnllm.engine.options import OPTION_NAMES, RequestOptions
from cnllm.engine.similar_names import similar_name
from cnllm.jsonpath import contains, get, leaves, merge_patch, remove, set_value
from cnllm.protocols import fields, wire
from cnllm.registry import param_rules
from cnllm.registry.flags import Flags, Param
from cnllm.registry.param_rules import Rule, path, state

__all__ = [
    "add_other_params",
    "apply_params",
    "drop_refused_keys",
    "note_extra_body",
    "note_own_keys",
    "note_typing_errors",
    "take_declared",
]


_REASONING = ("reasoning", "thinking", "thinkingConfig")
"""Keys of bodies whose object holds nothing but settings of reasoning."""

_MAX_SHOWN = 200  # characters of a value in a note


def apply_params(body: dict[str, Any], params: dict[str, Any], flags: Flags, ledger: Ledger) -> None:
    """Write each parameter at its path in the body; one without a rule keeps its own name."""
    rules = flags.params or {}
    for name, value in params.items():
        _apply_param(body, name, value, rules.get(name), flags, ledger.for_option(name))
    for name, rule in rules.items():
        if type(rule) is Param and name not in params and (default := _default(rule.default, flags)) is not None:
            set_value(body, rule.as_ or name, default)
            ledger.note("param-default", f"params.{name}.default", "not given", f"{default} is sent: it is required")


def _settings_of(path: str) -> str:
    """Return the path of an object that holds nothing but settings of reasoning, else the path itself."""
    parent = path.rpartition(".")[0]
    return parent if parent.rpartition(".")[2] in _REASONING else path


def drop_refused_keys(keys: dict[str, Any], flags: Flags, ledger: Ledger) -> None:
    """Remove keys of the body that the endpoint never takes, or that turn on or off what the model cannot turn."""
    reasoning = flags.reasoning
    paths: dict[str, str] = {}
    # A key that `body.set` adds is dropped where the mode does not need it: that refuses no key of the client's,
    # unless the model has no other mode.
    own = {} if reasoning.mode == "never" else flags.body.set or {}
    paths |= {path: "body.drop" for path in flags.body.drop or () if get(own, path) is None}
    patch = {"never": reasoning.on, "always": reasoning.off}.get(str(reasoning.mode))
    if patch is not None and contains(keys, patch.set or {}):
        paths |= dict.fromkeys(leaves(patch.set or {}), "reasoning.mode")
    if reasoning.mode == "never":
        places = (place.at for place in (reasoning.effort, reasoning.budget) if place is not None)
        paths |= {_settings_of(path): "reasoning.mode" for path in places if path}
    for place, flag in paths.items():
        if (value := get(keys, place)) is not None and ledger.may_change(
            "param-dropped", flag, f"{place}={value}", "left out: the endpoint does not take it"
        ):
            remove(keys, place)


def note_extra_body(extra: dict[str, Any], flags: Flags, ledger: Ledger) -> None:
    """Note the keys of `extra_body` that the endpoint ignores or refuses. They are sent unchanged."""
    if ledger.policy == "send":
        return
    for name, rule in (flags.params or {}).items():
        value, fact = get(extra, path(name, rule)), None
        if rule is False and name in extra:
            value, fact = extra[name], "the endpoint does not take it"
        elif state(rule) == "ignored" and value is not None:
            fact = "the endpoint ignores it"
        elif type(rule) is Param and rule.fixed is not None and value not in (None, rule.fixed):
            fact = f"it is fixed at {rule.fixed}"
        if fact is not None:
            did = f"sent as it is: extra_body goes out verbatim, though {fact}"
            ledger.note("param-verbatim", f"params.{name}", f"{name}={value}", did)


def _default(default: Any, flags: Flags) -> Any:
    """Return the default of a parameter; of a list the first known item, where a text names another flag.

    A limit of the output that would leave at most half the window for the input is reduced to that half.
    """
    if type(default) is not list:
        return default
    for candidate in default:
        result = candidate
        for key in candidate.split(".") if type(candidate) is str else ():
            result = getattr(flags if result is candidate else result, key, None)
        if result is not None:
            window = flags.limits.context if candidate == "limits.output" else None
            return result if window is None else min(result, window // 2)
    return None


def _apply_param(body: dict[str, Any], name: str, value: Any, rule: Rule, flags: Flags, ledger: Ledger) -> None:
    """Write one parameter at its path, or leave it out, as its rule says."""
    flag = f"params.{name}"
    target = path(name, rule)
    match state(rule):
        case "refused":
            if ledger.may_change("param-dropped", flag, value, "left out: the endpoint does not take it"):
                return
        case "ignored":
            # It has no effect, and a request without it stays valid if the endpoint refuses it one day.
            if not ledger.may_change("param-dropped", flag, value, "left out: the endpoint ignores it"):
                ledger.note("param-ignored", flag, value, "sent as asked: the endpoint ignores it")
                set_value(body, target, value)
            return
    if name in wire(ledger.model.protocol).no_blanks and not all(map(str.strip, value)):
        blanks = [text for text in value if not text.strip()]
        if ledger.may_change("param-dropped", flag, blanks, "left out: the endpoint takes no text without a character"):
            value = [text for text in value if text.strip()]
            if not value:
                return
    ceiling = flags.limits.output if name == "max_tokens" else None
    is_above = ceiling is not None and _is_number(value) and value > ceiling
    if is_above and ledger.may_change("param-clamped", "limits.output", f"{name}={value}", f"{ceiling}"):
        value = ceiling
    if type(rule) is Param:
        value = _fit_to_rule(name, value, rule, flag, ledger)
        if value is None:
            return
    set_value(body, target, value)


def _fit_to_rule(name: str, value: Any, rule: Param, flag: str, ledger: Ledger) -> Any:
    """Return the value inside the rule's range; None to leave the parameter out."""
    if rule.fixed is not None:
        if value == rule.fixed:
            return value
        fixed = ledger.may_change("param-fixed", flag, f"{name}={value}", f"left out: it is fixed at {rule.fixed}")
        return None if fixed else value
    if rule.items is not None and type(value) is list and len(value) > rule.items:
        items = ", ".join(repr(v) for v in value[: rule.items])
        if ledger.may_change("param-clamped", flag, f"{len(value)} items", f"the first {rule.items}: {items}"):
            value = value[: rule.items]
    if not _is_number(value):
        return value
    nearest = _nearest(value, rule)
    if nearest == value:
        return value
    match rule.otherwise:
        case "error":
            if ledger.cannot("param-range", flag, f"{name}={value}", "out of range"):
                return None
        case "drop":
            if ledger.may_change("param-dropped", flag, f"{name}={value}", "left out: out of range"):
                return None
        case _:
            if ledger.may_change("param-clamped", flag, f"{name}={value}", f"{nearest}"):
                return nearest
    return value


def _nearest(value: float, rule: Param) -> float:
    """Return the nearest valid value; at an open bound, one declared step inside it."""
    step = rule.step if rule.step is not None else 0.01
    if rule.min is not None and value < rule.min:
        value = _as_int(rule.min)
    if rule.max is not None and value > rule.max:
        value = _as_int(rule.max)
    if rule.above is not None and value <= rule.above:
        value = _as_int(rule.above + step)
    if rule.below is not None and value >= rule.below:
        value = _as_int(rule.below - step)
    return value


def _as_int(value: float) -> float:
    """Return a number without a fraction as an int: 1 and 1.0 in TOML are the same value."""
    return int(value) if value == int(value) else round(value, 10)


def _is_number(value: Any) -> bool:
    """Whether a value is an int or a float (a bool is neither)."""
    return type(value) in (int, float)


# ── parameters without a rule ────────────────────────────────────────────────


def take_declared(options: RequestOptions, flags: Flags) -> RequestOptions:
    """Return the options with the registry's names for parameters that the caller gave by the endpoint's own."""
    rest: dict[str, Any] = {}
    merge_patch(rest, options.other_params)  # a copy, as deep as objects go
    declared: dict[str, Any] = {}
    for name, rule in (flags.params or {}).items():
        place = param_rules.path(name, rule)
        if (value := get(rest, place)) is not None:
            remove(rest, place)
            if name not in options.params or name in options.defaults:
                declared[name] = value
    return replace(
        options,
        params={**options.params, **declared},
        other_params=rest,
        defaults=options.defaults.difference(declared),
    )


def note_own_keys(body: dict[str, Any], extra: Mapping[str, Any], option: str, ledger: Ledger) -> None:
    """Note the keys of an option that are in place of what the call itself sets.

    Raises `ValueError` for one among `params`, unless the caller wants it sent.
    """
    for name in ("model", "stream", wire(ledger.model.protocol).turns):
        if name not in extra or extra[name] == body.get(name, False if name == "stream" else None):
            continue
        if option == "params" and ledger.policy != "send":
            raise ValueError(
                f"params: {name} is set by the call itself; extra_body (--extra-body) sends it as it is, in its place"
            )
        did = f"sent as it is: {option} goes out verbatim, in place of the call's own"
        ledger.note("param-verbatim", option, _subject(name, extra[name]), did)


def add_other_params(body: dict[str, Any], other: dict[str, Any], flags: Flags, ledger: Ledger) -> None:
    """Merge parameters into the body under their own names, with a note on each that nothing is known of.

    Raises `ValueError` for a name that is surely a typing error, or that the call sets itself, unless the caller wants
    it sent.
    """
    note_own_keys(body, other, "params", ledger)
    other = {**other}
    drop_refused_keys(other, flags, ledger)
    paths = _known_paths(flags)
    known = _known_names(ledger.model.protocol, paths)
    for name, value in other.items():
        if name not in known:
            similar, is_sure = (None, False) if name in OPTION_NAMES else similar_name(name, {*known, *OPTION_NAMES})
            _note_unknown(name, value, similar, ledger, is_sure=is_sure)
        elif type(value) is dict:
            settings = {path.split(".")[1] for path in paths if path.startswith(f"{name}.")}
            settings |= fields(ledger.model.protocol).request.get(name, {}).keys()
            for key in [key for key in value if key not in settings]:
                similar, is_sure = similar_name(key, settings)
                if similar is not None:
                    _note_unknown(f"{name}.{key}", value[key], f"{name}.{similar}", ledger, is_sure=is_sure)
    merge_patch(body, other)


def _note_unknown(name: str, value: Any, similar: str | None, ledger: Ledger, *, is_sure: bool) -> None:
    """Note a parameter that nothing is known of. Raise `ValueError` where its name is surely a typing error."""
    question = f"; did you mean {similar}?" if similar else ""
    if is_sure and ledger.policy != "send":
        raise ValueError(
            f"no parameter of {ledger.model.name} is called {name}{question} "
            "extra_body (--extra-body) sends it as it is"
        )
    if name in OPTION_NAMES:
        question = f"; {name} is an option of its own, and no parameter"
    did = f"sent as it is: neither the registry nor {ledger.model.protocol} knows it{question}"
    ledger.note("param-unknown", "params", _subject(name, value), did)


def note_typing_errors(extra: dict[str, Any], flags: Flags, ledger: Ledger) -> None:
    """Note the keys of `extra_body` that look like typing errors. They are sent unchanged."""
    known = _known_names(ledger.model.protocol, _known_paths(flags))
    for name, value in extra.items():
        if name not in known:
            similar, is_sure = similar_name(name, known)
            if is_sure:
                did = f"sent as it is: extra_body goes out verbatim; did you mean {similar}?"
                ledger.note("param-unknown", "extra_body", _subject(name, value), did)


def _subject(name: str, value: Any) -> str:
    """Return a parameter and its value for a note, without a secret and not at length."""
    text = str(value)
    return name if is_secret_name(name) else f"{name}={text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + '…'}"


def _known_names(protocol: str, paths: set[str]) -> set[str]:
    """Return the keys of the body that the protocol, the registry's parameters or its patches name."""
    return {*fields(protocol).body_keys, *(path.partition(".")[0] for path in paths)}


def _known_paths(flags: Flags) -> set[str]:
    """Return the registry's names of parameters, and all paths in the body that it names."""
    paths: set[str] = set()
    for name, rule in (flags.params or {}).items():
        paths |= {name, param_rules.path(name, rule)}
    reasoning = flags.reasoning
    paths |= {place.at for place in (reasoning.effort, reasoning.budget) if place and place.at}
    for patch in (flags.body, reasoning.on, reasoning.off):
        if patch is not None:
            paths |= leaves(patch.set or {}).keys()
    return paths
