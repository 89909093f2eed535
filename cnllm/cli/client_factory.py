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

__all__ = ["PLACE_OF_KEY", "client", "environment_name", "is_set", "key", "may_go", "model"]


def model(
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
    found, note = tiers.chosen(name, messages, options, registry, offline=offline)
    stdio.say(f"note: {note}")
    return found


def key(model: Model, key_env: str | None, *, needed: bool = True) -> str | None:
    """The key in the variable that the user named, which must hold one if it is needed.

    Whatever keys there are for the model will be shown by nothing from here on.
    """
    from cnllm.client.credentials import of_proxies
    from cnllm.config import keys, redact

    if key_env is not None and not keys.NAME.fullmatch(key_env):
        raise errors.Wrong(
            "--key-env takes the name of a variable, not a key", f"for example: --key-env {PLACE_OF_KEY}"
        )
    names = [key_env] if key_env is not None else list(model.flags.keys or ())
    errors.hide(*[value for name in names if (value := keys.find([name]))])
    errors.hide(*redact.carried(model.flags.base_url or "", model.flags.headers or {}), *of_proxies())
    found = keys.find([key_env]) if key_env is not None else None
    if found is None and key_env is not None and needed:
        raise KeyMissing(f"{key_env} holds no key", env=[key_env])
    return found


def environment_name(model: Model, key_env: str | None) -> str | None:
    """The variable that a pasted command takes the key from: the first that is set, or the best."""
    names = [key_env] if key_env is not None else list(model.flags.keys or ())
    return next((name for name in names if is_set(name)), names[0] if names else None)


def may_go(model: Model, variable: str, url: str) -> bool:
    """Whether the key in a variable may go to an address without a word of the user."""
    from cnllm.registry.registry import origin_of

    return model.trusts(variable, origin_of(url))


def is_set(name: str) -> bool:
    """Does this variable hold anything?"""
    return bool(os.environ.get(name, "").strip())


def client(
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

        transport = Player(replay, errors.hide())
        api_key = api_key or "none-is-needed-to-replay"
    for place in records:
        from cnllm.cassette import Recorder

        transport = Recorder(transport or _default(registry, simulate), place, errors.hide)
    return Client(registry, transport, simulate=simulate and replay is None, api_key=api_key, timeout=timeout)


def _default(registry: Registry, simulate: bool) -> Any:
    if simulate:
        from cnllm.simulator import SimTransport

        return SimTransport(registry)
    from cnllm.transports import default_transport

    return default_transport()
