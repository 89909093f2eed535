"""Let a client's request pass if its key allows it: who sends it, what it may cost, and what it did cost."""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from cnllm import errors
from cnllm.engine.encode.plan import Plan
from cnllm.estimates.quote import Quote, output_bound, quote, settled_cost
from cnllm.gateway.access import OPEN, Access, digest, sent_keys
from cnllm.gateway.bounds import Guesses
from cnllm.gateway.failures import Failure, RequestFailed
from cnllm.gateway.limits.book import AsyncKeyBook, KeyBook
from cnllm.gateway.limits.key_worker import Reservation
from cnllm.gateway.limits.keys import KEY, KeyRecord
from cnllm.gateway.limits.limiter import LEASE_SECONDS, Limiter
from cnllm.gateway.limits.refusal import Refusal, Refused, model_refused
from cnllm.gateway.model_names import ModelNames
from cnllm.protocols import server_api
from cnllm.registry import Registry
from cnllm.registry.model import Model
from cnllm.types import Reply
from cnllm.types.route import Fallback

__all__ = ["Admission", "Admitted", "Caller", "allows_model", "guessing_failure", "refusal_failure", "require_model"]

_STATUS = {"rate": 429, "size": 413, "forbidden": 403, "key": 401}
_GUESSES = (100, 1.0)  # wrong keys of one address: so many at once, then one each so many seconds
_REPLIES = 10  # replies of unknown length that fit into a limit of tokens at once
_NOT_SENT = (errors.KeyMissing, errors.Untrusted, errors.CannotSend, errors.RegistryError, errors.UnknownModel)


class Caller(Struct, frozen=True):
    """The sender of a request: an identity, and the limits of its key where it has any."""

    identity: str
    record: KeyRecord | None = None


class Admission:
    """The keys of clients: those that are given at the start, and those of a book, which have limits."""

    def __init__(self, access: Access, book: KeyBook | None, *, lease: float = LEASE_SECONDS) -> None:
        self.guesses = Guesses(*_GUESSES)
        self._access = access
        self._book = book
        self._lease = lease
        self._limiters: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Limiter] = weakref.WeakKeyDictionary()

    def with_access(self, access: Access) -> Admission:
        """Return the same with other keys that are given; the limits of running requests are shared."""
        new = Admission(access, self._book, lease=self._lease)
        new._limiters = self._limiters
        new.guesses = self.guesses
        return new

    @property
    def limiter(self) -> Limiter:
        """Return the limits of the running event loop, made at their first use: after a fork of the server."""
        loop = asyncio.get_running_loop()
        limiter = self._limiters.get(loop)
        if limiter is None:
            assert self._book is not None
            coroutines: AsyncKeyBook = self._book.coroutines()
            limiter = self._limiters[loop] = Limiter(coroutines, lease=self._lease)
        return limiter

    async def caller(self, headers: Mapping[str, str], query: str, protocol: str, address: str) -> Caller | None:
        """Return who sends a request from an address; None without a valid key.

        Raises `RequestFailed` where nobody knows, and for an address that has sent too many wrong keys.
        """
        if self._access.is_open:
            return Caller(OPEN)
        keys = sent_keys(headers, query)
        if not keys:
            return None
        wait = self.guesses.wait(address)
        for key in keys:
            identity = digest(key)
            if wait and not self.guesses.is_proven(address, identity):
                continue
            caller = await self._caller_of(key, identity, protocol)
            if caller is not None:
                self.guesses.prove(address, identity)
                return caller
        if wait:
            raise RequestFailed(guessing_failure(wait))
        self.guesses.add(address)
        return None

    async def _caller_of(self, key: str, identity: str, protocol: str) -> Caller | None:
        """Return who has a key; None for nobody. Raises `RequestFailed` where nobody knows."""
        if identity in self._access.identities:
            return Caller(identity)
        if self._book is None or KEY.fullmatch(key) is None:
            return None
        try:
            record = await self.limiter.find(identity)
        except Refused as error:
            raise RequestFailed(refusal_failure(error.refusal, protocol)) from error
        return None if record is None else Caller(identity, record)

    async def admit(self, caller: Caller, protocol: str) -> None:
        """Count a request by its head, before its body is read. Raises `RequestFailed` beyond a limit of its key."""
        if caller.record is None:
            return
        try:
            await self.limiter.admit(caller.identity, caller.record)
        except Refused as error:
            raise RequestFailed(refusal_failure(error.refusal, protocol)) from error

    def fallback(self, caller: Caller, fallback: Fallback, registry: Registry) -> Fallback:
        """Return the part of a route that a client's key may use.

        Models that the key does not allow are left out. A budget is reserved for one model, so such a key gets the
        first model of the route and no other.
        """
        record = caller.record
        if record is None or not (record.models or record.budgets):
            return fallback
        kept = [
            index
            for index, name in enumerate(fallback.targets)
            if not record.budgets and record.allows(registry.resolve(name).name)
        ]
        weights = fallback.weights
        if weights is not None:
            weights = (weights[0], *(weights[index + 1] for index in kept)) if kept else None
            if weights is not None and not any(weights):
                weights = None
        return replace(fallback, targets=tuple(fallback.targets[index] for index in kept), weights=weights)

    def admitted(self, caller: Caller, plan: Plan, estimate: Callable[[], int], protocol: str) -> Admitted:
        """Return a context in which a request may be sent. `estimate` returns about how long it is."""
        return Admitted(self, caller, plan, estimate, protocol)

    async def aclose(self) -> None:
        """Report what became of requests, and close the book."""
        limiter = self._limiters.pop(asyncio.get_running_loop(), None)
        if limiter is not None:
            await limiter.aclose()


