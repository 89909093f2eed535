"""The part that the blocking and the asynchronous transport share: all of it but waiting."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from cnllm.client.base import BaseClient
from cnllm.gateway.default_keys import DefaultKeys
from cnllm.sdk.family import httpx_family
from cnllm.sdk.service import SdkAnswer, SdkRequest, SdkService, process_store

__all__ = ["TransportBase", "make_transport", "subclass"]


@functools.cache
def subclass(name: str, own: Any, of_family: Any) -> Any:
    """Return a class of ours that is one of a family of httpx, too."""
    return type(name, (own, of_family), {})


class TransportBase:
    """A transport of httpx over a client of cnllm. `make_state` opens the state for a store and keys."""

    make_state: Any

    def __init__(self, httpx: Any, client: Any, service: SdkService, store: Any) -> None:
        self._httpx = httpx
        self._client = client
        self._service = service
        self._state = self.make_state(process_store() if store is None else store, service.keys)
        self._owns_store = isinstance(store, str)

    def _sdk_request(self, request: Any) -> SdkRequest:
        """Return a request of httpx as one of an SDK."""
        timeouts = request.extensions.get("timeout")
        return SdkRequest(self._service, request.method, request.url.path, dict(request.headers), timeouts)

    def _response(self, request: Any, answer: SdkAnswer, stream: Any = None) -> Any:
        """Return a response of httpx."""
        content = {"content": answer.content} if stream is None else {"stream": stream}
        return self._httpx.Response(answer.status, headers=answer.headers, request=request, **content)


def make_transport(
    own: Any,
    base: str,
    client: BaseClient[Any],
    family: str | None,
    models: Mapping[str, str] | None,
    store: Any,
    token_keys: Any,
    options: dict[str, Any],
) -> tuple[Any, Any]:
    """Return the package of a family, and a transport of the class `own`, which is the family's class `base`, too."""
    httpx = httpx_family(family, client.registry.providers)
    service = SdkService(client, models, DefaultKeys() if token_keys is None else token_keys, options)
    kind = subclass(own.__name__.lstrip("_"), own, getattr(httpx, base))
    return httpx, kind(httpx, client, service, store)
