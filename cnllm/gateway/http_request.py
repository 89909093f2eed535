"""Answer one HTTP request of a client: read it, call the model, and send its reply or a failure."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from msgspec.structs import replace

from cnllm.client.async_stream import AsyncStream
from cnllm.errors import CnllmError, ContextTooLong, KeyMissing, Untrusted
from cnllm.estimates.worst_case import WorstCase
from cnllm.gateway.access import sent_keys
from cnllm.gateway.access_log import entry_fields, hide_keys, logged_call
from cnllm.gateway.admission import Admitted, Caller, refusal_failure, require_any, require_model, soft_budget_header
from cnllm.gateway.bounds import check_head, check_name
from cnllm.gateway.conversations import SentPrefix
from cnllm.gateway.endpoints import ROUTES, Endpoint, Route, find_endpoint, path_protocol, plain_path, short_path
from cnllm.gateway.exchange import DIVERGED, ClientRequest, Exchange, is_long
from cnllm.gateway.failures import Failure, RequestFailed, drop_frames, failure_of, needs_operator, operator_failure
from cnllm.gateway.http_response import JSON, HttpResponse, JsonArray
from cnllm.gateway.limits.key_worker import Flight
from cnllm.gateway.limits.refusal import Refused
from cnllm.gateway.monitoring.entry import Entry
from cnllm.gateway.monitoring.monitor import RequestMonitor
from cnllm.gateway.operator_pages import OperatorRequest, operator_page
from cnllm.gateway.request_body import ClientGone, RequestBody, busy_failure, in_thread
from cnllm.gateway.resources import require_method, resource_body
from cnllm.gateway.service import Receive, Scope, Send, Service, header_values
from cnllm.gateway.state import continued_body, earlier_items, keep_reply, restored_request
from cnllm.protocols import server_api
from cnllm.protocols.event_order import reply_events
from cnllm.registry.model import Model
from cnllm.store.prefix import Fingerprint, content_fingerprint
from cnllm.store.records import PrefixRecord
from cnllm.types import Reply, Request
from cnllm.types.delivered import Diverged
from cnllm.types.message_memory import MessageMemory

__all__ = ["HttpRequest"]

_WATCH_SECONDS = 0.05  # a request that is answered sooner needs no task that watches its client
_OTHER_ORIGIN = "a page of another origin asks for one of the operator: --public-url names this gateway's address"
_FAILED = "the gateway failed; its log has the reason under {}"
_STOPPED = "the gateway was stopped before the reply was complete"
_LONGEST_PAUSE = 0.5  # seconds that a refusal waits for its turn
_UNKNOWN = Route(())  # a path where nothing is: a client needs its key to learn that


class HttpRequest:
    """One HTTP request and its response."""

    def __init__(self, service: Service, scope: Scope, receive: Receive, send: Send) -> None:
        self._service = service
        self._scope = scope
        self._receive = receive
        self._headers = header_values(scope["headers"])
        root: str = scope.get("root_path", "")
        path: str = scope["path"]
        self._path = plain_path(path[len(root) :] or "/" if root and path.startswith(root) else path)
        self._query = scope.get("query_string", b"").decode("latin-1")
        self._keys = sent_keys(self._headers, self._query)
        self._method: str = scope["method"]
        self._id = f"req_{os.urandom(12).hex()}"
        self._loop = asyncio.get_running_loop()
        self._gone = False
        self._task = asyncio.current_task()
        self._entry = Entry(self._id, self._method, short_path(self._path))
        self._caller = Caller("")  # nobody
        self._models: list[Model] = []  # that may answer
        self._client = service.clients.of(scope)
        self._body = RequestBody(service, self._headers, receive, self._client)
        self._response = HttpResponse(send, self._entry, self._headers, self._body)
        self._is_counted = False  # among the requests in flight
        self._call: AsyncStream | None = None  # that was sent to the endpoint
        self._flights: list[Flight] = []  # the same, by the limits of its key and its team
        self._clock = time.monotonic()
        self._conversation: SentPrefix | None = None
        self._prefix: PrefixRecord | None = None
        self._memory: MessageMemory | None = None  # of a long conversation

    async def serve(self) -> None:
        """Answer the request. Whatever fails, the client gets an answer in its own protocol."""
        service = self._service
        self._request_monitor = RequestMonitor(service.monitor, self._entry, self._headers)
        try:
            await self._answer()
        except (RequestFailed, Refused) as error:
            drop_frames(error)
            await self._refuse(self._failure_in(error))
        except CnllmError as error:
            drop_frames(error)
            await self._response.fail(self._failure_of(error))
        except asyncio.CancelledError:
            if not self._gone:
                status = server_api(self._body.protocol).overloaded_status
                await self._response.break_off(Failure(status, _STOPPED, retry_after=1.0))
            self._entry.outcome = "the client has gone" if self._gone else "the server stopped"
            if not self._gone and not self._response.is_complete:
                raise
            if self._gone and (task := asyncio.current_task()) is not None:
                task.uncancel()
        except ClientGone:
            self._entry.outcome = "the client has gone"
        except Exception as error:
            service.log.crash(self._id, error)
            if self._response.is_started:
                raise
            crashed = Failure(500, _FAILED.format(self._id), "internal")
            await self._response.fail(crashed)
        finally:
            if self._is_counted:
                service.requests.give(self._client)
            for flight in self._flights:
                flight.release()
            try:
                await self._write_down()
            finally:
                self._body.release()

    async def _write_down(self) -> None:
        """Count the request, and keep what the logs and the operator's page show of it."""
        service = self._service
        self._entry.time = time.time()
        self._entry.seconds = time.monotonic() - self._clock
        if self._conversation is not None and (self._call is None or not self._call.is_charged):
            self._entry.charged = False
        hide_keys(self._entry, self._keys)
        keep = self._request_monitor.end(self._keys, entry_fields, is_kept=bool(self._caller.identity))
        service.log.write(self._entry, self._identity, self._models)
        if service.calls is not None and self._conversation is not None:
            conversation, prefix, price = self._conversation.id, self._prefix, self._request_monitor.price
            service.calls.add(
                partial(logged_call, self._entry, conversation, prefix, price, is_simulated=service.simulate)
            )
        if keep is not None:
            await self._body.run(keep)

    @property
    def _identity(self) -> str:
        """Return the identity whose state the client has; empty for nobody."""
        return (self._service.identity or self._caller.identity) if self._caller.identity else ""

    async def _answer(self) -> None:
        """Answer the request. Raises `RequestFailed`."""
        endpoint = find_endpoint(self._method, self._path, self._headers)
        if endpoint is None:
            self._body.protocol = path_protocol(self._path, self._headers)
        else:
            self._body.protocol = endpoint.protocol
            self._entry.verb, self._entry.protocol = endpoint.verb, endpoint.protocol
        check_head(self._scope["headers"], self._headers, self._query)
        if endpoint is not None and endpoint.verb == "ui" and self._service.monitor.recent is None:
            endpoint = None
        route = _UNKNOWN if endpoint is None else ROUTES[endpoint.verb]
        await self._let_in(route, endpoint)
        if endpoint is None:
            raise RequestFailed(Failure(404, f"there is nothing at {short_path(self._path)}", "not_found"))
        if route.scope == "anyone":
            await self._response.send_json({"status": "ok"})
        elif route.scope == "operator":
            await self._answer_operator(endpoint)
        else:
            await self._answer_endpoint(endpoint)

    async def _let_in(self, route: Route, endpoint: Endpoint | None) -> None:
        """Decide on the identity, the scope and the limits of a request. Raises `RequestFailed`.

        Every request goes through here. What its path names is looked up by the identity that it gets. The model in a
        body is checked once the body is read.
        """
        if route.scope == "anyone":
            return
        service = self._service
        if status := service.requests.refusal(self._client):
            raise RequestFailed(busy_failure(status, self._body.protocol, "requests"))
        service.requests.take(self._client)
        self._is_counted = True
        if not service.access.allows_host(self._headers):
            raise RequestFailed(Failure(421, "this gateway does not serve the host of this request", "host"))
        if not service.access.allows_origin(self._headers):
            raise RequestFailed(Failure(403, "this gateway does not serve pages of this origin", "origin"))
        if route.scope == "operator":
            if not service.access.allows_operator_origin(self._headers):
                raise RequestFailed(Failure(403, _OTHER_ORIGIN, "origin"))
            return  # `operator_page` checks the operator's key or cookie
        caller = await service.admission.caller(service.access, self._keys, self._client)
        if caller is None:
            raise RequestFailed(
                Failure(401, "the key of this request is missing or wrong: send the gateway's key", "invalid_api_key")
            )
        self._caller = caller
        if caller.rights is not None:
            self._entry.key = caller.rights.key.name
            self._entry.team = caller.rights.key.team or ""
        if endpoint is None:
            return
        require_method(endpoint, self._method)
        if endpoint.name:
            check_name("model" if route.named == "model" else "id", endpoint.name, "the path")
        if route.is_counted and caller.rights is not None:
            self._flights = await service.admission.limiter.admit(caller.identity, caller.rights)
        if route.named == "model":
            self._require_model(endpoint.name)

    def _require_model(self, name: str) -> None:
        """Raise `Refused` for a model that the key may not use. `name` is the client's, unknown ones pass."""
        if (rights := self._caller.rights) is not None:
            require_model(rights, self._service.names, name)

    async def _answer_operator(self, endpoint: Endpoint) -> None:
        """Answer a request of the operator. Raises `RequestFailed`."""
        request = OperatorRequest(
            endpoint,
            self._method,
            self._headers,
            self._keys,
            self._client,
            self._scope.get("scheme") == "https",
            self._body.content,
        )
        page = await operator_page(self._service, request)
        await self._response.send(page.status, page.content, page.headers)

    async def _answer_endpoint(self, endpoint: Endpoint) -> None:
        """Answer a request of a known client that was let in. Raises `RequestFailed`."""
        service, identity = self._service, self._identity
        match endpoint.verb:
            case "generate":
                await self._generate(identity)
            case "count":
                exchange = await self._read_exchange(count=True)
                await self._response.send_json(await self._body.run(exchange.count_body))
            case "request":
                await self._response.send_json(service.log.request(identity, endpoint.name))
            case _:
                steps = resource_body(endpoint, service.names, self._query, identity, self._caller.rights)
                await self._response.send_json(await service.state.run(steps, partial(in_thread, service.threads)))

    # ── reading ──────────────────────────────────────────────────────────────

    async def _read_exchange(self, *, count: bool = False) -> Exchange:
        """Return the exchange of the request's body. Raises `RequestFailed`, also for a model the key may not use."""
        service, identity = self._service, self._identity
        body, protocol, memories = self._body, self._body.protocol, service.memories
        self._request_monitor.sent = data = await body.json(lambda: memories.of(identity))
        self._caller = await service.admission.caller_now(self._caller)
        whole = await service.state.run(continued_body(identity, protocol, data), body.run)
        self._memory = memories.of(identity) if is_long(protocol, whole) else None

        def read() -> Exchange:
            """Return the exchange of the body with what it continues. One that asks for a reply begins its entry."""
            previous = data.get("previous_response_id") if whole is not data else None
            earlier = earlier_items(whole, data)
            request = ClientRequest(
                protocol, whole, self._path, self._headers, identity, count, previous, earlier, self._memory
            )
            is_simulated, rights = service.simulate, self._caller.rights
            usable = None if rights is None else partial(service.admission.usable, rights)
            exchange = Exchange(
                request, service.names, service.keys, offline=is_simulated, simulate=is_simulated, usable=usable
            )
            exchange.notes += body.notes
            self._models = exchange.models
            if rights is not None:
                require_any(rights, self._models)
            if not count:
                self._entry.tag = exchange.tag
                self._request_monitor.begin(
                    exchange.model,
                    exchange.request,
                    is_routed=exchange.fallback is not None,
                    is_stream=exchange.stream,
                )
            return exchange

        return await body.run(read)

    # ── generating ───────────────────────────────────────────────────────────

    async def _generate(self, identity: str) -> None:
        """Answer with a reply of a model."""
        exchange = await self._read_exchange()
        request = await self._service.state.run(restored_request(exchange, identity), self._body.run)
        self._watching: asyncio.TimerHandle | asyncio.Task[None] | None
        self._watching = self._loop.call_later(_WATCH_SECONDS, self._begin_watch)
        try:
            if exchange.stream:
                await self._stream(exchange, request, identity)
                return
            try:
                reply = await self._whole_reply(exchange, request)
            except CnllmError as error:
                drop_frames(error)
                await self._response.fail(await self._failure(exchange, error))
                return
            if exchange.lacks_counts(reply):
                await self._body.run(lambda: exchange.tokens)
            self._note(exchange, reply)
            content = exchange.whole(reply)
            # before the reply is complete for its client, which may lose some of it
            await self._service.state.run(keep_reply(exchange, reply, identity), self._body.run)
            await self._response.send(200, content, [JSON])
        finally:
            self._watching.cancel()
            self._watching = None  # a task that was cancelled holds this request: it would hold itself

    def _begin_watch(self) -> None:
        """Begin to watch whether the client is still there."""
        self._watching = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        """Cancel the request when the client has gone, and with it the call of the model."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        """Give the request up: nobody waits for the rest of its answer."""
        self._gone = True
        if self._task is not None:
            self._task.cancel()

    async def _prepare(
        self, exchange: Exchange, request: Request, *, stream: bool
    ) -> tuple[AsyncStream, AbstractAsyncContextManager[Admitted]]:
        """Return the call of the model, not sent yet, and a context in which the limits of the key let it be sent.

        Raises `RequestFailed` for options of a wrong type or value.
        """
        service, caller = self._service, self._caller
        options, notes = service.admission.options(caller, exchange.model, request.options)
        exchange.notes += notes
        if exchange.fallback is not None:
            route = service.admission.route(caller, exchange.model, exchange.fallback)
            if route[0] is not exchange.model:
                exchange.use_model(route[0])
            options = {**options, "fallback": route[1]}
        client = service.client()
        if self._memory is not None:
            client = client.with_memory(self._memory)

        def prepare() -> tuple[AsyncStream, Fingerprint, WorstCase | None]:
            """Return the call, the parts of its request, and what it may use where the key has limits."""
            rights = caller.rights
            try:
                call = client.prepare(exchange.model, request.messages, stream=stream, **options)
                if exchange.estimates_input or (rights is not None and any(record.tpm for record in rights.records)):
                    _ = exchange.tokens  # counted here, where it may take its time
            except (TypeError, ValueError) as error:
                raise RequestFailed(Failure(400, str(error), "invalid_request")) from error
            worst = None if rights is None else service.admission.worst_case(rights, call.plan)
            return call, content_fingerprint(call.plan.content, self._memory), worst

        call, parts, worst = await self._body.run(prepare)
        plan = call.plan
        self._request_monitor.ask(plan)
        self._conversation, self._prefix, note = service.conversations.follow(self._identity, plan, parts)
        if note is not None:  # the endpoint's cache cannot serve the beginning of the conversation
            exchange.notes.append(note)
        exchange.notes += [note for note in plan.notes if note not in exchange.notes]
        return call, service.admission.reservation(caller, plan, worst, lambda: exchange.tokens)

    async def _whole_reply(self, exchange: Exchange, request: Request) -> Reply:
        """Return the reply of the model when it is whole."""
        call, limits = await self._prepare(exchange, request, stream=False)
        async with limits as admitted, call:
            self._begin_call(admitted, call)
            reply = admitted.reply = await call.complete()
            if exchange.fallback is not None:
                self._use_model(exchange, call)
            return reply

    def _begin_call(self, admitted: Admitted, call: AsyncStream) -> None:
        """Take note that the request is sent now, and of soft budgets that are spent."""
        self._call = call
        call.take_empty_turns()
        admitted.is_charged = lambda: call.is_charged
        if admitted.reserve_more is not None:
            call.ask_before_repeats(admitted.reserve_more)
        if warnings := admitted.soft_budgets:
            self._entry.soft_budget = soft_budget_header(warnings)
            self._entry.soft_budgets = [(w.record.kind, w.record.name, w.currency) for w in warnings]

    def _use_model(self, exchange: Exchange, call: AsyncStream) -> None:
        """Enter the model of a route that answers, and why it does: the head of a stream counts these notes, too."""
        plan = call.plan
        exchange.use_model(plan.model)
        if self._request_monitor.use(plan):
            exchange.notes += [note for note in plan.notes if note not in exchange.notes]

    async def _stream(self, exchange: Exchange, request: Request, identity: str) -> None:
        """Call the model and send its reply as it arrives."""
        response, service = self._response, self._service
        events_query = server_api(self._body.protocol).events_query
        if events_query is not None and events_query not in parse_qsl(self._query):
            response.array = JsonArray()
        response.watch_silence(exchange, service.ping, service.bounds.write_seconds, self._leave)
        try:
            if exchange.needs_whole_reply:
                reply = await self._whole_reply(exchange, request)
                await response.write(exchange, exchange.events([*reply_events(reply)]))
            else:
                reply = await self._send_events(exchange, request)
            self._note(exchange, reply)
            if (failure := exchange.reply_failure(reply)) is not None:
                raise RequestFailed(failure)
            await service.state.run(keep_reply(exchange, reply, identity), self._body.run)
            await response.write(exchange, exchange.end(reply), more=False)
        except (RequestFailed, Refused) as error:
            drop_frames(error)
            await response.fail(self._failure_in(error), exchange)
        except CnllmError as error:
            drop_frames(error)
            await response.fail(await self._failure(exchange, error), exchange)
        except Diverged:
            await response.fail(DIVERGED, exchange)
        finally:
            response.end_watch()

    async def _send_events(self, exchange: Exchange, request: Request) -> Reply:
        """Send the events of a call as they arrive, and return its reply."""
        stream, limits = await self._prepare(exchange, request, stream=True)
        try:
            async with limits as admitted, stream:
                self._begin_call(admitted, stream)
                async for events in stream.batches():
                    if exchange.fallback is not None:
                        self._use_model(exchange, stream)
                    data = exchange.events(events)
                    if not data:
                        continue
                    if self._entry.first is None:
                        self._entry.first = time.monotonic() - self._clock
                    await self._response.write(exchange, data)
                reply: Reply = stream.reply
                admitted.reply = reply
        except (asyncio.CancelledError, ClientGone):  # the endpoint charges what had arrived before the client left
            if (left := await stream.stop()) is not None:
                self._request_monitor.leave(left)
            raise
        return reply

    async def _failure(self, exchange: Exchange, error: CnllmError) -> Failure:
        """Return the answer to an error of a call."""
        self._entry.error = type(error).__name__
        if error.reply is not None:
            self._note(exchange, error.reply, is_sent=exchange.stream)
        else:
            self._entry.cost, self._entry.notes = error.cost, exchange.notes
        self._entry.charged = error.meaning.charged
        tokens = 0
        if isinstance(error, ContextTooLong):
            tokens = await self._body.run(lambda: exchange.tokens)
        return self._failure_of(error, exchange.model, tokens, exchange.body)

    def _failure_of(self, error: CnllmError, model: Model | None = None, tokens: int = 0, body: Any = None) -> Failure:
        """Return the answer to an error. What is wrong in the operator's files is in the log."""
        if isinstance(error, Untrusted | KeyMissing):
            self._service.log.warn(self._id, error)
            return operator_failure(error, model)
        failure = failure_of(error, self._body.protocol, model=model, models=self._models, tokens=tokens, body=body)
        is_internal = failure.status == 500  # its words are for the operator, and name files
        if is_internal or needs_operator(error):
            self._service.log.warn(self._id, error)
        return replace(failure, message=_FAILED.format(self._id)) if is_internal else failure

    def _note(self, exchange: Exchange, reply: Reply, *, is_sent: bool = True) -> None:
        """Write down the notes and the usage of a reply; without `is_sent` the client gets an error and none of it."""
        notes = exchange.reply_notes(reply) if is_sent else reply.notes
        exchange.notes += [note for note in notes if note not in exchange.notes]
        self._request_monitor.reply(reply, exchange.notes)
        if self._conversation is not None and reply.usage.input is not None:
            self._conversation.tokens = reply.usage.input

    def _failure_in(self, error: RequestFailed | Refused) -> Failure:
        """Return the answer of an error that is one."""
        if isinstance(error, Refused):
            return refusal_failure(error.refusal, self._body.protocol)
        return error.failure

    async def _refuse(self, failure: Failure) -> None:
        """Answer with a failure. Those of one address that are answered early come at a pace."""
        if failure.status in (401, 429):
            wait = self._service.pace.wait(self._client)
            self._service.pace.add(self._client)
            if wait:
                await asyncio.sleep(min(wait, _LONGEST_PAUSE))
        await self._response.fail(failure)
