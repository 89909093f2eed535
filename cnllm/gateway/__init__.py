"""Serve any model of the registry to clients of any protocol.

    import cnllm

    app = cnllm.gateway.app(keys=["a-key-of-your-choice"])     # an ASGI application

`cnllm serve` runs it. `exchange` is the part without a server; the HTTP clients for vendors' SDKs use it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

if TYPE_CHECKING:
    from cnllm.gateway.asgi import Gateway, GatewayOptions
    from cnllm.registry import Registry

__all__ = ["app"]


def app(
    registry: Registry | None = None,
    *,
    simulate: bool = False,
    models: Mapping[str, str] | None = None,
    keys: Iterable[str] | None = None,
    store: Any = None,
    **options: Unpack[GatewayOptions],
) -> Gateway:
    """Return an ASGI application that serves chat completions, Responses, Messages and Gemini.

    `models` maps names and patterns of clients (`fast-*`) to models. `keys` are the keys that clients may send; None
    takes CNLLM_SERVE_KEY, and `()`, but no other empty list, means that no key is needed. `store` keeps state between
    requests: None is the memory of this process, a text is a URL as for `cnllm serve --store`: the keys of `cnllm serve
    keys add` on that store are valid, too, with their limits. Further options are those of
    `cnllm.gateway.asgi.Gateway`. Raises `ValueError` where no key is set, and `CnllmError` for what cannot be used.
    """
    from cnllm.config.settings import read_secret
    from cnllm.gateway.asgi import Gateway
    from cnllm.gateway.limits.book import check_book, open_book
    from cnllm.gateway.store import check_store
    from cnllm.gateway.tokens import DefaultKeys, Keyring

    options.setdefault("token_keys", Keyring.load() if read_secret("gateway_key") else DefaultKeys())
    if isinstance(store, str):
        check_store(store)
        if keys != ():
            check_book(options.setdefault("key_book", open_book(store)))
    return Gateway(registry, simulate=simulate, models=models, keys=keys, store=store, **options)
