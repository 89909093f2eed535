"""Turn errors into answers that a client understands: status, code and words of the client's own protocol."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from cnllm.errors import (
    ADJUST,
    BadKey,
    BadRequest,
    CannotSend,
    CnllmError,
    ContentFiltered,
    ContextTooLong,
    EmptyReply,
    EndpointError,
    KeyMissing,
    NoTarget,
    Overloaded,
    QuotaExceeded,
    RateLimited,
    RegistryError,
    ReplayMissing,
    StreamCut,
    Timeout,
    TransportError,
    UnknownModel,
    Untrusted,
)
from cnllm.gateway.endpoint_addresses import EndpointAddresses, bases_of
from cnllm.protocols import server_api
from cnllm.registry.model import Model
from cnllm.types import Media, Note, Opaque, Part
from cnllm.types.media import media_noun

__all__ = [
    "POLICY_HEADER",
    "TAG_HEADER",
    "Failure",
    "RequestFailed",
    "drop_frames",
    "failure_headers",
    "failure_of",
    "operator_failure",
]

POLICY_HEADER = "x-cnllm-on-unsupported"
TAG_HEADER = "x-cnllm-tag"
"""The header of a request with the option `on_unsupported`."""
_NUMBER = re.compile(r"(?<![\w.])\d{4,9}(?![\w.])")


class Failure(Struct, frozen=True):
    """An answer to a request that failed. `retry_after` is in seconds.

    `retryable`: the request may succeed later. `final`: the same request will not succeed soon.
    """

    status: int
    message: str
    code: str | None = None
    retry_after: float | None = None
    allow: str | None = None
    retryable: bool = False
    final: bool = False


class RequestFailed(Exception):
    """A request cannot be served; `failure` is the answer."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


_CLASSES: tuple[tuple[type[CnllmError], int, str], ...] = (
    (UnknownModel, 404, "model_not_found"),
    (KeyMissing, 502, "provider_key_missing"),
    (Untrusted, 503, "provider_untrusted"),
    (CannotSend, 400, "unsupported_request"),
    (NoTarget, 400, "no_target"),
    (RegistryError, 500, "registry_error"),
    (BadKey, 502, "provider_key_refused"),
    (QuotaExceeded, 429, "insufficient_quota"),
    (RateLimited, 429, "rate_limit_exceeded"),
    (Overloaded, 503, "overloaded"),
    (ContentFiltered, 400, "content_filter"),
    (ReplayMissing, 400, "reasoning_missing"),
    (BadRequest, 400, "invalid_request"),
    (EmptyReply, 502, "empty_reply"),
    (EndpointError, 502, "provider_error"),
    (Timeout, 504, "provider_timeout"),
    (TransportError, 502, "provider_unreachable"),
    (StreamCut, 502, "reply_cut"),
)
"""Status and code by the class of an error; the first class that fits counts.

A key of ours that an endpoint refuses is no fault of the client's key, so it is not a 401: clients would ask their
user to log in.
"""


def drop_frames(error: BaseException) -> None:
    """Free the frames that an error and its causes went through, once it is answered. They hold the error in turn."""
    link: BaseException | None = error
    while link is not None and link.__traceback__ is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__


def failure_of(
    error: CnllmError,
    protocol: str,
    *,
    model: Model | None = None,
    models: Sequence[Model] = (),
    tokens: int = 0,
    body: Mapping[str, Any] | None = None,
) -> Failure:
    """Return the answer to an error of `model`, which was one of several `models` on a route.

    `tokens` is the estimated length of the request, for the words of an overflow. `body` is that of the client, for
    the place of what the model cannot read.
    """
    if isinstance(error, ContextTooLong):
        return _overflow(error, protocol, model, models or _one(model), tokens)
    if isinstance(error, CannotSend) and error.part is not None and body is not None:
        return Failure(400, _unreadable(error.part, error.note, body, model), "unsupported_media")
    source = error.__cause__ if needs_operator(error) else error  # of a route, too
    status, code = next(
        ((status, code) for kind, status, code in _CLASSES if isinstance(source, kind)), (500, "internal_error")
    )
    if isinstance(error, Overloaded):
        status = server_api(protocol).overloaded_status
    message = error.message
    if isinstance(error, EndpointError) and error.code and error.code not in message:
        message = f"{message} ({error.code})"
    is_other = isinstance(error, EndpointError | StreamCut)
    if error.hint and not is_other and source is error:  # such a hint is for Python, or for the operator
        message = f"{message}; {error.hint.replace(ADJUST, f'the header {POLICY_HEADER}: adjust')}"
    elif len(error.targets) > 1:
        message = f"{message} (all targets failed: {', '.join(name for name, _ in error.targets)})"
    message = _without_address(message, error, models or _one(model))
    is_final = source is not error or not error.meaning.again
    return Failure(status, message, code, error.retry_after, retryable=error.retryable, final=is_final)


