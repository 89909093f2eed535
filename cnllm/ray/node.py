"""The node that this process runs on, for errors."""

from __future__ import annotations

import socket
from typing import TypeVar

from cnllm.errors import CnllmError

__all__ = ["node_error", "node_name"]

Error = TypeVar("Error", bound=CnllmError)


def node_error(error: Error) -> Error:
    """Return an error whose message names this node."""
    error.message = f"node {node_name()}: {error.message}"
    error.args = (error.message,)
    return error


def node_name() -> str:
    """Return the name of this node, with its address in the cluster."""
    import ray

    if not ray.is_initialized():
        return socket.gethostname()
    return f"{socket.gethostname()} ({ray.util.get_node_ip_address()})"
