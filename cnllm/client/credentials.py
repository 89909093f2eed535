"""Find the key of a request, and check that it may go to its address."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit

from cnllm.config import keys
from cnllm.config.http_address import address_fault
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError, KeyMissing, Untrusted
from cnllm.registry import sites, trusted_files
from cnllm.registry.model import Model
from cnllm.registry.registry import Registry
from cnllm.registry.routing import origin_of
from cnllm.types.checks import is_loopback

__all__ = [
    "check_origin",
    "is_local",
    "is_safe_address",
    "key_for",
    "untrusted_models",
]


def key_for(plan: Plan, registry: Registry) -> str | None:
    """Return the key for a plan, from the environment or the keys file. None where none is needed.

    Raise `KeyMissing` where none is set, or one that no header can carry, and `Untrusted` for a stored key that would
    leave the origins it belongs to.
    """
    flags = plan.flags
    if not [value for value in plan.headers.values() if "{key}" in value]:
        return None
    names = flags.keys or []
    for name in sites.order_keys(registry, plan.model, names):
        key = keys.find_key([name])
        if key is not None:
            check_origin(name, plan.model, plan.url)
            if not (key.isascii() and key.isprintable()):  # an example that was copied with its … and never filled in
                raise KeyMissing(
                    f"{name} is set, but it is no key: it holds a control character or a letter outside ASCII",
                    env=list(names),
                    hint=_how_to_set(name),
                )
            return key
    if not names or is_local(plan.url):
        return None
    unset = f"{names[0]} is not set" if len(names) == 1 else f"none of {', '.join(names)} is set"
    raise KeyMissing(
        f"no key for {plan.model.provider}: {unset}",
        env=list(names),
        hint=_how_to_set(names[0], _alternatives(plan.model, registry)),
    )


def _how_to_set(name: str, more: str = "") -> str:
    """Return the hint on a key that is missing, with other ways behind it."""
    return f"export {name}=…, or `cnllm keys set {name}`, or try --simulate (in Python: Client(simulate=True)){more}"


def check_origin(name: str, model: Model, url: str) -> None:
    """Raise `Untrusted` where the key of a variable would leave its origins or go unencrypted.

    The addresses of all modes count: a call may go on in another mode, with the same key.
    """
    others = [address for address in model.addresses if address_fault(address) is None]  # a wrong one gets no request
    for origin, is_safe in dict.fromkeys(map(_origin, (url, *others))):
        _check_origin(name, model, origin, is_safe=is_safe)


def _check_origin(name: str, model: Model, origin: str, *, is_safe: bool) -> None:
    """Raise `Untrusted` where the key of a variable must not go to an origin."""
    location = model.distrusts(name, origin)
    if location is not None:
        file = location.rpartition(":")[0]
        reason, hint = "it belongs to another address", f"--key-env {name} (in Python api_key=) sends it on purpose"
        if file:
            reason = f"{location} sets this address, and that file is not trusted"
            hint = f"read it, then `cnllm registry trust {file}`; --key-env (in Python api_key=) sends a key on purpose"
        else:
            hint += "; for a server of your own: -m openai-compatible/ID"
        advice = trusted_files.ownership_advice(file)
        raise Untrusted(f"{name} must not go to {origin}: {reason}", origin=origin, hint=hint + advice)
    if not is_safe:
        raise Untrusted(
            f"{name} would go to {origin} unencrypted",
            origin=origin,
            hint="use https; --key-env (in Python api_key=) sends a key on purpose",
        )


def untrusted_models(registry: Registry) -> dict[str, Untrusted]:
    """Return the providers and the models whose keys are set and may not go where the files say, with the errors."""
    out: dict[str, Untrusted] = {}
    for name in (*registry.own_providers(), *registry.own_models()):
        try:
            model = registry.resolve(name, suggest=False) if "/" in name else registry.endpoint(name)
        except CnllmError:
            continue  # `cnllm registry check` and each call name the fault
        if not model.flags.base_url or model.provider in out:
            continue
        key = next((key for key in model.flags.keys or () if keys.find_key([key]) is not None), None)
        if key is None or model.distrusts(key, _origin(model.flags.base_url)[0]) is None:
            continue
        try:
            check_origin(key, model, model.flags.base_url)
        except Untrusted as error:
            out[name] = error
    return out


@lru_cache(maxsize=256)
def _origin(url: str) -> tuple[str, bool]:
    """Return the origin of a URL, and whether a stored key may go there: encrypted, or on this machine."""
    return origin_of(url), is_safe_address(url)


def is_safe_address(url: str) -> bool:
    """Whether a stored key may go to a URL: it goes encrypted, or stays on this machine."""
    return urlsplit(url).scheme == "https" or is_local(url)


def is_local(url: str) -> bool:
    """Whether a URL is on this machine."""
    return is_loopback(urlsplit(url).hostname or "")


def _alternatives(model: Model, registry: Registry) -> str:
    """Name other endpoints of the same model for which a key is set."""
    others = [
        name
        for name in registry.names()
        if name.partition("/")[2] == model.id
        and name != model.name
        and (names := registry.resolve(name).flags.keys)
        and keys.find_key(names) is not None
    ]
    return f"; a key is set for {', '.join(others)}" if others else ""
