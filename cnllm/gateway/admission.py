"""Let a client's request pass if its key allows it: who sends it, what it may cost, and what it did cost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError, UnknownModel
from cnllm.estimates.money import format_units
from cnllm.estimates.worst_case import WorstCase, assume_price, counted_cost, output_bound, worst_case
from cnllm.gateway.access import OPEN, Access, digest
from cnllm.gateway.bounds import Guesses
from cnllm.gateway.failures import Failure, RequestFailed
from cnllm.gateway.limits.book import AsyncKeyBook, KeyBook
from cnllm.gateway.limits.key_use import use_data
from cnllm.gateway.limits.key_worker import SoftBudget
from cnllm.gateway.limits.keys import KEY, Rights
from cnllm.gateway.limits.limiter import LEASE_SECONDS, Limiter, Reservations
from cnllm.gateway.limits.refusal import Refusal, Refused, model_refused, revoked
from cnllm.gateway.model_names import ModelNames, narrow_route
from cnllm.protocols import server_api, wire
from cnllm.registry.model import Model
from cnllm.types import Note, Reply
from cnllm.types.client_data import ClientData
from cnllm.types.policy import Fallback

__all__ = [
    "Admission",
    "Admitted",
    "Caller",
    "allows_model",
    "guessing_failure",
    "refusal_failure",
    "require_model",
    "soft_budget_header",
]

_LOGGER = logging.getLogger("cnllm.gateway")
_STATUS = {"rate": 429, "size": 413, "forbidden": 403, "key": 401}
_GUESSES = (100, 1.0)  # wrong keys of one address: so many at once, then one each so many seconds
_REPLIES = 10  # replies of unknown length that fit into a limit of tokens at once


class Caller(Struct, frozen=True):
    """The sender of a request: an identity, and the rights of its key where they are limited."""

    identity: str
    rights: Rights | None = None


class Admitted(Struct):
    """A request that may be sent. `soft_budgets` are spent; `reply` is set when it is whole.

    `reserve_more` reserves for one more request of the same call, and says whether there is room. `is_charged` says
    whether the endpoint may charge what was sent of a call that its client left.
    """

    soft_budgets: list[SoftBudget] = []
    reply: Reply | None = None
    reserve_more: Callable[[], Awaitable[bool]] | None = None
    is_charged: Callable[[], bool] = lambda: True


class Admission:
    """The limits of the keys that a book has.

    With `simulate` nothing costs anything, whatever its price.
    """

    def __init__(self, book: KeyBook | None, *, lease: float = LEASE_SECONDS, simulate: bool = False) -> None:
        self.simulate = simulate
        self._warned: dict[tuple[str, str, str], tuple[int, int]] = {}  # soft budgets that the log has
        self.guesses = Guesses(*_GUESSES)
        self._book = book
        self._lease = lease
        self._limiters: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Limiter] = weakref.WeakKeyDictionary()

    @property
    def limiter(self) -> Limiter:
        """Return the limits of the running event loop, made at their first use: after a fork of the server."""
        loop = asyncio.get_running_loop()
        limiter = self._limiters.get(loop)
        if limiter is None:
            assert self._book is not None
            limiter = self._limiters[loop] = Limiter(AsyncKeyBook(self._book), lease=self._lease)
        return limiter

    async def caller(self, access: Access, keys: Sequence[str], address: str) -> Caller | None:
        """Return who sends a request with these keys from an address; None without a valid one. `access` knows keys.

        Raises `Refused` where nobody knows, and `RequestFailed` for an address that has sent too many wrong keys.
        """
        if access.is_open:
            return Caller(OPEN)
        if not keys:
            return None
        wait = self.guesses.wait(address)
        for key in keys:
            identity = digest(key)
            if wait and not self.guesses.is_proven(address, identity):
                continue
            caller = await self._caller_of(access, key, identity)
            if caller is not None:
                self.guesses.prove(address, identity)
                return caller
        if wait:
            raise RequestFailed(guessing_failure(wait))
        self.guesses.add(address)
        return None

    async def _caller_of(self, access: Access, key: str, identity: str) -> Caller | None:
        """Return who has a key; None for nobody. Raises `Refused` where nobody knows."""
        if identity in access.identities:
            return Caller(identity)
        is_in_file = identity in access.limited
        if self._book is None or not (is_in_file or KEY.fullmatch(key)):
            return None
        rights = await self.limiter.find(identity, is_known=is_in_file)
        if rights is None or (rights.key.is_in_file and not is_in_file):
            return None
        return Caller(identity, rights)

    async def caller_now(self, caller: Caller) -> Caller:
        """Return a sender that was let in with the rights of now: a body may arrive long after its head.

        Raises `Refused` for a key that was revoked or has expired meanwhile.
        """
        if caller.rights is None:
            return caller
        rights = await self.limiter.find(caller.identity, is_known=caller.rights.key.is_in_file)
        if rights is None:
            raise Refused(revoked())
        return Caller(caller.identity, rights)

    def route(self, caller: Caller, first: Model, fallback: Fallback) -> tuple[Model, Fallback]:
        """Return the part of a route that a client's key may use: its first model, and those that take over.

        Models that the key or its team does not allow are left out, and those that its budget cannot pay. A budget is
        reserved for one model, so such a key gets the first one that is left, or the best one by measurement, and no
        other. Raises `Refused` where the key allows none.
        """
        rights = caller.rights
        if rights is None or not any(record.models or record.budgets for record in rights.records):
            return first, fallback
        models = [first, *(target for target in fallback.targets if isinstance(target, Model))]
        usable = self.usable(rights, models)
        if not usable:
            raise _model_refused(rights, first.name)
        indexes = [index for index, model in enumerate(models) if model in usable]
        most = 1 if any(record.budgets for record in rights.records) else fallback.most
        if fallback.order is None:
            indexes = indexes[:most]
        return models[indexes[0]], replace(narrow_route(fallback, indexes), most=most)

    def options(self, caller: Caller, model: Model, options: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Note]]:
        """Return the options of a request without the further models that its body names to the endpoint, with notes.

        Those of a key that may use some models only, or has a budget, are left out: nobody here knows which one would
        answer, or what it would cost. Raises `Refused` for a tool with which `model` would ask one that the key may
        not use.
        """
        data = options.get("extra_body")
        if caller.rights is None:
            return options, []
        for tool in options.get("tools") or ():
            if type(tool) is not ClientData or tool.protocol != model.protocol or "function" in tool:
                continue
            if type(id := tool.get("model")) is str:
                require_name(caller.rights, f"{model.provider}/{id}")
        if type(data) is not ClientData:
            return options, []
        names = wire(data.protocol).model_keys.intersection(data)
        if not names or not any(record.models or record.budgets for record in caller.rights.records):
            return options, []
        rest = {name: value for name, value in data.items() if name not in names}
        did = "left out: the limits of the key hold for the model that is asked"
        notes = [Note("target-passed-over", "route", f"{name} in the body", did) for name in sorted(names)]
        return {**options, "extra_body": ClientData(data.protocol, rest, data.search, data.inner_keys)}, notes

    def usable(self, rights: Rights, models: Sequence[Model]) -> list[Model]:
        """Return those of some models that a key may use and pay. Where it can pay none, those that it may use."""
        allowed = [model for model in models if rights.allows(model.name)]
        return [model for model in allowed if self._is_payable(model, rights)] or allowed

    def _is_payable(self, model: Model, rights: Rights) -> bool:
        """Whether the budgets of a key are in the currency of a model."""
        price = rights.price(model.flags.price)
        currency = price.currency if price is not None else None
        return self.simulate or all(not record.budgets or currency in record.budgets for record in rights.records)

    def warn(self, warning: SoftBudget) -> None:
        """Say once in the log that a soft budget is spent, and again when the budget has begun anew."""
        record, currency = warning.record, warning.currency
        state = (warning.start, record.soft_budgets[currency])
        if self._warned.get(whose := (record.kind, record.name, currency)) != state:
            self._warned[whose] = state
            _LOGGER.warning("the soft budget of the %s %s is spent: %s", record.kind, record.name, _amounts(warning))

    def worst_case(self, rights: Rights, plan: Plan) -> WorstCase:
        """Return the bounds of a request, as far as a budget needs them. A long request takes long.

        Where a part of the price is not known, such as a fee, the price that the key assumes counts.
        """
        price = rights.price(plan.flags.price)
        if self.simulate:
            return WorstCase(plan.model.name, None, None, cost=0)
        if not any(record.budgets for record in rights.records):
            return WorstCase(plan.model.name, None, None, price.currency if price is not None else None)
        worst = worst_case(plan)
        if worst.cost is None and rights.assumed is not None:
            return worst_case(assume_price(plan, rights.assumed))
        return worst

    def reservation(
        self, caller: Caller, plan: Plan, worst: WorstCase | None, estimate: Callable[[], int]
    ) -> contextlib.AbstractAsyncContextManager[Admitted]:
        """Return a context in which a request may be sent. `worst` is that of a key with limits.

        `estimate` returns about how long the request is. Entering it raises `Refused` beyond a limit.
        """
        if caller.rights is None or worst is None:
            return contextlib.nullcontext(Admitted())
        return self._reservation(caller.identity, caller.rights, plan, worst, estimate)

    @contextlib.asynccontextmanager
    async def _reservation(
        self, identity: str, rights: Rights, plan: Plan, worst: WorstCase, estimate: Callable[[], int]
    ) -> AsyncIterator[Admitted]:
        """Reserve what a request of a key with limits may use, and charge what it used.

        Without a reply everything that was reserved is charged, because the endpoint may charge it; unless the error
        names another cost, or shows that the request was not sent, or that the endpoint refused it, or the client left
        before it was sent again.
        """
        call = Admitted()
        limits = [record.tpm for record in rights.records]
        tokens = estimate() if any(limits) else 0
        counted = [0 if tpm is None else _counted_tokens(tokens, plan, tpm) for tpm in limits]
        reservations = await self.limiter.reserve(identity, rights, worst, *counted)
        call.soft_budgets = reservations.soft_budgets
        for warning in call.soft_budgets:
            self.warn(warning)
        more: list[Reservations] = []
        attempt_cost = worst.cost if worst.attempt is None else worst.attempt

        async def reserve_more() -> bool:
            try:
                attempt = replace(worst, cost=attempt_cost)
                more.append(await self.limiter.reserve(identity, rights, attempt, 0))
            except Refused:
                return False
            return True

        if any(record.budgets for record in rights.records):
            call.reserve_more = reserve_more
        is_charged, failed = True, None
        try:
            yield call
        except CnllmError as error:
            is_charged = call.reply is not None or bool(error.meaning.charged)
            failed = error.cost
            raise
        except BaseException:
            is_charged = call.reply is not None or call.is_charged()
            raise
        finally:
            if is_charged:
                if more and worst.cost is not None:
                    worst = replace(worst, cost=worst.cost + len(more) * (attempt_cost or 0))
                reply, cost = call.reply, failed
                if reply is not None:  # an assumed price is not all where requests that may be charged went before
                    cost = (reply if more else rights.with_price(reply, plan.flags.price)).cost
                units = 0 if self.simulate else counted_cost(cost, worst.currency, worst.cost)
                is_broken = reply is None or reply.finish in ("cut", "error")  # its counts are incomplete
                reservations.settle(units, None if reply is None or is_broken else _tokens_of(reply, tokens))
                for reservation in more:
                    if units is None:
                        reservation.forfeit()
                    else:
                        reservation.release()
            else:
                for reservation in (reservations, *more):
                    reservation.release()

    async def uses(self) -> dict[str, list[dict[str, Any]]]:
        """Return the keys and the teams of the book with what they have used, for the operator."""
        book = self._book
        if book is None:
            return {"keys": [], "teams": []}
        return await asyncio.to_thread(
            lambda: {
                "keys": [use_data(use) for use in book.uses()],
                "teams": [use_data(use) for use in book.uses(teams=True)],
            }
        )

    async def aclose(self) -> None:
        """Report what became of requests, and close the book."""
        limiter = self._limiters.pop(asyncio.get_running_loop(), None)
        if limiter is not None:
            await limiter.aclose()


def soft_budget_header(warnings: list[SoftBudget]) -> str:
    """Return the header that warns a client: the soft budgets that are spent."""
    return ", ".join(f"{warning.record.kind} {warning.record.name}: {_amounts(warning)}" for warning in warnings)


def _amounts(warning: SoftBudget) -> str:
    """Return a sentence with the spent amount and both budgets."""
    record, currency = warning.record, warning.currency
    spent, soft, hard = map(format_units, (warning.spent, record.soft_budgets[currency], record.budgets[currency]))
    return f"{spent} of {hard} {currency} (soft budget {soft})"


def allows_model(rights: Rights, names: ModelNames, name: str) -> bool:
    """Whether a key may use a name of a client: a model that may answer to it. Raises as `ModelNames.resolve` does."""
    return any(rights.allows(model.name) for model in names.models(name))


def require_model(rights: Rights, names: ModelNames, name: str) -> None:
    """Raise `Refused` for a name to which no model may answer that a key may use. Unknown names pass."""
    try:
        models = names.models(name)
    except UnknownModel:
        return  # the answer is that there is none
    if models:
        require_any(rights, models)


def require_any(rights: Rights, models: Sequence[Model]) -> None:
    """Raise `Refused`, for the first of some models, where a key may use none of them."""
    if not any(rights.allows(model.name) for model in models):
        raise _model_refused(rights, models[0].name)


def require_name(rights: Rights, name: str) -> None:
    """Raise `Refused` for a model that a key may not use, by its name."""
    if not rights.allows(name):
        raise _model_refused(rights, name)


def _model_refused(rights: Rights, name: str) -> Refused:
    """Return the error for a model that a key may not use, by the record that says so."""
    record = next((record for record in rights.records if not record.allows(name)), rights.key)
    return Refused(model_refused(record, name))


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


def refusal_failure(refusal: Refusal, protocol: str) -> Failure:
    """Return the answer to a request that is refused, with the status that clients of the protocol know."""
    api = server_api(protocol)
    status = {**_STATUS, "budget": api.budget_status, "unavailable": api.overloaded_status}[refusal.kind]
    return Failure(status, refusal.message, refusal.code, refusal.retry_after, final=refusal.final)


def _tokens_of(reply: Reply, estimate: int) -> int:
    """Return the tokens of a request and its reply, estimated where the endpoint counts none. A 0 is no count."""
    usage = reply.usage
    if usage.total and not (usage.input and usage.output):
        return usage.total
    output = usage.output or (len(reply.text) + len(reply.reasoning)) // 4 + 1
    return max((usage.input or estimate) + output, usage.total or 0)
