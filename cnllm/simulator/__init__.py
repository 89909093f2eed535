"""Endpoints that are not there: every model of the registry answers in the dialect of its own entry.

`SimTransport` and `AsyncSimTransport` take the place of a network; `server.running` is a real local server.
Requests are read with code of this package's own, so that a wrong engine is not hidden by agreement.
"""

from cnllm.simulator.check_request import ErrorResponse, check_request
from cnllm.simulator.transport import AsyncSimTransport, SimTransport

__all__ = ["AsyncSimTransport", "ErrorResponse", "SimTransport", "check_request"]
