"""The ASGI application of the gateway: HTTP requests in any protocol, answered by any model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from cnllm.client.async_client import AsyncClient
from cnllm.gateway.access import LOOPBACK, Access
from cnllm.gateway.access_log import AccessLog
from cnllm.gateway.admission import Admission
from cnllm.gateway.http_request import HttpRequest, Receive, Scope, Send
from cnllm.gateway.limits.book import KeyBook
from cnllm.gateway.model_names import ModelNames
from cnllm.gateway.service import Service
from cnllm.gateway.state import State
from cnllm.registry import Registry

__all__ = ["KEY_VARIABLE", "Gateway"]

KEY_VARIABLE = "CNLLM_SERVE_KEY"
"""The environment variable with the key that clients must send."""

_MAX_BODY = 64 * 1024 * 1024  # bytes of a request: pictures are long
_PING_SECONDS = 15.0
_PATIENCE_SECONDS = 120.0


class Gateway:
    """An ASGI application.

    `models` maps names and patterns of clients to models, over `[gateway.models]` of the registry. `keys` are the keys
    of clients: None takes CNLLM_SERVE_KEY, `()` lets every client in. `key_book` has further keys, with limits; with it
    `()` lets in those alone. `hosts` are the names under which it may be reached, None for any. `store` is a store, or
    its URL; `token_keys` seal reasoning into tokens. `client` makes the calls; without one a client of the registry
    does. `ping` is the number of seconds of silence after which a stream gets a sign of life, `patience` the number of
    seconds that a client gets to send its body, or to read a piece of its reply.
    """

    def __init__(
        self,
        registry: Registry | None = None,
        *,
        simulate: bool = False,
        models: Mapping[str, str] | None = None,
        keys: Iterable[str] | None = None,
        store: Any = None,
        hosts: Iterable[str] | None = LOOPBACK,
        token_keys: Any = None,
        identity: str | None = None,
        client: AsyncClient | None = None,
        ping: float = _PING_SECONDS,
        patience: float = _PATIENCE_SECONDS,
        max_body: int = _MAX_BODY,
        access_log: AccessLog | None = None,
        key_book: KeyBook | None = None,
    ) -> None:
        if keys is None:
            key = os.environ.get(KEY_VARIABLE)
            if not key:
                raise ValueError(f"no key for clients is set: set {KEY_VARIABLE}, or pass keys=[…]; keys=() needs none")
            keys = [key]
        elif isinstance(keys, str):
            raise TypeError("keys is a text, and a list of keys is expected: keys=[…]")
        self.registry = registry if registry is not None else Registry.load()
        self.names = ModelNames(self.registry, {**self.registry.gateway_models, **(models or {})})
        self._simulate = simulate
        self._client = client
        access = Access(keys, hosts, needs_key=key_book is not None)
        self._service = Service(
            names=self.names,
            access=access,
            admission=Admission(access, key_book),
            state=State(store, token_keys),
            log=access_log if access_log is not None else AccessLog(),
            client=self._open_client,
            identity=identity,
            simulate=simulate,
            ping=ping,
            patience=patience,
            max_body=max_body,
        )

    # ── ASGI ─────────────────────────────────────────────────────────────────

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the start and the end of the application."""
        if scope["type"] == "http":
            await HttpRequest(self._service, scope, receive, send).serve()
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _live(self, receive: Receive, send: Send) -> None:
        """Follow the start and the end of the server."""
        while (message := await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await self.aclose()
        await send({"type": f"{message['type']}.complete"})

    async def aclose(self) -> None:
        """Close the connections to endpoints and to the store."""
        if self._client is not None:
            await self._client.aclose()
        await self._service.admission.aclose()
        await self._service.state.close()

    def _open_client(self) -> AsyncClient:
        """Return the client that calls the endpoints, made at its first use: after a fork of the server."""
        if self._client is None:
            self._client = AsyncClient(self.registry, simulate=self._simulate)
        return self._client
