"""Send parameters that no rule of the registry is about, unless their names are typing errors."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.encode.params import drop_refused_keys
from cnllm.engine.options import OPTION_NAMES, RequestOptions
from cnllm.engine.similar_names import similar_name
from cnllm.jsonpath import get, leaves, merge_patch, remove
from cnllm.protocols import wire
from cnllm.registry import param_rules
from cnllm.registry.flags import Flags

__all__ = ["add_other_params", "note_typing_errors", "take_declared"]


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


def add_other_params(body: dict[str, Any], other: dict[str, Any], flags: Flags, ledger: Ledger) -> None:
    """Merge parameters into the body under their own names, with a note on each that nothing is known of.

    Raises `ValueError` for a name that is surely a typing error, unless the caller wants it sent.
    """
    other = {**other}
    drop_refused_keys(other, flags, ledger)
    known = _known_names(ledger.model.protocol, flags)
    for name, value in other.items():
        if name in known:
            if type(value) is dict and ledger.policy != "send":
                _check_settings(name, value, flags, ledger)
            continue
        similar, is_sure = (None, False) if name in OPTION_NAMES else similar_name(name, {*known, *OPTION_NAMES})
        question = f"; did you mean {similar}?" if similar else ""
        if is_sure and ledger.policy != "send":
            raise ValueError(
                f"no parameter of {ledger.model.name} is called {name}{question} extra_body sends it as it is"
            )
        did = f"sent as it is: neither the registry nor {ledger.model.protocol} knows it{question}"
        ledger.note("param-unknown", "params", f"{name}={value}", did)
    merge_patch(body, other)


def _check_settings(name: str, settings: dict[str, Any], flags: Flags, ledger: Ledger) -> None:
    """Raise `ValueError` for a setting in an object whose name is surely a typing error of a parameter's."""
    paths = (param_rules.path(param, rule) for param, rule in (flags.params or {}).items())
    inner = {path.partition(".")[2] for path in paths if path.startswith(f"{name}.")}
    for key in settings:
        if key not in inner:
            similar, is_sure = similar_name(key, inner)
            if is_sure:
                question = f"; did you mean {name}.{similar}?"
                raise ValueError(
                    f"no parameter of {ledger.model.name} is called {name}.{key}{question} extra_body sends it as it is"
                )


def note_typing_errors(extra: dict[str, Any], flags: Flags, ledger: Ledger) -> None:
    """Note the keys of `extra_body` that look like typing errors. They are sent unchanged."""
    known = _known_names(ledger.model.protocol, flags)
    for name, value in extra.items():
        if name not in known:
            similar, is_sure = similar_name(name, known)
            if is_sure:
                did = f"sent as it is: extra_body goes out verbatim; did you mean {similar}?"
                ledger.note("param-unknown", "extra_body", f"{name}={value}", did)


def _known_names(protocol: str, flags: Flags) -> set[str]:
    """Return the keys of the body that the protocol, the registry's parameters or its patches name."""
    known = {*wire(protocol).body_keys}
    for name, rule in (flags.params or {}).items():
        known |= {name, param_rules.path(name, rule).partition(".")[0]}
    patches: list[dict[str, Any]] = [flags.body.set or {}] if flags.body is not None else []
    if (reasoning := flags.reasoning) is not None:
        patches += [patch.set or {} for patch in (reasoning.on, reasoning.off) if patch is not None]
        known |= {place.at.partition(".")[0] for place in (reasoning.effort, reasoning.budget) if place and place.at}
    for patch in patches:
        known |= {path.partition(".")[0] for path in leaves(patch)}
    return known
