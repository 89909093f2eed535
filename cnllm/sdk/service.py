"""The settings that all requests of an SDK share, and one request from its path to the bytes of its answer.

Everything here is without I/O, except for the log; `sync_transport` and `async_transport` drive it.
"""

from __future__ import annotations

import functools
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.client.async_stream import AsyncStream
from cnllm.client.base import BaseClient
from cnllm.client.sync_stream import Stream
from cnllm.config.settings import call_settings
from cnllm.errors import CnllmError
from cnllm.gateway.endpoints import Endpoint, client_protocol, find_endpoint
from cnllm.gateway.exchange import DIVERGED, ClientRequest, Exchange, error_body, read_body
from cnllm.gateway.failures import Failure, RequestFailed, failure_headers, failure_of
from cnllm.gateway.model_names import ModelNames, names_of_models
from cnllm.gateway.resources import require_method, resource_body
from cnllm.gateway.state import Steps, continued_body, earlier_items, keep_reply, restored_request
from cnllm.gateway.store import StateStore, open_store
from cnllm.gateway.tokens import DefaultKeys, require_token_keys
from cnllm.types import Event, Note, Reply, Request
from cnllm.types.delivered import Diverged
from cnllm.types.policy import Timeouts

__all__ = ["FAILURES", "IDENTITY", "SdkAnswer", "SdkRequest", "SdkService", "SdkSettings", "process_store"]

IDENTITY = "sdk"
"""The owner of stored state: the program, which is the only client."""

FAILURES = (CnllmError, RequestFailed, Diverged)
"""The errors that become an answer."""

Headers = list[tuple[bytes, bytes]]

_log = logging.getLogger("cnllm.sdk")
_log.addHandler(logging.NullHandler())  # a program that configures no log gets none
_JSON = (b"content-type", b"application/json")
_EVENT_STREAM = (b"content-type", b"text/event-stream; charset=utf-8")
_LEAST_SECONDS = 0.001


@functools.cache
def process_store() -> StateStore:
    """Return the store that all clients of this process share."""
    return open_store(None)


class SdkAnswer(Struct, frozen=True):
    """A response."""

    status: int
    headers: Headers
    content: bytes = b""


class SdkSettings(Struct, frozen=True):
    """The arguments of `cnllm.sdk.http_client`. `options` are those of the client of cnllm."""

    family: str | None
    models: Mapping[str, str] | None
    store: Any
    token_keys: Any
    options: dict[str, Any]


class SdkService:
    """The parts that all requests of one client for SDKs share."""

    def __init__(self, client: BaseClient[Any], settings: SdkSettings) -> None:
        options = settings.options
        require_token_keys(settings.token_keys)
        own = {} if settings.models is None else names_of_models(settings.models)
        self.names = ModelNames(client.registry, {**client.registry.gateway_models, **own})
        self.keys = DefaultKeys() if settings.token_keys is None else settings.token_keys
        self.store = settings.store
        self.simulate = client.simulate
        self.offline = client.simulate or options.get("api_key") is not None
        timeouts, default_retry, _ = call_settings()
        timeout, retry = options.get("timeout"), options.get("retry")
        self.timeouts = timeouts if timeout is None else Timeouts.of(timeout)
        self.retries = (default_retry if retry is None else retry).attempts > 1


