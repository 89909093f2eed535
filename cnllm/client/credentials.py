"""Which key goes with a request, and that it goes nowhere else."""

from __future__ import annotations

import contextlib
import os
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from cnllm.client.echo import SHORTEST, Echo
from cnllm.config import keys, redact
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError, KeyMissing, Untrusted
from cnllm.registry import ownership
from cnllm.registry.model import Model
from cnllm.registry.registry import Registry
from cnllm.registry.routing import origin_of
from cnllm.types import Note, Reply

__all__ = [
    "insert_key",
    "key_for",
    "plan_secrets",
    "proxy_passwords",
    "redact_bytes",
    "redact_cut_bytes",
    "redact_error",
    "secret_bytes",
]


def key_for(plan: Plan, given: str | None, registry: Registry) -> str | None:
    """The key for a plan: the caller's, else from the environment or the keys file. None where none is needed.

    Raises `KeyMissing`, and `Untrusted` for a kept key that would leave the origins it belongs to.
    """
    flags = plan.flags
    if given is not None or not any("{key}" in v for v in plan.headers.values()):
        return given
    names = flags.keys or []
    for name in names:
        found = keys.find_key([name])
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
            + ownership.ownership_advice(file),
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
        and keys.find_key(found) is not None
    ]
    return f"; a key is set for {', '.join(others)}" if others else ""


def insert_key(plan: Plan, key: str | None) -> Plan:
    """The plan with the key in place of its placeholder, for the transport; without a key such headers are left out."""
    headers = {}
    for name, value in plan.headers.items():
        if "{key}" in value:
            if key is None:
                continue
            value = value.replace("{key}", key)
        headers[name] = value
    return replace(plan, headers=headers)


def plan_secrets(plan: Plan, key: str | None) -> tuple[str, ...]:
    """Everything that goes with a sealed plan and is for its endpoint's eyes alone."""
    found = redact.request_secrets(plan.url, plan.headers)
    return found if key is None or key in found else (key, *found)


def proxy_passwords() -> tuple[str, ...]:
    """The passwords in the addresses of the proxies that the environment names."""
    named = [value for name, value in os.environ.items() if name.lower().endswith("_proxy") and "@" in value]
    return tuple(secret for address in named for secret in redact.request_secrets(address, {}))


def redact_error(error: CnllmError, secrets: tuple[str, ...], echo: Echo | None = None) -> CnllmError:
    """An error, and all those behind it, without the secrets, should the endpoint or the network have echoed one.

    `echo` is that of the call: it knows what was delivered of a reply.
    """
    secrets = (*secrets, *proxy_passwords())
    if not secrets:
        return error
    echo = echo or Echo(secrets)
    todo: list[BaseException | None] = [error]
    seen: list[BaseException] = []
    while todo:
        one = todo.pop()
        if one is None or one in seen:
            continue
        seen.append(one)
        for name, said in list(vars(one).items()):
            clean = _clean_value(said, secrets, echo)
            if clean is not said:
                with contextlib.suppress(AttributeError):
                    setattr(one, name, clean)
        one.args = tuple(_clean_value(said, secrets, echo) for said in one.args)
        todo += [one.__cause__, one.__context__]
    return error


def _clean_value(value: Any, secrets: tuple[str, ...], echo: Echo) -> Any:
    """The same value where it holds no secret."""
    if isinstance(value, Reply):
        return echo.reply(value)
    if isinstance(value, Note):
        plain = msgspec.to_builtins(value)
        clean = redact.redact_cut_data(plain, secrets)
        return value if clean == plain else msgspec.convert(clean, Note)
    if isinstance(value, str | list | tuple | dict):
        clean = redact.redact_cut_data(value, secrets)
        return value if clean == value or (type(value) is tuple and tuple(clean) == value) else clean
    return value


@lru_cache(maxsize=16)
def secret_bytes(secrets: tuple[str, ...]) -> tuple[bytes, ...]:
    """The secrets as they stand in a body; what is too short to be one is left out."""
    return tuple(secret.encode("utf-8", "surrogatepass") for secret in secrets if len(secret) >= SHORTEST)


def redact_bytes(needles: tuple[bytes, ...], body: bytes) -> bytes:
    """A body without the secrets, should the endpoint have echoed one in one piece."""
    for said in needles:
        if said in body:
            body = body.replace(said, redact.MARK.encode())
    return body


def redact_cut_bytes(needles: tuple[bytes, ...], body: bytes) -> bytes:
    """The same of a body that broke off: its end may be the beginning of a secret."""
    body = redact_bytes(needles, body)
    for said in needles:
        for size in range(min(len(said) - 1, len(body)), SHORTEST - 1, -1):
            if body.endswith(said[:size]):
                return body[:-size] + redact.MARK.encode()
    return body
