"""Send parameters that no rule of the registry is about, unless their names are typing errors."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from cnllm.config.redact import is_secret_name
from cnllm.engine.adjustments import Ledger
from cnllm.engine.encode.params import drop_refused_keys
from cnllm.engine.options import OPTION_NAMES, RequestOptions
from cnllm.engine.similar_names import similar_name
from cnllm.jsonpath import get, leaves, merge_patch, remove
from cnllm.protocols import fields
from cnllm.registry import param_rules
from cnllm.registry.flags import Flags

__all__ = ["add_other_params", "note_typing_errors", "take_declared"]

_MAX_SHOWN = 200  # characters of a value in a note


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
    paths = _known_paths(flags)
    known = _known_names(ledger.model.protocol, paths)
    for name, value in other.items():
        if name not in known:
            similar, is_sure = (None, False) if name in OPTION_NAMES else similar_name(name, {*known, *OPTION_NAMES})
            _note_unknown(name, value, similar, ledger, is_sure=is_sure)
        elif type(value) is dict:
            settings = {path.split(".")[1] for path in paths if path.startswith(f"{name}.")}
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
    patches: list[dict[str, Any]] = [flags.body.set or {}] if flags.body is not None else []
    if (reasoning := flags.reasoning) is not None:
        patches += [patch.set or {} for patch in (reasoning.on, reasoning.off) if patch is not None]
        paths |= {place.at for place in (reasoning.effort, reasoning.budget) if place and place.at}
    for patch in patches:
        paths |= leaves(patch).keys()
    return paths
