"""Choose the HTTP status with which a server reports an error to its client, and write the body of OpenAI's APIs."""

from __future__ import annotations

from typing import Any

from cnllm.errors import (
    BadKey,
    BadRequest,
    CannotSend,
    ContentFiltered,
    ContextTooLong,
    EndpointError,
    Overloaded,
    QuotaExceeded,
    RateLimited,
    ReplayMissing,
    StreamCut,
    Timeout,
    TransportError,
    UnknownModel,
)

__all__ = ["error_status", "openai_error"]
_KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_BY_CLASS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], int], ...] = (
    (BadKey, 401),
    (QuotaExceeded, 402),
    (RateLimited, 429),
    (Overloaded, 503),
    ((ContextTooLong, ContentFiltered, ReplayMissing, BadRequest, CannotSend), 400),
    (Timeout, 504),
    ((EndpointError, TransportError, StreamCut), 502),
    (UnknownModel, 404),
)


def error_status(error: Exception) -> int:
    """Return the status of an error: the endpoint's own, or the one for its class.

    An error inside a stream or a body comes with the status 200, and only its class shows what went wrong.
    """
    if isinstance(error, EndpointError) and 400 <= error.status <= 599:
        return error.status
    return next((status for kind, status in _BY_CLASS if isinstance(error, kind)), 500)


def openai_error(status: int, message: str, code: str | None) -> dict[str, Any]:
    """Return the body of an error of OpenAI's APIs."""
    kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