def _unreadable(part: Part, note: Note, body: Mapping[str, Any], model: Model | None) -> str:
    """Return the sentence about a part of a message that the model cannot read, with its place in the body."""
    noun = media_noun(part) if isinstance(part, Media) else "file"
    name = "the model" if model is None else model.name
    place = _place(body, part) or "the newest message"
    return (
        f"{place}: {name} cannot take this {noun}: {note.did}. Ask a model that reads it, or send the header "
        f"{POLICY_HEADER}: adjust, and a line of text stands in its place"
    )


def _place(data: Any, part: Part, path: str = "") -> str | None:
    """Return the place of a part in the newest message of a body that has it, as `messages[2].content[1]`."""
    if isinstance(part, Opaque) and data == part.data:
        return path
    if isinstance(data, str) and isinstance(part, Media):
        value = part.data or part.url
        is_it = value is not None and (value in data or value in data.translate(_BASE64))
        return path[: path.rfind("]") + 1] if is_it else None
    if isinstance(data, list):
        places = (_place(item, part, f"{path}[{i}]") for i, item in reversed(list(enumerate(data))))
    elif isinstance(data, Mapping):
        places = (_place(item, part, f"{path}.{key}" if path else key) for key, item in data.items())
    else:
        return None
    return next((place for place in places if place is not None), None)


_BASE64 = str.maketrans("-_", "+/")


def needs_operator(error: CnllmError) -> bool:
    """Whether no target of a route could be asked because of the gateway's keys."""
    return isinstance(error, NoTarget) and isinstance(error.__cause__, KeyMissing | Untrusted)


def operator_failure(error: Untrusted | KeyMissing, model: Model | None) -> Failure:
    """Return the answer where the operator has to do something. It does not name the file that is not trusted."""
    name = "this model" if model is None else model.name
    if isinstance(error, Untrusted):
        message = f"the gateway may not send the key of {name}: its operator has to confirm the address in its files"
        return Failure(503, message, "provider_untrusted", final=True)
    message = f"the gateway has no key for the endpoint of {name}: its operator has to set one"
    return Failure(502, message, "provider_key_missing", final=True)


def _one(model: Model | None) -> Sequence[Model]:
    """Return a model as a list."""
    return () if model is None else (model,)


def _without_address(message: str, error: CnllmError, models: Sequence[Model]) -> str:
    """Return a message without the addresses of the endpoints.

    What cnllm itself says of the network, or of a redirect, names no address at all: there may be proxies on the way.
    """
    is_own = not isinstance(error, EndpointError) or 300 <= error.status < 400
    return EndpointAddresses(bases_of(models)).hide(message, network=is_own)


def failure_headers(failure: Failure) -> list[tuple[bytes, bytes]]:
    """Return the headers that say what a client may do next."""
    headers: list[tuple[bytes, bytes]] = []
    if failure.retry_after is not None:
        headers.append((b"retry-after", str(max(0, math.ceil(failure.retry_after))).encode()))
    if failure.allow is not None:
        headers.append((b"allow", failure.allow.encode()))
    # cnllm has retried what can be: a client that retries, too, would multiply the requests.
    if failure.retryable or failure.final:
        headers.append((b"x-should-retry", b"false"))
    return headers


def _overflow(
    error: ContextTooLong, protocol: str, model: Model | None, models: Sequence[Model], tokens: int
) -> Failure:
    """Return the answer to a conversation that is too long, in the words by which clients know that they must compact.

    The endpoint's own numbers count; where it gives none, the registry's limit and an estimate do.
    """
    numbers = sorted({int(number) for number in _NUMBER.findall(error.message.replace(",", ""))})
    limit = (model.flags.limits.most_input if model is not None else None) or 0
    if len(numbers) > 1:
        limit, tokens = numbers[0], numbers[-1]
    elif numbers and not limit:
        limit = numbers[0]
    tokens = max(tokens, limit + 1)
    api = server_api(protocol)
    message = api.overflow_message.format(tokens=tokens, limit=limit or tokens - 1)
    reason = _without_address(error.message, error, models)
    return Failure(400, f"{message} The endpoint said: {reason}", api.overflow_code)
