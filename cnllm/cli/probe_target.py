"""Find what a probe is to ask, and write its files: an address or a provider, with its wire, key and price."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cnllm.cli import client_factory
from cnllm.cli.output import errors
from cnllm.cli.output.suggestion import provider_hint
from cnllm.errors import KeyMissing
from cnllm.system import files

if TYPE_CHECKING:
    from cnllm.probe.place import EndpointPlace, ProbeTarget
    from cnllm.registry import Registry
    from cnllm.registry.model import Model

__all__ = ["find", "of_model", "price_of", "replace_own", "require_own", "require_prices", "simulated_target"]

_MARK = b"# Written by cnllm probe"
_LOOKS_LIKE_ADDRESS = re.compile(r"://|^localhost\b|^\[|[.:]\d|\.[a-z]{2,}(?:[:/]|$)", re.IGNORECASE)


def find(registry: Registry, target: str, params: Mapping[str, Any]) -> ProbeTarget:
    """Return the target for an address or the name of a provider, by the options of `cnllm probe`.

    Raises `UsageError`, also for a missing key.
    """
    from cnllm.probe.place import ProbeTarget

    id, protocol, key_env, needs_key = params["id"], params["protocol"], params["key_env"], not params["dry_run"]
    assumed = params["assume_price"]
    if target not in registry.providers:
        if not _LOOKS_LIKE_ADDRESS.search(target):
            rest = "give the URL of an endpoint, with http:// or https://"
            hint = provider_hint(target, registry, catalogue=False, otherwise=rest)
            raise errors.UsageError(f"{target} is neither a URL nor a provider", hint)
        with _missing_keys():
            key = None if key_env is None else client_factory.named_key(key_env, required=needs_key)
        return ProbeTarget(
            base_url=target,
            id=id,
            protocol=protocol,
            api_key=key,
            keys=() if key_env is None else (key_env,),
            price=assumed,
        )
    names = [name for name in registry.names() if name.startswith(f"{target}/")]
    if id is None and not names:
        raise errors.UsageError(f"the registry lists no model of {target}", "name one: --model ID")
    model = registry.resolve(f"{target}/{id}" if id is not None else names[0], protocol=protocol)
    with _missing_keys():
        found = of_model(model, key_env, needs_key=needs_key)
    return found if assumed is None else replace(found, price=assumed)


@contextlib.contextmanager
def _missing_keys() -> Iterator[None]:
    """Report a missing key as an error of usage, with what a probe can do without a key."""
    try:
        yield
    except KeyMissing as error:
        name = error.env[0] if error.env else "NAME"
        raise errors.UsageError(
            error.message, f"set {name}, or run: cnllm keys set {name}; --dry-run needs no key"
        ) from None


def of_model(model: Model, key_env: str | None = None, *, needs_key: bool = True) -> ProbeTarget:
    """Return the target for a model of the registry. Raises `KeyMissing` where a key is needed and not set."""
    from cnllm.client.credentials import key_for
    from cnllm.engine import build_request
    from cnllm.probe.verify import place_of
    from cnllm.registry import Registry

    flags = model.flags
    if not flags.base_url:
        raise errors.UsageError(f"the registry knows no address of {model.provider}", "give the URL of the endpoint")
    key = client_factory.read_key(model, key_env, required=needs_key)
    if key is None and needs_key:
        key = key_for(build_request(model, "x"), Registry.load())
    errors.hide_secrets(key or "")
    return _of_place(model, place_of(model), key)


def simulated_target(model: Model, url: str) -> ProbeTarget:
    """Return the target for a model that the simulator at an address plays: its key is made up."""
    from cnllm.probe.verify import place_of

    return _of_place(model, replace(place_of(model), base_url=f"{url}/{model.provider}"), "simulated")


def _of_place(model: Model, place: EndpointPlace, api_key: str | None) -> ProbeTarget:
    from cnllm.probe.place import ProbeTarget

    return ProbeTarget(
        base_url=place.base_url,
        id=model.id,
        protocol=model.protocol,
        api_key=api_key,
        price=price_of(model),
        provider=model.provider,
        place=place,
    )


def price_of(model: Model) -> tuple[float, float] | None:
    """Return the price of a million input and output tokens of a model; None where it is not known."""
    price = model.flags.price
    if price is None or price.input is None or price.output is None:
        return None
    return float(price.input), float(price.output)


def require_prices(models: Sequence[Model]) -> None:
    """Raise `UsageError` where --max-cost cannot be kept: no known price, or several currencies."""
    from cnllm.registry.model import currency_of

    priced = {model.name: currency_of(model) for model in models}
    unknown = [name for name, currency in priced.items() if currency is None]
    if unknown:
        raise errors.UsageError(f"--max-cost: the price of {', '.join(unknown)} is unknown", "use --max-requests")
    currencies = sorted({currency for currency in priced.values() if currency is not None})
    if len(currencies) > 1:
        raise errors.UsageError(
            f"--max-cost: the prices are in {' and '.join(currencies)}", "verify the models of each currency apart"
        )


# ── the files that a probe writes ────────────────────────────────────────────
def require_own(output: str) -> None:
    """Raise `UsageError` for a file that no probe has written: it may be the user's own."""
    path = Path(output)
    if path.suffix != ".toml":
        raise errors.UsageError(f"-o {output}: the file is a registry file", "give it a name that ends in .toml")
    if path.exists() and not errors.read_file(path, f"-o {output}", "choose another name").startswith(_MARK):
        raise errors.UsageError(f"{output} exists, and no probe has written it", "choose another name")
    errors.require_place(output)


def replace_own(path: Path, content: bytes) -> None:
    """Write a file in one step. Raises `CnllmError` where that fails."""
    files.change_file(path, lambda _: content, narrow=False)
