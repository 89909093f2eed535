"""Test a key: one cheap request to its provider, and what the endpoint said."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from cnllm.cli.output import errors
from cnllm.cli.suggestion import suggest
from cnllm.errors import (
    BadKey,
    CnllmError,
    EmptyReply,
    EndpointError,
    QuotaExceeded,
    TransportError,
)

if TYPE_CHECKING:
    from cnllm.cli.output.json_types import KeyTest
    from cnllm.registry import Registry
    from cnllm.registry.model import Model
    from cnllm.types import Reply

__all__ = ["all_providers", "describe", "key_providers", "key_variable", "run_test"]

_MAX_TOKENS = 16  # some endpoints accept no smaller number
_PROMPT = "Say OK."


def key_variable(name: str, registry: Registry) -> str:
    """Return the variable that a name stands for: itself, or a provider's first key variable. Raise `UsageError`."""
    from cnllm.config.keys import NAME

    provider = _provider(name, registry)
    if provider is not None:
        names = registry.resolve(f"{provider}/any").flags.keys
        if not names:
            raise errors.UsageError(f"{provider} needs no key")
        return names[0]
    from cnllm.config.redact import looks_secret

    secret = looks_secret(name) and not key_providers(name, registry)  # a key in the place of a name
    if NAME.fullmatch(name) and name == name.upper() and ("_" in name or not secret):
        return name
    shown = "that" if secret else name or "''"
    raise errors.UsageError(f"{shown} is neither a variable's name nor a provider", _hint(name, registry))


def _hint(name: str, registry: Registry) -> str:
    """Return the provider of a model of this name, or similar providers."""
    try:
        model = registry.resolve(name)
    except CnllmError:
        rest = suggest(name, registry.catalogue_providers(), "cnllm models list shows the providers")
        return suggest(name, registry.providers, rest)
    return f"it is a model of {model.provider}: use {model.provider} instead"


def all_providers(registry: Registry) -> list[str]:
    """Return the providers that are described, then those of the catalogue."""
    return [*registry.providers, *registry.catalogue_providers()]


def _provider(name: str, registry: Registry) -> str | None:
    return next((p for p in all_providers(registry) if p.casefold() == name.casefold()), None)


def key_providers(name: str, registry: Registry) -> list[str]:
    """Return the providers that take a key: a provider's own name, or those of a variable, best first."""
    if (provider := _provider(name, registry)) is not None:
        return [provider]
    for names in (registry.providers, registry.catalogue_providers()):
        ranked = [(flags.index(name), len(p), p) for p in names if name in (flags := _keys(p, registry))]
        if ranked:
            return [provider for _, _, provider in sorted(ranked)]
    return []


def _keys(provider: str, registry: Registry) -> list[str]:
    return registry.resolve(f"{provider}/any").flags.keys or []


def cheapest_model(provider: str, registry: Registry) -> Model | None:
    """Return the cheapest current model of a provider that reads and writes text. Unknown prices come last."""
    best: tuple[tuple[bool, bool, float], Model] | None = None
    for name in registry.names(catalogue=provider not in registry.providers):
        if not name.startswith(f"{provider}/"):
            continue
        model = registry.resolve(name)
        flags = model.flags
        if flags.status is not None and flags.status.is_ == "retired":
            continue
        if flags.input is not None and "text" not in flags.input:
            continue
        price = flags.price
        known = price is not None and price.input is not None and price.output is not None
        amount = (price.input or 0) + (price.output or 0) if price is not None and known else 0.0
        preview = flags.status is not None and flags.status.is_ == "preview"
        rank = (preview, not known, amount)
        if best is None or rank < best[0]:
            best = rank, model
    return best[1] if best is not None else None


def run_test(name: str, model_name: str | None, registry: Registry) -> tuple[KeyTest, Reply | None, float]:
    """Send one request with the key of a name. Return the result, the reply if one came, and the seconds."""
    variable = key_variable(name, registry)
    model = _model(name, model_name, registry)
    from cnllm.client.sync_client import Client
    from cnllm.types.policy import Retry

    options: dict[str, Any] = {"max_tokens": _MAX_TOKENS}
    if model.flags.reasoning is not None and model.flags.reasoning.mode == "toggle":
        options["reasoning"] = "off"
    begin = perf_counter()
    with Client(registry, api_key=_key(name, variable, model), retry=Retry(attempts=1)) as client:
        reply: Reply | None = None
        error: CnllmError | None = None
        try:
            reply = client.call(model, _PROMPT, **options)
        except (EndpointError, TransportError) as failure:
            error = failure
    return _result(variable, model, reply, error), reply, perf_counter() - begin


def _model(name: str, model_name: str | None, registry: Registry) -> Model:
    providers = key_providers(name, registry)
    if model_name is not None:
        model = registry.resolve(model_name)
        if providers and model.provider not in providers:
            raise errors.UsageError(f"{name} is not the key of {model.name}", f"it is the key of {providers[0]}")
        return model
    if not providers:
        raise errors.UsageError(f"no provider takes {name}", "name a model of it: -m PROVIDER/ID")
    for provider in providers:
        cheapest = cheapest_model(provider, registry)
        if cheapest is not None:
            return cheapest
    raise errors.UsageError(f"no model of {providers[0]} is described", f"name one: -m {providers[0]}/ID")


def _key(name: str, variable: str, model: Model) -> str | None:
    """Return the key of the named variable, where the client would choose another one. None where it would not."""
    from cnllm.cli import client_factory
    from cnllm.config import keys
    from cnllm.registry.routing import origin_of

    client_factory.read_key(model, None, required=False)  # hides all keys of this model from now on
    names = list(model.flags.keys or ())
    if name != variable or next((n for n in names if keys.find_key([n]) is not None), variable) == variable:
        return None  # the client checks where the key may go
    key = keys.find_key([variable])
    origin = origin_of(model.flags.base_url or "")
    if key is None:
        raise errors.UsageError(f"{variable} holds no key", f"store one: cnllm keys set {variable}")
    if not model.trusts(variable, origin) or not origin.startswith("https:"):
        raise errors.UsageError(f"{variable} must not go to {origin}", "the provider's file is not trusted with it")
    errors.hide_secrets(key)
    return key


def _result(variable: str, model: Model, reply: Reply | None, error: CnllmError | None) -> KeyTest:
    works: bool | None = None
    if reply is not None or isinstance(error, EmptyReply):
        works = True  # the endpoint did the work, whatever came of it
    elif isinstance(error, BadKey | QuotaExceeded):
        works = False
    return {
        "name": variable,
        "provider": model.provider,
        "url": model.flags.base_url or "",
        "model": model.id,
        "works": works,
        "status": 200 if reply is not None else error.status if isinstance(error, EndpointError) else None,
        "message": error.message if error is not None else "",
    }


def describe(result: KeyTest) -> tuple[str, str]:
    """Return what a failed test means, and what to do next."""
    name, provider = result["name"], result["provider"]
    status = f"HTTP {result['status']}: " if result["status"] else ""
    said = f"{provider} said: {status}{result['message']}" if result["status"] else result["message"]
    if result["works"] is False:
        return f"{name} does not work: {said}", f"a new key: cnllm keys set {name}; {result['url']} was asked"
    again = f"ask again later, or name another model: cnllm keys test {name} -m {provider}/ID"
    return f"nothing is known about {name}: {said}", again
