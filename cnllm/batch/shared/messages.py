"""The messages between workers and the allowance: groups of rows, never single ones."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from cnllm.batch.controller import Kind

__all__ = [
    "Done",
    "EndpointLimits",
    "Hello",
    "Need",
    "Permissions",
    "WorkerReport",
    "decode_grant",
    "decode_report",
    "encode",
]


class EndpointLimits(Struct, frozen=True, array_like=True):
    """The limits of an endpoint that are known or set: a fixed concurrency, and a minute's requests and tokens.
    Workers with the same values share them."""

    name: str
    concurrency: int | None
    requests: float | None
    tokens: float | None


class Hello(Struct, frozen=True, array_like=True):
    """A worker's introduction.

    `place` stays when its process is started again; `committed` is the last amount that the worker heard of.
    """

    place: str
    endpoint: EndpointLimits
    run: str
    state: str | None
    currency: str | None
    cap: int | None
    committed: int = 0


class Done(Struct, frozen=True, array_like=True):
    """The end of a request, and after how many seconds it came. `cost` None is unknown.

    `key` and `reply` are those of an answer that is to be kept; `owned`: another worker may have it only after the end
    of this one.
    """

    ticket: int
    kind: Kind
    reserved: int | None
    cost: int | None
    tokens: float | None = None
    retry_after: float | None = None
    key: bytes | None = None
    reply: bytes | None = None
    owned: bool = False
    seconds: float | None = None


class Need(Struct, frozen=True, array_like=True):
    """A row that waits: the tokens that it counts for, and the most that it can cost."""

    tokens: float
    reserved: int | None


class WorkerReport(Struct, frozen=True, array_like=True):
    """The news and the needs of a worker.

    `observed` has requests and tokens a minute and a pause, as an endpoint told them. `added` is the most input that
    the endpoint has added to a request; None before one was answered.
    """

    worker: str
    finished: list[Done]
    needs: list[Need]
    observed: tuple[float | None, float | None, float | None] | None = None
    hello: Hello | None = None
    added: int | None = None


class Permissions(Struct, frozen=True, array_like=True):
    """The permissions for the first of the needs. `wait`: seconds after which to ask for more.

    `known` is False where the worker has to say hello. `stop` says why no more is sent. `committed` is what was spent
    in this run and what requests on their way may cost. `added` is the highest one that any worker has reported.
    """

    known: bool
    tickets: list[int] = []
    wait: float | None = None
    stop: str | None = None
    committed: int = 0
    added: int | None = None


encode = msgspec.msgpack.Encoder().encode
decode_report = msgspec.msgpack.Decoder(WorkerReport).decode
decode_grant = msgspec.msgpack.Decoder(Permissions).decode
