"""Find the endpoint of an SDK's request, behind any base URL."""

from __future__ import annotations

from collections.abc import Mapping

from cnllm.gateway.endpoints import Endpoint, find_endpoint
from cnllm.gateway.failures import Failure, RequestFailed

__all__ = ["find_route"]

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
