"""Describe what went wrong with an MCP server, in words for people and models."""

from __future__ import annotations

from collections.abc import Iterable

from cnllm.config import redact

__all__ = ["leaf_error", "reason_of"]

_MAX_REASON = 1000  # characters


def leaf_error(error: BaseException) -> BaseException:
    """Return the first error in a group of errors, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def reason_of(error: BaseException | None, secrets: Iterable[str]) -> str:
    """Return the reason of a failure, without secrets."""
    text = redact.redact(_reason(error), secrets)
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"


def _reason(error: BaseException | None) -> str:
    if error is None:
        return "it ended"
    if isinstance(error, FileNotFoundError):
        return f"there is no {error.filename or 'such program'}"
    if isinstance(error, PermissionError):
        return f"{error.filename or 'the program'} may not be run"
    if isinstance(error, TimeoutError | ConnectionError) and error.args and isinstance(error.args[0], str):
        return error.args[0]
    code = getattr(error, "code", None)
    message = getattr(error, "message", None)
    if type(code) is int and isinstance(message, str):  # an error that the server, or the transport for it, returned
        from mcp_types import CONNECTION_CLOSED

        return "it has ended, or closed the connection" if code == CONNECTION_CLOSED else message
    if type(error).__name__ == "ValidationError":  # its text shows what the server sent
        return "its answer has another form than the protocol's"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
