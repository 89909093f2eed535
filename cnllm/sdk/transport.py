"""The part that the blocking and the asynchronous transport share, all of it but waiting; and the family of httpx."""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Callable, Iterable
from importlib import metadata, util
from typing import Any

from cnllm.client.base import BaseClient
from cnllm.errors import CnllmError
from cnllm.gateway.failures import Failure, RequestFailed
from cnllm.gateway.state import Steps
from cnllm.sdk.service import SdkAnswer, SdkRequest, SdkService, SdkSettings, process_store

__all__ = ["TransportBase", "make_client", "required_families", "subclass"]


@functools.cache
def subclass(name: str, own: Any, of_family: Any) -> Any:
    """Return a class of ours that is one of a family of httpx, too."""
    return type(name, (own, of_family), {})


class TransportBase:
    """A transport of httpx over a client of cnllm. `make_state` opens the state for a store.

    `_reply` returns the reply of a call, and `_body` the body of a streamed response.
    """

    make_state: Any
    _reply: Any
    _body: Any

    def __init__(self, httpx: Any, client: Any, service: SdkService) -> None:
        self._httpx = httpx
        self._client = client
        self._service = service
        self._state = self.make_state(process_store() if service.store is None else service.store)
        self._owns_store = isinstance(service.store, str)

    def _sdk_request(self, request: Any) -> SdkRequest:
        """Return a request of httpx as one of an SDK."""
        timeouts = request.extensions.get("timeout")
        return SdkRequest(self._service, request.method, request.url.path, dict(request.headers), timeouts)

    def _answer(self, request: Any, sdk_request: SdkRequest, read: Callable[[], Any]) -> Steps[Any]:
        """Return the response to a request. Raises the errors of `FAILURES`."""
        content = yield read
        restored = yield from sdk_request.prepare(request.url.query.decode("ascii", "replace"), content)
        if isinstance(restored, SdkAnswer):
            return self._response(request, restored)
        exchange = sdk_request.exchange
        is_whole = exchange.needs_whole_reply or not exchange.stream
        try:
            options = sdk_request.options(restored)
            call = self._client.prepare(exchange.model, restored.messages, stream=not is_whole, **options)
        except (TypeError, ValueError) as error:
            raise RequestFailed(Failure(400, str(error), "invalid_request")) from error
        sdk_request.take_call(call)
        if not exchange.stream:
            reply = yield lambda: self._reply(call)
            yield from sdk_request.keep(reply)
            return self._response(request, sdk_request.whole(reply))
        body = self._body(sdk_request, call, is_whole=is_whole)
        yield body.begin
        return self._response(request, sdk_request.head(), body)

    def _response(self, request: Any, answer: SdkAnswer, stream: Any = None) -> Any:
        """Return a response of httpx."""
        content = {"content": answer.content} if stream is None else {"stream": stream}
        return self._httpx.Response(answer.status, headers=answer.headers, request=request, **content)


def make_client(own: Any, prefix: str, client: BaseClient[Any], settings: SdkSettings) -> Any:
    """Return a client of a family of httpx over a transport of the class `own`.

    `prefix` stands before the family's names: "Async" or "".
    """
    httpx = httpx_family(settings.family, client.registry.providers)
    kind = subclass(own.__name__, own, getattr(httpx, f"{prefix}BaseTransport"))
    transport = kind(httpx, client, SdkService(client, settings))
    # Without timeouts of its own the SDK's default does not replace cnllm's: it takes this client's.
    return getattr(httpx, f"{prefix}Client")(transport=transport, timeout=None, trust_env=False)


# ── the family ───────────────────────────────────────────────────────────────
# No SDK is imported to find the family that it wants. A vendor's SDK is an installed package with the name of a
# provider, alone or as one of its words, and its requirements name its family.

_FAMILIES = ("httpx2", "httpx")  # the newer first
_NAME = re.compile(r"[\w.-]+")


def httpx_family(name: str | None, providers: Iterable[str]) -> Any:
    """Return the package of a family; None chooses one. Raises `ValueError` for another name."""
    if name is not None and name not in _FAMILIES:
        raise ValueError(f'family: "httpx2", "httpx" or None is expected, not {name!r}')
    name = name or _choose(providers)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CnllmError(f"{name} is not installed", hint=f"pip install {name}") from error


def _choose(providers: Iterable[str]) -> str:
    """Return the family of the installed SDKs. Of several the imported ones count, then those that want the newer."""
    installed = [name for name in _FAMILIES if util.find_spec(name) is not None]
    if len(installed) == 1:
        return installed[0]
    required = required_families(frozenset(providers))
    imported = [family for package, family in required.items() if package.replace("-", "_") in sys.modules]
    families = imported or [*required.values()] or installed
    return next((name for name in _FAMILIES if name in families), _FAMILIES[0])


@functools.lru_cache(maxsize=8)  # a search takes 20 ms, and programs may make a client for each request
def required_families(providers: frozenset[str]) -> dict[str, str]:
    """Return the families that the installed SDKs require, by their packages."""
    required = {package: family for package in providers if (family := _required_family(package)) is not None}
    return required or _families_by_words(providers)


def _required_family(package: str) -> str | None:
    """Return the family that an installed package requires; None for a missing package, and for no family."""
    try:
        requirements = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return None
    names = {match[0].lower() for text in requirements if "extra ==" not in text and (match := _NAME.match(text))}
    return next((name for name in _FAMILIES if name in names), None)


def _families_by_words(providers: frozenset[str]) -> dict[str, str]:
    """Return the families that packages require whose names have a provider's name as a word, by the packages."""
    names = {str(distribution.name).lower() for distribution in metadata.distributions() if distribution.name}
    return {
        name: family
        for name in names
        if not providers.isdisjoint(re.split("[-_.]", name)) and (family := _required_family(name)) is not None
    }