class SdkRequest:
    """One request of an SDK and the bytes of its answer. `timeouts` are those of the SDK in httpx's form."""

    exchange: Exchange

    def __init__(
        self,
        service: SdkService,
        method: str,
        path: str,
        headers: Mapping[str, str],
        timeouts: Mapping[str, Any] | None,
    ) -> None:
        self.id = f"req_{secrets.token_hex(12)}"
        self._service = service
        self._method = method
        self._path = path
        self._headers = headers
        self._timeouts = timeouts or {}
        self._protocol = client_protocol(headers)
        self._model: str | None = None
        self._begun = False
        self._call: Stream | AsyncStream | None = None
        self._logged = 0

    # ── the request ──────────────────────────────────────────────────────────

    def prepare(self, query: str, content: bytes) -> Steps[SdkAnswer | Request]:
        """Return the request of a reply, with what its client lost; or the answer that needs no reply.

        Raises `RequestFailed`.
        """
        endpoint, self._path = find_route(self._method, self._path, self._headers)
        self._protocol = endpoint.protocol
        require_method(endpoint, self._method)
        if endpoint.verb not in ("generate", "count"):
            return self._json((yield from resource_body(endpoint, self._service.names, query, IDENTITY)))
        notes: list[Note] = []
        data = read_body(content, notes)
        body = yield from continued_body(IDENTITY, self._protocol, data)
        self._open(body, data, count=endpoint.verb == "count")
        self.exchange.notes += notes
        if endpoint.verb == "count":
            return self._json(self.exchange.count_body())
        return (yield from restored_request(self.exchange, IDENTITY))

    def keep(self, reply: Reply) -> Steps[None]:
        """Store what the program may lose of a reply, before the reply is complete for it."""
        self._use_model()
        self.add_notes(self.exchange.reply_notes(reply))
        yield from keep_reply(self.exchange, reply, IDENTITY)

    def _open(self, body: dict[str, Any], data: dict[str, Any], *, count: bool) -> None:
        """Make the exchange of a body, which may be longer than the one that was sent. Raises `RequestFailed`.

        `count`: only its length is wanted.
        """
        service = self._service
        previous = data.get("previous_response_id") if body is not data else None
        earlier = earlier_items(body, data)
        request = ClientRequest(self._protocol, body, self._path, self._headers, IDENTITY, count, previous, earlier)
        self.exchange = Exchange(
            request, service.names, service.keys, offline=service.offline, simulate=service.simulate
        )
        self._model = self.exchange.model.name

    def options(self, request: Request) -> dict[str, Any]:
        """Return the options of the call. A timeout of the SDK replaces cnllm's."""
        connect, read = self._timeouts.get("connect"), self._timeouts.get("read")
        timeouts = self._service.timeouts
        if read is not None:
            timeouts = replace(Timeouts.of(max(read, _LEAST_SECONDS)), connect=timeouts.connect)
        if connect is not None:
            timeouts = replace(timeouts, connect=max(connect, _LEAST_SECONDS))
        options = request.options if timeouts is self._service.timeouts else {**request.options, "timeout": timeouts}
        fallback = self.exchange.fallback
        return options if fallback is None else {**options, "fallback": fallback}

    # ── the answer ───────────────────────────────────────────────────────────

    def _json(self, data: Any) -> SdkAnswer:
        """Return an answer in JSON."""
        return SdkAnswer(200, [_JSON, *self._own_headers()], msgspec.json.encode(data))

    def whole(self, reply: Reply) -> SdkAnswer:
        """Return the answer with a whole reply."""
        self._use_model()
        self._log_notes()
        return SdkAnswer(200, [_JSON, *self._own_headers()], self.exchange.whole(reply))

    def head(self) -> SdkAnswer:
        """Return the status and the headers of a stream."""
        return SdkAnswer(200, [_EVENT_STREAM, (b"cache-control", b"no-cache"), *self._own_headers()])

    def piece(self, events: Sequence[Event]) -> bytes:
        """Return the bytes of events, empty where they have none. Raises `Diverged`."""
        self._use_model()
        data = self.exchange.events(events)
        return self._after_begin(data) if data else data

    def last_piece(self, reply: Reply) -> bytes:
        """Return the last bytes of a stream."""
        data = self._after_begin(self.exchange.end(reply))
        self._log_notes()
        return data

    def _after_begin(self, data: bytes) -> bytes:
        """Return bytes, after those that begin the stream if these are the first."""
        if self._begun:
            return data
        self._begun = True
        self._log_notes()
        return self.exchange.begin() + data

    def last_failure(self, error: Exception) -> tuple[bytes, str] | None:
        """Return the last bytes of a stream that failed, and why. None where nothing of it went out."""
        if not self._begun:
            return None
        failure = self._failure(error)
        self._log_notes()
        return self.exchange.failed(failure), failure.message

    def failed(self, error: Exception) -> SdkAnswer:
        """Return the answer to an error of `FAILURES` before anything went out."""
        failure = self._failure(error)
        self._log_notes()
        is_final = self._service.retries or not failure.retryable  # cnllm has repeated what may succeed
        failure = replace(failure, retryable=False, final=is_final)
        headers: Headers = [_JSON, *failure_headers(failure), *self._own_headers()]
        return SdkAnswer(failure.status, headers, error_body(self._protocol, failure))

    def _failure(self, error: Exception) -> Failure:
        """Return the failure of an error, and log it."""
        if isinstance(error, RequestFailed):
            failure = error.failure
        elif isinstance(error, CnllmError) and self._model is not None:
            exchange = self.exchange
            failure = failure_of(
                error, self._protocol, model=exchange.model, tokens=exchange.tokens, body=exchange.body
            )
        elif isinstance(error, CnllmError):
            failure = failure_of(error, self._protocol)
        else:
            failure = DIVERGED
        _log.warning("%s %s: %s (%s)", self.id, self._model or self._path, failure.message, failure.code)
        return failure

    # ── notes ────────────────────────────────────────────────────────────────

    def take_call(self, call: Stream | AsyncStream) -> None:
        """Take the call that answers this request, and its notes."""
        self._call = call
        call.take_empty_turns()
        self.add_notes(call.plan.notes)

    def _use_model(self) -> None:
        """Take note of the model that answers, where there are several."""
        if self._call is not None and self._call.plan.model is not self.exchange.model:
            self.exchange.use_model(self._call.plan.model)
            self._model = self.exchange.model.name

    def add_notes(self, notes: list[Note]) -> None:
        """Add notes that are new."""
        known = self.exchange.notes
        known += [note for note in notes if note not in known]

    def _log_notes(self) -> None:
        """Write a line for each note that has none yet."""
        notes = [] if self._model is None else self.exchange.notes
        if _log.isEnabledFor(logging.INFO):
            for note in notes[self._logged :]:
                _log.info("%s %s: %s [%s]", self.id, self._model, note, note.code)
        self._logged = len(notes)

    def _own_headers(self) -> Headers:
        """Return the headers that name the request, its model and its notes."""
        id = self.id.encode()
        headers: Headers = [(b"x-request-id", id), (b"request-id", id)]
        if self._model is not None:
            headers.append((b"x-cnllm-model", self._model.encode("ascii", "replace")))
            if self._call is not None:
                protocol = self._call.plan.model.protocol
                headers.append((b"x-cnllm-upstream-protocol", protocol.encode("ascii", "replace")))
            notes = self.exchange.notes
            codes = ",".join(dict.fromkeys(note.code for note in notes))
            value = f"{len(notes)}; codes={codes}" if notes else "0"
            headers.append((b"x-cnllm-notes", value.encode("ascii", "replace")))
        return headers


