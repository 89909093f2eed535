"""HTTP clients for the vendors' SDKs: every model of the registry behind them, in process, without a socket.

    import cnllm, openai

    client = openai.OpenAI(http_client=cnllm.sdk.http_client(), api_key="any text")
    client.chat.completions.create(model="glm-4.7", messages=[…])

The SDK builds its requests and reads its replies as ever; cnllm answers them as a gateway would. Any base URL is fine.
The key that the SDK demands may be any text and goes nowhere: the keys of providers are those that `cnllm.Client`
takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from cnllm.client.sync_client import Client
from cnllm.sdk.service import SdkSettings
from cnllm.sdk.sync_transport import SdkTransport
from cnllm.sdk.transport import make_client

if TYPE_CHECKING:
    from cnllm.registry import Registry

__all__ = ["async_http_client", "http_client"]

Family = Literal["httpx2", "httpx"]


def http_client(
    registry: Registry | None = None,
    *,
    models: Mapping[str, str] | None = None,
    store: Any = None,
    token_keys: Any = None,
    family: Family | None = None,
    **client_options: Any,
) -> Any:
    """Return a client of httpx2 or httpx that answers the requests of an SDK with the models of the registry.

    `models` maps names and patterns of the program (`gpt-*`) to models. `store` keeps state between requests: None is
    the memory of this process, which all such clients share; else a store, or a URL as for `cnllm serve --store`.
    `token_keys` seal reasoning into tokens; None takes the keys of the configuration folder. `family` is "httpx2" or
    "httpx"; None takes the one that the installed SDKs want. Further options are those of `cnllm.Client`. The client
    may be shared between threads. Raises `CnllmError` where the family is not installed.
    """
    settings = SdkSettings(family, models, store, token_keys, client_options)
    return make_client(SdkTransport, "", Client(registry, **client_options), settings)


def async_http_client(
    registry: Registry | None = None,
    *,
    models: Mapping[str, str] | None = None,
    store: Any = None,
    token_keys: Any = None,
    family: Family | None = None,
    **client_options: Any,
) -> Any:
    """Return `http_client` for asynchronous SDKs. Further options are those of `cnllm.AsyncClient`."""
    from cnllm.client.async_client import AsyncClient
    from cnllm.sdk.async_transport import AsyncSdkTransport

    settings = SdkSettings(family, models, store, token_keys, client_options)
    return make_client(AsyncSdkTransport, "Async", AsyncClient(registry, **client_options), settings)
