"""Which key goes with a request, and that it goes nowhere else."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from cnllm import keys, redact
from cnllm.engine.plan import Plan
from cnllm.errors import CnllmError, KeyMissing, Untrusted
from cnllm.model import Model
from cnllm.registry import own
from cnllm.registry.registry import Registry, origin_of

__all__ = ["cleaned", "key_for", "of", "of_proxies", "sealed", "without", "without_half"]

_SHORTEST = 8


def key_for(plan: Plan, given: str | None, registry: Registry) -> str | None:
    """The key for a plan: the caller's, else from the environment or the keys file. None where none is needed.

    Raises `KeyMissing`, and `Untrusted` for a kept key that would leave the origins it belongs to.
    """
    flags = plan.flags
    if given is not None or not any("{key}" in v for v in plan.headers.values()):
        return given
    names = flags.keys or []
    for name in names:
        found = keys.find([name])
        if found is not None:
            _demand_home(name, plan)
            return found
    if not names or _local(plan.url):
        return None
    raise KeyMissing(
        f"no key for {plan.model.provider}: {' or '.join(names)} is not set",
        env=list(names),
        hint=f"export {names[0]}=…, or `cnllm keys set {names[0]}`, or try --simulate"
        + _elsewhere(plan.model, registry),
    )


def _demand_home(name: str, plan: Plan) -> None:
    origin = origin_of(plan.url)
    place = plan.model.distrusts(name, origin)
    if place is not None:
        file = place.rpartition(":")[0]
        why = f"{place} says so, and nobody vouched for that file" if file else "it belongs to another address"
        raise Untrusted(
            f"{name} is not for {origin}: {why}",
            origin=origin,
            hint=f"read it, then `cnllm registry trust {file or 'FILE'}`; --key-env or api_key= sends a key on purpose"
            + own.advice(file),
        )
    if urlsplit(plan.url).scheme != "https" and not _local(plan.url):
        raise Untrusted(
            f"{name} would go to {origin} unencrypted",
            origin=origin,
            hint="use https; --key-env or api_key= sends a key on purpose",
        )


def _local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _elsewhere(model: Model, registry: Registry) -> str:
    """Other endpoints of the same model for which there is a key."""
    others = [
        name
        for name in registry.names()
        if name.partition("/")[2] == model.id
        and name != model.name
        and (found := registry.resolve(name).flags.keys)
        and keys.find(found) is not None
    ]
    return f"; a key is set for {', '.join(others)}" if others else ""


def sealed(plan: Plan, key: str | None) -> Plan:
    """The plan with the key in place of its placeholder, for the transport; without a key such headers are left out."""
    headers = {}
    for name, value in plan.headers.items():
        if "{key}" in value:
            if key is None:
                continue
            value = value.replace("{key}", key)
        headers[name] = value
    return replace(plan, headers=headers)


def of(plan: Plan, key: str | None) -> tuple[str, ...]:
    """Everything that goes with a sealed plan and is for its endpoint's eyes alone."""
    found = redact.carried(plan.url, plan.headers)
    return found if key is None or key in found else (key, *found)


def of_proxies() -> tuple[str, ...]:
    """The passwords in the addresses of the proxies that the environment names."""
    named = [value for name, value in os.environ.items() if name.lower().endswith("_proxy") and "@" in value]
    return tuple(secret for address in named for secret in redact.carried(address, {}))


def cleaned(error: CnllmError, secrets: tuple[str, ...]) -> CnllmError:
    """An error, and all those behind it, without the secrets, should the endpoint or the network have echoed one."""
    secrets = (*secrets, *of_proxies())
    todo: list[BaseException | None] = [error]
    seen: list[BaseException] = []
    while todo and secrets:
        one = todo.pop()
        if one is None or one in seen:
            continue
        seen.append(one)
        for name in ("message", "body", "hint", "code", "reason", "__notes__"):
            said: Any = getattr(one, name, None)
            if said and isinstance(said, str | list) and (clean := redact.data(said, secrets)) != said:
                setattr(one, name, clean)
        reply = getattr(one, "reply", None)
        if reply is not None and reply.raw is not None:
            one.reply = replace(reply, raw=_cleaned_data(reply.raw, secrets))  # type: ignore[attr-defined]
        one.args = tuple(redact.redact(a, secrets) if isinstance(a, str) else a for a in one.args)
        todo += [one.__cause__, one.__context__]
    return error


def without(secrets: tuple[str, ...], body: bytes) -> bytes:
    """A body without the secrets, should the endpoint have echoed one; what is too short to be one is left alone."""
    for secret in secrets:
        if len(secret) >= _SHORTEST and (said := secret.encode("utf-8", "surrogatepass")) in body:
            body = body.replace(said, redact.MARK.encode())
    return body


def without_half(secrets: tuple[str, ...], body: bytes) -> bytes:
    """The same of a body that broke off: its end may be the beginning of a secret."""
    body = without(secrets, body)
    for secret in secrets:
        said = secret.encode("utf-8", "surrogatepass")
        for size in range(min(len(said) - 1, len(body)), _SHORTEST - 1, -1):
            if body.endswith(said[:size]):
                return body[:-size] + redact.MARK.encode()
    return body


def _cleaned_data(data: Any, secrets: tuple[str, ...]) -> Any:
    encoded = msgspec.json.encode(data)
    cleaned = without(secrets, encoded)
    return data if cleaned == encoded else msgspec.json.decode(cleaned)
