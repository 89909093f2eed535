"""The client of one command: its key, where it sends, and what is written down of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cnllm.cli.output import errors, stdio
from cnllm.errors import KeyMissing

if TYPE_CHECKING:
    from cnllm.client.sync_client import Client
    from cnllm.registry import Registry
    from cnllm.registry.model import Model

PLACE_OF_KEY = "MY_API_KEY"

__all__ = ["PLACE_OF_KEY", "build_client", "is_set", "key_variable", "may_send_key", "read_key", "resolve_model"]


def resolve_model(
    registry: Registry,
    name: str,
    messages: Any,
    options: dict[str, Any],
    *,
    protocol: str | None,
    base_url: str | None,
    offline: bool,
) -> Model:
    """The model that is named, or the first of a tier that will do, which is said."""
    from cnllm.registry import tiers

    if not name.startswith(tiers.PREFIX):
        return registry.resolve(name, protocol=protocol, base_url=base_url)
    found, note = tiers.choose_model(name, messages, options, registry, offline=offline)
    stdio.print_line(f"note: {note}")
    return found


def read_key(model: Model, key_env: str | None, *, needed: bool = True) -> str | None:
    """The key in the variable that the user named, which must hold one if it is needed.

    Whatever keys there are for the model will be shown by nothing from here on.
    """
    from cnllm.client.credentials import proxy_passwords
    from cnllm.config import keys, redact

    if key_env is not None and not keys.NAME.fullmatch(key_env):
        raise errors.UsageError(
            "--key-env takes the name of a variable, not a key", f"for example: --key-env {PLACE_OF_KEY}"
        )
    names = [key_env] if key_env is not None else list(model.flags.keys or ())
    errors.hide_secrets(*[value for name in names if (value := keys.find_key([name]))])
    errors.hide_secrets(
        *redact.request_secrets(model.flags.base_url or "", model.flags.headers or {}), *proxy_passwords()
    )
    found = keys.find_key([key_env]) if key_env is not None else None
    if found is None and key_env is not None and needed:
        raise KeyMissing(f"{key_env} holds no key", env=[key_env])
    return found


def key_variable(model: Model, key_env: str | None) -> str | None:
    """The variable that a pasted command takes the key from: the first that is set, or the best."""
    names = [key_env] if key_env is not None else list(model.flags.keys or ())
    return next((name for name in names if is_set(name)), names[0] if names else None)


def may_send_key(model: Model, variable: str, url: str) -> bool:
    """Whether the key in a variable may go to an address without a word of the user."""
    from cnllm.registry.routing import origin_of

    return model.trusts(variable, origin_of(url))


def is_set(name: str) -> bool:
    """Does this variable hold anything?"""
    return bool(os.environ.get(name, "").strip())


def build_client(
    registry: Registry,
    *,
    api_key: str | None,
    simulate: bool,
    timeout: float | None,
    replay: str | None,
    records: tuple[str | Callable[[dict[str, Any]], None], ...],
) -> Client:
    """A client that sends where it is told to and writes down what it is told to."""
    from cnllm.client.sync_client import Client

    transport: Any = None
    if replay is not None:
        from cnllm.cassette import Player

        transport = Player(replay, errors.hide_secrets())
        api_key = api_key or "none-is-needed-to-replay"
    for place in records:
        from cnllm.cassette import Recorder

        transport = Recorder(transport or _default(registry, simulate), place, errors.hide_secrets)
    return Client(registry, transport, simulate=simulate and replay is None, api_key=api_key, timeout=timeout)


def _default(registry: Registry, simulate: bool) -> Any:
    if simulate:
        from cnllm.simulator import SimTransport

        return SimTransport(registry)
    from cnllm.transports import default_transport

    return default_transport()
