"""Open a connection for each request of a comparison, so that no host is judged by a connection that it had closed."""

from __future__ import annotations

import contextlib
from typing import Any

from cnllm.engine import Plan
from cnllm.errors import CnllmError
from cnllm.transports import default_transport

__all__ = ["NewConnections"]


class NewConnections:
    """A transport that sends each request on a connection of its own, which `warm` opens before.

    Servers close connections that wait. A request that is sent at that moment may have been processed or not, so
    that it could neither be sent again nor count as answered. On a new connection this does not happen.
    """

    def __init__(self) -> None:
        self._transport: Any = None

    def warm(self, plan: Plan) -> None:
        """Open the connection of the next request. Where this fails, nothing was sent: `send` tries once more."""
        self.close()
        self._transport = default_transport()
        if (warm := getattr(self._transport, "warm", None)) is not None:
            with contextlib.suppress(CnllmError):
                warm(plan)

    def send(self, plan: Plan) -> Any:
        """Send a plan; see `cnllm.transports`."""
        if self._transport is None:
            self.warm(plan)
        return self._transport.send(plan)

    def close(self) -> None:
        """Close the last connection."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
