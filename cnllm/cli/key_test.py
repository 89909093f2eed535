"""Test a key: one cheap request to its provider, and what the endpoint said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, NamedTuple, TypedDict

from cnllm.cli.output import errors
from cnllm.cli.output.suggestion import provider_hint, same_name
from cnllm.config import keys
from cnllm.config.keys import NAME, names_with_key
from cnllm.config.redact import looks_secret
from cnllm.errors import (
    BadKey,
    CnllmError,
    EmptyReply,
    EndpointError,
    KeyMissing,
    QuotaExceeded,
    TransportError,
)
from cnllm.registry import Registry, sites
from cnllm.registry.model import Model
from cnllm.registry.routing import origin_of
from cnllm.types import Reply
from cnllm.types.policy import Retry

__all__ = [
    "KeyTest",
    "SiteTest",
    "describe",
    "find_provider",
    "key_providers",
    "key_variable",
    "run_test",
    "variable_providers",
]

_MAX_TOKENS = 16  # some endpoints accept no smaller number
_PROMPT = "Say OK."


def key_variable(name: str, registry: Registry) -> str:
    """Return the variable that a name stands for: itself, or a provider's first key variable. Raise `UsageError`."""
    if (provider := find_provider(name, registry)) is not None:
        names = registry.endpoint(provider).flags.keys
        if not names:
            raise errors.UsageError(f"{provider} needs no key")
        return next(iter(names_with_key(names)), names[0])
    secret = looks_secret(name) and not key_providers(name, registry)  # a key in the place of a name
    if NAME.fullmatch(name) and name == name.upper() and ("_" in name or not secret):
        return name
    label = "that" if secret else name or "''"
    raise errors.UsageError(f"{label} is neither a variable's name nor a provider", provider_hint(name, registry))


def find_provider(name: str, registry: Registry) -> str | None:
    """Return the provider of a name, a described one or one of the catalogue; None where there is none."""
    return same_name(name, [*registry.providers, *registry.catalogue_providers()])


def key_providers(name: str, registry: Registry) -> list[str]:
    """Return the providers that take a key: a provider's own name, or those of a variable, best first."""
    if (provider := find_provider(name, registry)) is not None:
        return [provider]
    return variable_providers(registry).get(name, [])


def variable_providers(registry: Registry) -> dict[str, list[str]]:
    """Return the variables of keys with the providers that read each, best first.

    Those of the catalogue count where no described provider reads the variable.
    """
    found: dict[str, list[str]] = {}
    for providers in (registry.providers, registry.catalogue_providers()):
        ranked: dict[str, list[tuple[int, int, str]]] = {}
        for provider in providers:
            for index, name in enumerate(registry.endpoint(provider).flags.keys or ()):
                ranked.setdefault(name, []).append((index, len(provider), provider))
        found = {name: [provider for *_, provider in sorted(ranks)] for name, ranks in ranked.items()} | found
    return found


def cheapest_model(provider: str, registry: Registry) -> Model | None:
    """Return the cheapest current model of a provider that reads and writes text. Unknown prices come last."""
    names = registry.names(catalogue=provider not in registry.providers)
    models = [registry.resolve(name) for name in names if name.startswith(f"{provider}/")]
    texts = [model for model in models if model.flags.input is None or "text" in model.flags.input]
    current = [m for m in texts if m.flags.status is None or m.flags.status.is_ != "retired"]
    return min(current, key=_price_rank, default=None)


def _price_rank(model: Model) -> tuple[bool, bool, float]:
    """Return what models are sorted by: those in preview come last, then those with an unknown price."""
    price, status = model.flags.price, model.flags.status
    is_preview = status is not None and status.is_ == "preview"
    if price is None or price.input is None or price.output is None:
        return is_preview, True, 0.0
    return is_preview, False, price.input + price.output


class KeyTest(TypedDict):
    """The result of `keys test`. `works` is null if the endpoint's answer says nothing about the key.

    `status` is that of HTTP, and `message` the endpoint's own sentence.
    """

    name: str
    provider: str
    url: str
    model: str
    works: bool | None
    status: int | None
    message: str


class SiteTest(NamedTuple):
    """The result of one request with a key, the reply if one came, and the seconds.

    `is_known`: the endpoint knows the key, perhaps as one of an account without balance.
    """

    result: KeyTest
    reply: Reply | None
    seconds: float

    is_known: bool


