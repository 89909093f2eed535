"""Send the requests of a batch from another process; rows, marks and answers stay with the one that runs it."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.client import credentials, secret_removal
from cnllm.config import keys, redact
from cnllm.errors import CnllmError, KeyMissing
from cnllm.registry.model import Model
from cnllm.transports import default_async_transport
from cnllm.types.policy import Timeouts

__all__ = ["STAND_IN", "RemoteRequest", "RemoteSender", "Response", "stand_in"]

STAND_IN = "key-of-the-node:"
"""What stands before the names of variables in the place of a key. The key is put there on the node that sends."""
_GROUP = 0.003  # seconds in which answers are passed on together


class RemoteRequest(Struct, frozen=True):
    """A request as it is sent, without the key. The names are those of a plan, so that transports take it."""

    method: str
    url: str
    headers: dict[str, str]
    content: bytes
    stream: bool = False
    timeouts: Timeouts = Timeouts()
    most: int = 0


class Response(Struct, frozen=True):
    """The response to a request. `error` is a pickled `CnllmError`; with a `status` the body broke off."""

    number: int
    status: int | None
    headers: dict[str, str]
    body: bytes
    error: bytes | None = None


class RemoteSender:
    """Takes requests in groups, has hundreds on their way, and gives answers in groups.

    `name_node` names the node in the error of a missing key.
    """

    def __init__(self, name_node: Callable[[KeyMissing], KeyMissing]) -> None:
        self._name_node = name_node
        self._transport: Any = default_async_transport()
        self._done: list[Response] = []
        self._arrived = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def check(self, stand_in: str, url: str) -> bytes | None:
        """Return the pickled error of a node that does not have the key; None where it has."""
        try:
            self._insert_key(RemoteRequest("POST", url, {"authorization": stand_in}, b""))
        except CnllmError as error:
            return pickle.dumps(error)
        return None

    async def submit(self, requests: Sequence[tuple[int, RemoteRequest]]) -> None:
        """Begin to send."""
        for number, request in requests:
            task = asyncio.create_task(self._send(number, request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def collect(self) -> list[Response]:
        """Return what came back since the last call, once there is something."""
        await self._arrived.wait()
        await asyncio.sleep(_GROUP)
        self._arrived.clear()
        responses, self._done = self._done, []
        return responses

    async def _send(self, number: int, request: RemoteRequest) -> None:
        status, headers, pieces, error = None, {}, list[bytes](), None
        secrets: tuple[str, ...] = ()
        try:
            request, secrets = self._insert_key(request)
            status, found, body = await self._transport.send(request)
            headers = dict(found)
            remaining = request.most
            async for piece in body:
                pieces.append(piece)
                if (remaining := remaining - len(piece)) < 0:
                    break
            if hasattr(body, "aclose"):
                await body.aclose()
        except CnllmError as caught:
            error = pickle.dumps(secret_removal.redact_error(caught, secrets))
        body_bytes = secret_removal.redact_body(secrets, b"".join(pieces))
        headers = {name: redact.redact(value, secrets) for name, value in headers.items()}
        self._done.append(Response(number, status, headers, body_bytes, error))
        self._arrived.set()

    def _insert_key(self, request: RemoteRequest) -> tuple[RemoteRequest, tuple[str, ...]]:
        """Return the request with the key of this node, and that key. Raises `KeyMissing` where there is none.

        A server on this machine gets no header where there is no key.
        """
        headers: dict[str, str] = {}
        secrets: tuple[str, ...] = ()
        for name, value in request.headers.items():
            if STAND_IN in value:
                before, _, rest = value.partition(STAND_IN)
                names = rest.split("|")
                key = keys.find_key(names)
                if key is None and credentials.is_local(request.url):
                    continue
                if key is None:
                    raise self._name_node(
                        KeyMissing(
                            f"{' or '.join(names)} is not set",
                            env=names,
                            hint=f"export {names[0]}=… before `ray start` there, or `cnllm keys set {names[0]}` there",
                        )
                    )
                value, secrets = before + key, (key,)
            headers[name] = value
        return replace(request, headers=headers), secrets


def stand_in(model: Model) -> str | None:
    """Return what stands for the key of a model until a process sends. Raises `Untrusted` as a client does."""
    names = model.flags.keys or []
    for name in names:
        credentials.check_origin(name, model, model.flags.base_url or "")
    return STAND_IN + "|".join(names) if names else None
