"""Choose the model of a call that names none: the user's default, else the first one that has a key."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from cnllm.cli import client_factory
from cnllm.cli.output import errors, stdio
from cnllm.config import keys, settings_files
from cnllm.errors import CnllmError, KeyMissing, UnknownModel
from cnllm.registry import Registry, tiers
from cnllm.registry.model import Model

__all__ = ["Choice", "choose", "require_model", "usable_models", "use_default"]


class Choice(msgspec.Struct, frozen=True):
    """A model by its name, and why it is the one. `place` is what sets it; None for the first that has a key.

    `is_bare`: the provider in the name is cnllm's choice, so that a key may choose another site of the vendor.
    """

    name: str
    reason: str
    place: str | None = None
    is_bare: bool = False


def require_model(base_url: str | None, command: str) -> None:
    """Raise `UsageError` where an address is given without a model: a default belongs to another address."""
    if base_url is not None:
        raise errors.UsageError(
            "missing option '-m' / '--model': --base-url needs the model that this address serves",
            f"for example: {command} --model openai-compatible/ID --base-url {base_url}",
        )


def use_default(registry: Registry, *, offline: bool, key_env: str | None = None) -> Choice:
    """Return the default model. If nothing sets one, print which model is asked, and why."""
    choice = choose(registry, offline=offline, key_env=key_env)
    if choice.place is None:
        stdio.print_line(f"cnllm: asking {choice.name}: {choice.reason}; cnllm models default M sets another")
    return choice


def choose(registry: Registry, *, offline: bool, key_env: str | None = None) -> Choice:
    """Return the default model of the user, or the first that has a key. Raise `KeyMissing` where none has one.

    The order is that of `default_models`, then that of the models in the user's own files. With `offline` no key is
    needed. `key_env` is the only key that counts, where the user names one.
    """
    stored = settings_files.default_model()
    if stored is not None:
        return _stored_choice(registry, *stored)
    first: Model | None = None
    for model in _models(registry):
        first = first or model
        names = [key for key in model.flags.keys or () if key_env in (None, key)]
        for key in names:
            if (source := keys.key_source(key)) is not None:
                where = "is set" if source == "environment" else "is in the keys file"
                return _choose_site(registry, model, f"{key} {where}", key_env, offline=offline)
        if names and key_env is not None and offline:
            return _choose_site(registry, model, f"{key_env} is its key", key_env, offline=True)
    if first is None:
        raise errors.UsageError("missing option '-m' / '--model'", "the registry names no default models")
    if offline:
        return Choice(first.name, "it is the first of the default models")
    if key_env is not None:
        raise errors.UsageError(f"missing option '-m' / '--model': no model is known for {key_env}", "name one")
    variable = next(iter(first.flags.keys or ()), "NAME")
    raise KeyMissing(
        "there is no key, so no model can be asked",
        env=[variable],
        hint=f'set a key, for example: cnllm keys set {variable}; to try without one: cnllm --simulate "hi"',
    )


def _choose_site(registry: Registry, model: Model, reason: str, key_env: str | None, *, offline: bool) -> Choice:
    """Return a model of the default models at the site of its vendor whose key is set."""
    if model.name in registry.own_models() or registry.sets_default_models:
        return Choice(model.name, reason)
    at = client_factory.choose_site(registry, model.name, offline=offline, key_env=key_env, is_bare=True)
    return Choice(at.name, reason, is_bare=True)


def usable_models(registry: Registry, *, offline: bool) -> list[str]:
    """List the default models and the user's own that have a key; with `offline` all of them."""
    models = [m for m in _models(registry) if offline or not m.flags.keys or any(map(keys.key_source, m.flags.keys))]
    return list(dict.fromkeys(model.name for model in models))


def _models(registry: Registry) -> Iterator[Model]:
    """Yield the default models, then the models in the user's own files."""
    for name in (*registry.default_models, *registry.own_models()):
        with contextlib.suppress(CnllmError):  # `cnllm registry check` reports it
            yield registry.resolve(name)


def _stored_choice(registry: Registry, name: str, place: str) -> Choice:
    if not name.startswith(tiers.PREFIX):
        try:
            registry.resolve(name)
        except UnknownModel as error:
            hint = error.hint or "cnllm models list shows all"
            raise UnknownModel(f"{place}: {error.message}", close=error.close, hint=hint) from error
    return Choice(name, f"{place} names it", place)
