"""Build the client of one command: its model, key, transport and recording."""

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

__all__ = [
    "PLACE_OF_KEY",
    "base_transport",
    "build_client",
    "choose_site",
    "is_set",
    "key_variable",
    "named_key",
    "print_age",
    "print_site",
    "read_key",
    "require_key_name",
    "resolve_model",
    "sends_key",
]


def resolve_model(
    registry: Registry,
    name: str,
    messages: Any,
    options: dict[str, Any],
    *,
    offline: bool,
    sends: bool = True,
    **place: Any,
) -> Model:
    """Return the named model, or the first usable one of a tier; in that case print its name.

    `place` goes to `choose_site`. `sends`: a request is sent, and the user may be asked which site of a vendor a key is
    for.
    """
    from cnllm.registry import tiers

    if not name.startswith(tiers.PREFIX):
        found = choose_site(registry, name, offline=offline or not sends, **place)
        print_age(found)
        return found
    model, note = tiers.choose_model(name, messages, options, registry, offline=offline)
    stdio.print_line(f"note: {note}")
    return model


def choose_site(registry: Registry, name: str, *, offline: bool, **settings: Any) -> Model:
    """Return the model of a name at the site whose key is set; ask the user where a variable fits several sites.

    With `offline` nobody is asked.
    """
    from cnllm.cli import questions
    from cnllm.registry import sites

    ask = questions.ask_site if not offline and questions.can_ask() else None
    return sites.choose_site(registry, name, ask=ask, **settings)


def print_site(model: Model) -> None:
    """Print which site of its vendor a model is asked at, and why, where a key decided."""
    for note in model.notes:
        if note.code == "site":
            stdio.print_line(f"note: {note}")


def print_age(model: Model) -> None:
    """Print that the limits and prices of a model are old, where they are."""
    from cnllm.registry.age import age_warning

    if model.notes and (warning := age_warning(model)) is not None:
        stdio.print_line(f"warning: {warning}")


def read_key(model: Model, key_env: str | None, *, required: bool = True) -> str | None:
    """Read the key from the variable that the user names. Raise KeyMissing if it is needed and missing.

    From then on, no output shows any key of this model.
    """
    from cnllm.config import keys, redact

    secrets = redact.request_secrets(model.flags.base_url or "", model.flags.headers or {})
    errors.hide_secrets(*secrets, *redact.proxy_secrets())
    if key_env is not None:
        return named_key(key_env, required=required)
    errors.hide_secrets(*[value for name in model.flags.keys or () if (value := keys.find_key([name]))])
    return None


def named_key(key_env: str, *, required: bool = True) -> str | None:
    """Read the key from a variable that the user names. From then on, no output shows it."""
    from cnllm.config import keys

    require_key_name(key_env)
    key = keys.find_key([key_env])
    if key is None and required:
        raise KeyMissing(f"{key_env} holds no key", env=[key_env])
    errors.hide_secrets(key or "")
    return key


def require_key_name(key_env: str) -> None:
    """Raise `UsageError` for a text that cannot be the name of a variable: it may be a key."""
    from cnllm.config.keys import NAME

    if not NAME.fullmatch(key_env):
        raise errors.UsageError(
            "--key-env takes the name of a variable, not a key", f"for example: --key-env {PLACE_OF_KEY}"
        )


def key_variable(model: Model, key_env: str | None) -> str | None:
    """Return the variable for a pasted command's key: the first that is set, else the preferred one."""
    names = [key_env] if key_env is not None else list(model.flags.keys or ())
    return next((name for name in names if is_set(name)), names[0] if names else None)


def sends_key(model: Model, key_env: str | None, url: str) -> bool:
    """Whether a request of a model has a key: an endpoint on this machine is asked without one where none is set."""
    from cnllm.client.credentials import is_local
    from cnllm.config import keys

    names = [key_env] if key_env is not None else model.flags.keys or []
    return bool(names) and (not is_local(url) or keys.find_key(names) is not None)


def is_set(name: str) -> bool:
    """Whether this variable holds a value."""
    return bool(os.environ.get(name, "").strip())


def build_client(
    registry: Registry,
    *,
    simulate: bool,
    records: tuple[str | Callable[[dict[str, Any]], None], ...],
    api_key: str | None = None,
    timeout: float | None = None,
    replay: str | None = None,
) -> Client:
    """Build a client that sends, simulates or replays, and records its exchanges in `records`."""
    from cnllm.client.sync_client import Client

    transport: Any = None
    if replay is not None:
        from cnllm.cassette import Player

        transport = Player(replay, errors.hide_secrets())
    for record in records:
        from cnllm.cassette import Recorder

        transport = Recorder(transport or base_transport(registry, simulate=simulate), record, errors.hide_secrets)
    offline = simulate and replay is None
    # The command logs its turns itself, with their words.
    return Client(registry, transport, simulate=offline, api_key=api_key, timeout=timeout, log_calls=False)


def base_transport(registry: Registry, *, simulate: bool) -> Any:
    """Return the transport that sends, or the simulator's."""
    if simulate:
        from cnllm.simulator import SimTransport

        return SimTransport(registry)
    from cnllm.transports import default_transport

    return default_transport()