def run_test(
    name: str, model_name: str | None, registry: Registry, on_sites: Callable[[Sequence[Model]], object]
) -> list[SiteTest]:
    """Send one request with the key of a name to each site that it fits, until one takes it. The best result is last.

    `on_sites` gets the model at each site before anything is sent, where there are several. The site that takes the key
    is kept for calls of models without a provider.
    """
    variable = key_variable(name, registry)
    models = _models(name, variable, model_name, registry)
    if len(models) > 1:
        on_sites(models)
    tests: list[SiteTest] = []
    for model in models:
        tests.append(_test_site(name, variable, model, registry))
        if tests[-1].is_known:
            break
    if not tests[-1].is_known:
        return tests[::-1]  # the answer of the first site is the result
    site, own = tests[-1].result["provider"], models[0].flags.site
    if len(models) > 1 and own and own.vendor and sites.site_of_key(registry, site, variable) != site:
        sites.keep_site(own.vendor, variable, site)
    return tests


def _test_site(name: str, variable: str, model: Model, registry: Registry) -> SiteTest:
    """Send one request with the key of a variable to one site."""
    from cnllm.client.sync_client import Client

    options: dict[str, Any] = {"max_tokens": _MAX_TOKENS}
    if model.flags.reasoning.mode == "toggle":
        options["reasoning"] = "off"
    begin = perf_counter()
    with Client(registry, api_key=_key(name, variable, model, registry), retry=Retry(attempts=1)) as client:
        reply: Reply | None = None
        error: CnllmError | None = None
        try:
            reply = client.call(model, _PROMPT, **options)
        except KeyMissing as missing:  # its hint has ways to call without a key, which tell nothing of one
            raise errors.UsageError(missing.message, f"store one: cnllm keys set {variable}") from missing
        except (EndpointError, TransportError) as failure:
            error = failure
    is_known = reply is not None or isinstance(error, EmptyReply | QuotaExceeded)
    return SiteTest(_result(variable, model, reply, error), reply, perf_counter() - begin, is_known)


def _models(name: str, variable: str, model_name: str | None, registry: Registry) -> list[Model]:
    """Return the model to ask at each site that a variable may be for, the likeliest first."""
    first = _model(name, model_name, registry)
    group = registry.site_group(model_name or first.name, is_bare=model_name is None)
    readers = () if group is None else group.readers.get(variable, ())
    if len(readers) < 2:
        return [first]
    likely = first.provider if name != variable else sites.site_of_key(registry, first.provider, variable)
    ordered = sorted(readers, key=lambda site: site != likely)
    return [_site_model(site, first, registry) for site in ordered]


def _site_model(site: str, first: Model, registry: Registry) -> Model:
    """Return the model to ask at a site: the same one, or the cheapest where the site is not known to have it."""
    same = registry.resolve(f"{site}/{first.id}")
    is_listed = all(note.code != "unknown-model" for note in same.notes)
    return same if is_listed else cheapest_model(site, registry) or same


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


def _key(name: str, variable: str, model: Model, registry: Registry) -> str | None:
    """Return the key of the named variable, where the client would choose another one. None where it would not."""
    from cnllm.cli import client_factory

    client_factory.read_key(model, None, required=False)  # hides all keys of this model from now on
    names = sites.order_keys(registry, model, list(model.flags.keys or ()))
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
    is_answered = reply is not None or isinstance(error, EmptyReply)  # it did the work, whatever came of it
    return {
        "name": variable,
        "provider": model.provider,
        "url": model.flags.base_url or "",
        "model": model.id,
        "works": True if is_answered else False if isinstance(error, BadKey | QuotaExceeded) else None,
        "status": 200 if reply is not None else error.status if isinstance(error, EndpointError) else None,
        "message": error.message if error is not None else "",
    }


def describe(result: KeyTest) -> tuple[str, str]:
    """Return what a failed test means, and what to do next."""
    name, provider = result["name"], result["provider"]
    status = f"HTTP {result['status']}: " if result["status"] else ""
    reason = f"{provider} said: {status}{result['message']}" if result["status"] else result["message"]
    if result["works"] is False:
        return f"{name} does not work: {reason}", f"a new key: cnllm keys set {name}; {result['url']} was asked"
    again = f"ask again later, or name another model: cnllm keys test {name} -m {provider}/ID"
    return f"nothing is known about {name}: {reason}", again
