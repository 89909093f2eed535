"""Simulate endpoints: every model of the registry answers in the dialect of its own entry.

`SimTransport` and `AsyncSimTransport` replace the network; `server.running` is a real local server. The simulator
parses requests with its own code, so that an error of the engine is not hidden by the same error here.
"""

from cnllm.simulator.check_request import ErrorResponse, check_request
from cnllm.simulator.transport import AsyncSimTransport, SimTransport

__all__ = ["AsyncSimTransport", "ErrorResponse", "SimTransport", "check_request"]