# ── the endpoint of a request, behind any base URL ───────────────────────────

_SERVED = frozenset(("generate", "count", "models", "model", "response", "response-items"))
_SERVED |= {"delete-response", "cancel-response"}

# What stands below these names belongs to them: messages of a thread are no Messages.
_OTHERS = frozenset(
    ["threads", "completions", "conversations", "assistants", "evals", "containers", "files", "batches"]
)
_OTHERS |= frozenset(["fine_tuning", "vector_stores", "messages", "responses", "models", "sessions", "skills"])


def find_route(method: str, path: str, headers: Mapping[str, str]) -> tuple[Endpoint, str]:
    """Return the endpoint of a path, and the path without what a base URL puts before it. Raises `RequestFailed`."""
    names = path.strip("/").split("/")
    for start in range(len(names)):
        if start and names[start - 1] in _OTHERS:
            break
        rest = "/" + "/".join(names[start:])
        for candidate in (rest, f"/v1beta{rest}"):  # the version, if the base URL has another one
            endpoint = find_endpoint(method, candidate, headers)
            if endpoint is not None and endpoint.verb in _SERVED and not _is_other(endpoint, method):
                return endpoint, candidate
    message = (
        f"cnllm does not serve {method} {path}: it has chat completions, responses, messages, generateContent, token "
        "counts and lists of models; use a client without cnllm for anything else"
    )
    raise RequestFailed(Failure(404, message, "not_found"))


def _is_other(endpoint: Endpoint, method: str) -> bool:
    """Whether a request does something else with a model than to read it."""
    return endpoint.verb in ("model", "models") and method not in ("GET", "HEAD")
