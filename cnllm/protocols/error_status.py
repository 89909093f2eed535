"""Choose the HTTP status with which a server reports an error to its client."""

from __future__ import annotations

from cnllm import errors

__all__ = ["error_status"]

_BY_CLASS: tuple[tuple[type[Exception], int], ...] = (
    (errors.BadKey, 401),
    (errors.QuotaExceeded, 402),
    (errors.RateLimited, 429),
    (errors.Overloaded, 503),
    (errors.ContextTooLong, 400),
    (errors.ContentFiltered, 400),
    (errors.ReplayMissing, 400),
    (errors.BadRequest, 400),
    (errors.EndpointError, 502),
    (errors.Timeout, 504),
    (errors.TransportError, 502),
    (errors.StreamCut, 502),
    (errors.UnknownModel, 404),
    (errors.CannotSend, 400),
)


def error_status(error: Exception) -> int:
    """Return the status of an error: the endpoint's own, or the one for its class.

    An error inside a stream or a body comes with the status 200, and only its class shows what went wrong.
    """
    if isinstance(error, errors.EndpointError) and 400 <= error.status <= 599:
        return error.status
    return next((status for kind, status in _BY_CLASS if isinstance(error, kind)), 500)