class Admitted:
    """A request that has what it needs while the context lasts. `reply` is set when its reply is whole.

    Without a reply everything that was reserved is charged, because the endpoint may charge it; unless the error shows
    that the request was not sent, or that the endpoint refused it.
    """

    def __init__(
        self, admission: Admission, caller: Caller, plan: Plan, estimate: Callable[[], int], protocol: str
    ) -> None:
        self.reply: Reply | None = None
        self._admission = admission
        self._caller = caller
        self._plan = plan
        self._estimate = estimate
        self._tokens = 0
        self._protocol = protocol
        self._quote: Quote | None = None
        self._reservation: Reservation | None = None

    async def __aenter__(self) -> Self:
        record = self._caller.record
        if record is not None:
            self._quote = quote(self._plan) if record.budgets else _unbounded(self._plan)
            counted = 0
            if record.tpm is not None:
                self._tokens = self._estimate()
                counted = _counted_tokens(self._tokens, self._plan, record.tpm)
            limiter = self._admission.limiter
            try:
                self._reservation = await limiter.reserve(self._caller.identity, record, self._quote, counted)
            except Refused as error:
                raise RequestFailed(refusal_failure(error.refusal, self._protocol)) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reservation, reply = self._reservation, self.reply
        if reservation is None:
            return
        assert self._quote is not None
        if reply is None and _was_refused(error):
            reservation.release()
        elif reply is None or reply.finish in ("cut", "error"):  # what it counted so far is not all
            reservation.settle(None, None)
        else:
            reservation.settle(settled_cost(self._quote, reply), _tokens_of(reply, self._tokens))


def allows_model(record: KeyRecord, names: ModelNames, name: str, model: Model) -> bool:
    """Whether a key may use a model by the name of a client, or another one of the route that has this name."""
    if record.allows(model.name):
        return True
    route = names.fallback(name)
    return route is not None and any(record.allows(names.registry.resolve(other).name) for other in route.targets)


def require_model(record: KeyRecord, names: ModelNames, name: str, protocol: str, model: Model | None = None) -> None:
    """Raise `RequestFailed` for a name whose model a key may not use. A tier is judged by the `model` it chose."""
    if model is None:
        try:
            found = names.resolve(name)
        except errors.UnknownModel:
            return  # the answer is that there is none
        if isinstance(found, str):
            return
        model = found
    if not allows_model(record, names, name, model):
        raise RequestFailed(refusal_failure(model_refused(record, model.name), protocol))


def guessing_failure(wait: float) -> Failure:
    """Return the answer to a key from an address that has sent too many wrong ones."""
    seconds = math.ceil(wait)
    message = f"this address has sent too many wrong keys; try again in {seconds} second{'s' * (seconds != 1)}"
    return Failure(429, message, "too_many_wrong_keys", wait)


def _counted_tokens(estimate: int, plan: Plan, limit: int) -> int:
    """Return the tokens for which a request counts until its reply is there: its own, and those of a long reply.

    A reply that may be longer than a part of the limit counts for that part: few replies are as long as they may be.
    """
    output = output_bound(plan)
    part = limit // _REPLIES
    total = estimate + (part if output is None else min(output, part))
    return total if estimate > limit else min(total, limit)


def _unbounded(plan: Plan) -> Quote:
    """Return a quote without bounds, for a key without a budget."""
    price = plan.flags.price
    return Quote(plan.model.name, None, None, price.currency if price is not None else None)


def refusal_failure(refusal: Refusal, protocol: str) -> Failure:
    """Return the answer to a request that is refused, with the status that clients of the protocol know."""
    api = server_api(protocol)
    status = {**_STATUS, "budget": api.budget_status, "unavailable": api.overloaded_status}[refusal.kind]
    return Failure(status, refusal.message, refusal.code, refusal.retry_after, final=refusal.final)


def _was_refused(error: BaseException | None) -> bool:
    """Whether an error shows that a request costs nothing: it was not sent, or the endpoint refused it."""
    if isinstance(error, errors.EndpointError):
        return error.status >= 400
    if isinstance(error, errors.TransportError):
        return not error.sent
    return isinstance(error, _NOT_SENT)


def _tokens_of(reply: Reply, estimate: int) -> int:
    """Return the tokens of a request and its reply; where the endpoint counts none, an estimate of both."""
    usage = reply.usage
    if usage.total is not None:
        return usage.total
    output = usage.output if usage.output is not None else (len(reply.text) + len(reply.reasoning)) // 4 + 1
    return (usage.input if usage.input is not None else estimate) + output
