"""The ASGI application of the gateway: HTTP requests in any protocol, answered by any model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from msgspec import Struct
from msgspec.structs import replace

from cnllm.client.async_client import AsyncClient
from cnllm.config import settings
from cnllm.gateway.access import LOOPBACK, Access, digest, key_fault, url_host
from cnllm.gateway.access_log import AccessLog
from cnllm.gateway.admission import Admission
from cnllm.gateway.bounds import Bounds, Clients, Guesses
from cnllm.gateway.conversations import Conversations
from cnllm.gateway.http_request import HttpRequest
from cnllm.gateway.limits.book import KeyBook
from cnllm.gateway.model_names import ModelNames, names_of_models
from cnllm.gateway.monitoring.monitor import Monitor
from cnllm.gateway.monitoring.operator import OperatorAccess
from cnllm.gateway.monitoring.prometheus import Metrics
from cnllm.gateway.monitoring.recent import Recent
from cnllm.gateway.service import Memories, Receive, Scope, Send, Service
from cnllm.gateway.state import State
from cnllm.gateway.tokens import require_token_keys
from cnllm.registry import Registry
from cnllm.store.call_log import CallLog
from cnllm.types import checks

if TYPE_CHECKING:
    from cnllm.gateway.monitoring.spans import ServerSpans

__all__ = ["Gateway", "GatewayOptions", "GatewaySettings"]

T = TypeVar("T")

_PING_SECONDS = 15.0
_REFUSAL_SECONDS = 0.002  # between two refusals of one address
_LOGINS = (10, 5.0)  # wrong keys at /ui: so many at once, then one each so many seconds
_BODY_THREADS = 2


class GatewayOptions(TypedDict, total=False):
    """The further options of a gateway; see `Gateway`."""

    hosts: Iterable[str] | None
    public_url: str | None
    token_keys: Any
    identity: str | None
    client: AsyncClient | None
    ping: float
    bounds: Bounds
    trusted_proxies: Iterable[str]
    access_log: AccessLog | None
    call_log: CallLog | None
    key_book: KeyBook | None
    limited_keys: Iterable[str]
    admin_key: str | None
    metrics: bool
    recent: Recent | None
    spans: ServerSpans | None


class GatewaySettings(Struct, frozen=True, kw_only=True):
    """The further options of a gateway with their defaults."""

    hosts: Iterable[str] | None = LOOPBACK
    public_url: str | None = None
    token_keys: Any = None
    identity: str | None = None
    client: AsyncClient | None = None
    ping: float = _PING_SECONDS
    bounds: Bounds = Bounds()
    trusted_proxies: Iterable[str] = ()
    access_log: AccessLog | None = None
    call_log: CallLog | None = None
    key_book: KeyBook | None = None
    limited_keys: Iterable[str] = ()
    admin_key: str | None = None
    metrics: bool = True
    recent: Recent | None = None
    spans: ServerSpans | None = None


class Gateway:
    """An ASGI application.

    `models` maps names and patterns of clients to models, over `[gateway.models]` of the registry. `keys` are the keys
    of clients: None takes CNLLM_SERVE_KEY, `()` lets every client in. `key_book` has further keys, with limits; with it
    `()` lets in those alone. `limited_keys` are keys of a file whose limits are in that book. `hosts` are the names
    under which it may be reached, None for any. `public_url` is the address at which browsers reach it through a
    proxy. `store` is a store, or its URL; `token_keys` seal reasoning into
    tokens. `client` makes the calls; without one a client of the registry does. `ping` is the number of seconds of
    silence after which a stream gets a sign of life. `bounds` limit what clients may hold, and the time that they have.
    `trusted_proxies` are the addresses or networks of proxies whose `X-Forwarded-For` names the client.

    `admin_key` opens `/metrics` and `/ui`; None takes CNLLM_ADMIN_KEY, and without that `keys` do. A key of `key_book`
    never does: its client may not see others. `metrics=False` counts nothing. `recent` keeps the last requests for
    `/ui`, which does not exist without it. `call_log` keeps what calls cost, for `cnllm logs`. `spans` makes
    OpenTelemetry spans of requests and of the calls they need.
    """

    def __init__(
        self,
        registry: Registry | None = None,
        *,
        simulate: bool = False,
        models: Mapping[str, str] | None = None,
        keys: Iterable[str] | None = None,
        store: Any = None,
        **options: Unpack[GatewayOptions],
    ) -> None:
        config = _checked_settings(GatewaySettings(**options))
        settings.check_settings()  # now: a later error would be the answer to a client
        if keys is None:
            key = settings.read_secret("serve_key")
            if not key:
                raise ValueError("no key for clients is set: set CNLLM_SERVE_KEY, or pass keys=[…]; keys=() needs none")
            keys = [key]
            _check_keys("CNLLM_SERVE_KEY", keys)
        else:
            keys = _as_keys(keys, has_book=config.key_book is not None)
        if admin := config.admin_key or settings.read_secret("admin_key"):
            _check_keys("admin_key" if config.admin_key else "CNLLM_ADMIN_KEY", [admin])
        if registry is not None:
            checks.require_type("registry", registry, Registry, "a cnllm.Registry or None")
        self.registry = registry if registry is not None else Registry.load()
        if config.client is None and settings.read_setting("transport") is not None:
            AsyncClient(self.registry, simulate=simulate)  # now: it may need a package that is not there
        self._models = {} if models is None else names_of_models(models)
        self._hosts = config.hosts
        self._key_book = config.key_book
        self._public_host = None if config.public_url is None else _named("public_url", url_host, config.public_url)
        self._admin_key = admin
        self._simulate = simulate
        self._on_event = None if config.spans is None else config.spans.calls
        self._client = config.client
        access = self._access(keys, config.limited_keys)
        self._metrics = Metrics() if config.metrics else None
        self._service = Service(
            names=self._names(self.registry),
            access=access,
            admission=Admission(config.key_book, simulate=simulate),
            state=State(store),
            keys=config.token_keys,
            log=config.access_log or AccessLog(),
            monitor=Monitor(self._operator(access), self._metrics, config.recent, config.spans),
            client=self._client_of(self.registry if config.client is None else config.client.registry),
            memories=Memories(),
            conversations=Conversations(),
            calls=config.call_log,
            identity=config.identity,
            simulate=simulate,
            ping=config.ping,
            bounds=config.bounds,
            clients=_named("trusted_proxies", Clients, config.trusted_proxies),
            requests=config.bounds.quota(config.bounds.requests),
            held=config.bounds.quota(config.bounds.held_bytes),
            pace=Guesses(1, _REFUSAL_SECONDS),
            logins=Guesses(*_LOGINS),
            threads=ThreadPoolExecutor(_BODY_THREADS, thread_name_prefix="cnllm-body"),
        )

    @property
    def bounds(self) -> Bounds:
        """Return the bounds of what clients may hold, for a server that has connections of its own."""
        return self._service.bounds

    @property
    def clients(self) -> Clients:
        """Return what tells the addresses of clients."""
        return self._service.clients

    @property
    def names(self) -> ModelNames:
        """Return the names that clients may use."""
        return self._service.names

    def use(self, registry: Registry, *, keys: Iterable[str] | None = None, limited_keys: Iterable[str] = ()) -> None:
        """Serve with another registry, and with other keys of clients unless they are None.

        A request that runs ends as it began. Connections, state, metrics and limits stay. Safe to call from any thread.
        Raises `UnknownModel` or `RegistryError` for names that the registry does not have, and `TypeError` or
        `ValueError` for keys that no client can send; then nothing changes.
        """
        checks.require_type("registry", registry, Registry, "a cnllm.Registry")
        service, names = self._service, self._names(registry)
        if keys is not None:
            keys = _as_keys(keys, has_book=self._key_book is not None)
        access = service.access if keys is None else self._access(keys, limited_keys)
        monitor = replace(service.monitor, operator=self._operator(access))
        client = self._client_of(registry)
        self.registry = registry
        self._service = replace(service, names=names, access=access, monitor=monitor, client=client)

    def suspend(self, models: Iterable[str]) -> None:
        """Answer 503 for these providers ("provider") and models ("provider/id") until `use` brings a registry."""
        self._service.names.suspend(frozenset(models))

    def _names(self, registry: Registry) -> ModelNames:
        return ModelNames(registry, {**registry.gateway_models, **self._models}, suggest=False)

    def _access(self, keys: Iterable[str], limited: Iterable[str]) -> Access:
        needs_key = self._key_book is not None
        return Access(keys, self._hosts, needs_key=needs_key, limited=limited, public_host=self._public_host)

    def _operator(self, access: Access) -> OperatorAccess:
        return OperatorAccess([digest(self._admin_key)] if self._admin_key else access.identities)

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
            _ = self._service.state.store  # now: a later error would come after a paid call
            if self._metrics is not None:
                self._metrics.start()  # here: it takes too long for a request, and too long for `import cnllm`
            await send({"type": "lifespan.startup.complete"})
        await self.aclose()
        await send({"type": f"{message['type']}.complete"})

    async def aclose(self) -> None:
        """Close the connections to endpoints and to the store."""
        if self._client is not None:
            await self._client.aclose()
        await self._service.admission.aclose()
        await self._service.state.close()
        if self._service.calls is not None:
            await asyncio.to_thread(self._service.calls.close)
        self._service.threads.shutdown(wait=False, cancel_futures=True)

    def _client_of(self, registry: Registry) -> Callable[[], AsyncClient]:
        """Return what makes the client of a registry at its first use: after a fork of the server.

        All of them share the connections of the first one.
        """
        client: AsyncClient | None = None

        def open_client() -> AsyncClient:
            nonlocal client
            if client is None:
                if self._client is None:
                    self._client = AsyncClient(
                        registry, simulate=self._simulate, on_event=self._on_event, log_calls=False
                    )
                own = self._client if self._client.registry is registry else self._client.with_registry(registry)
                client = own.with_memory(None)  # the memory of one would be that of all
            return client

        return open_client


def _checked_settings(config: GatewaySettings) -> GatewaySettings:
    """Return the options, lists of their own included. Raises `TypeError` or `ValueError` with an option's name."""
    kinds = {
        "client": (AsyncClient, "a cnllm.AsyncClient"),
        "bounds": (Bounds, "a cnllm.gateway.bounds.Bounds"),
        "access_log": (AccessLog, "a cnllm.gateway.access_log.AccessLog"),
        "call_log": (CallLog, "a cnllm.store.call_log.CallLog"),
        "key_book": (KeyBook, "what cnllm.gateway.limits.book.open_book returns"),
        "recent": (Recent, "a cnllm.gateway.monitoring.recent.Recent"),
        "public_url": (str, "the address of a server"),
        "identity": (str, "a string"),
    }
    for name, (kind, expected) in kinds.items():
        if (value := getattr(config, name)) is not None or name == "bounds":
            checks.require_type(name, value, kind, expected)
    lists = {}
    for name in ("hosts", "trusted_proxies", "limited_keys"):
        if (value := getattr(config, name)) is not None:
            lists[name] = checks.as_list(name, value, f"a list of texts, {name}=[…],")
            for text in lists[name]:
                checks.require_text(name, text)
    if config.spans is not None and not hasattr(config.spans, "calls"):
        raise checks.wrong_type("spans", config.spans, "a cnllm.gateway.monitoring.spans.ServerSpans")
    require_token_keys(config.token_keys)
    checks.seconds("ping", config.ping, none=False)
    return replace(config, **lists)


def _named(name: str, make: Callable[[Any], T], value: Any) -> T:
    """Return what is made of an option. Raises `ValueError` with its name."""
    try:
        return make(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _as_keys(keys: Iterable[str], *, has_book: bool) -> list[str]:
    """Return the keys of clients. `()` alone lets every client in: another empty list has lost its keys."""
    found = checks.as_list("keys", keys, "a list of keys, keys=[…],")
    if not found and keys != () and not has_book:
        raise ValueError("keys is empty: pass a key; keys=() lets every client in")
    _check_keys("keys", found)
    return found


def _check_keys(name: str, keys: Iterable[str]) -> None:
    """Raise `TypeError` or `ValueError` for a key that no client can send."""
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"{name}: a key is a text, and {type(key).__name__} is none")
        if fault := key_fault(key):
            raise ValueError(
                f"{name}: this is not a key, because {fault}; write letters, digits and signs without blanks"
            )
