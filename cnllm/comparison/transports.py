"""Send the requests of a comparison: on new connections, or to a faithful host without a network.

No host is judged by a connection that it had closed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from cnllm.comparison.tasks import ComparisonTask
from cnllm.engine import Plan
from cnllm.errors import CnllmError
from cnllm.registry import Registry
from cnllm.simulator import SimTransport
from cnllm.simulator.reply import SimulatedReply
from cnllm.simulator.request import ParsedRequest, RequestCall
from cnllm.simulator.respond import Change
from cnllm.transports import default_transport

__all__ = ["NewConnections", "right_replies", "simulated_transport"]


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


def simulated_transport(
    registry: Registry, tasks: Sequence[ComparisonTask], change: Change | None = None
) -> SimTransport:
    """Return a transport that answers each task rightly. `change` makes another reply of each right one."""
    answer = right_replies(tasks)

    def both(request: ParsedRequest, reply: SimulatedReply) -> SimulatedReply:
        reply = answer(request, reply)
        return reply if change is None else change(request, reply)

    return SimTransport(registry, change=both)


def right_replies(tasks: Sequence[ComparisonTask]) -> Change:
    """Return a function that gives the right reply to each request of these tasks; another request keeps its own."""
    by_prompt = {task.prompt: task for task in tasks}

    def change(request: ParsedRequest, reply: SimulatedReply) -> SimulatedReply:
        task = by_prompt.get(request.prompt)
        if task is None:
            task = next((task for prompt, task in by_prompt.items() if prompt in request.prompt), None)
        if task is None:
            return reply
        number = sum(turn.role == "assistant" for turn in request.turns)
        step = task.steps[min(number, len(task.steps) - 1)]
        if task.cut:
            return replace(reply, text="1, 2, 3, 4, 5, 6,", calls=(), finish="length")
        calls = tuple(
            RequestCall(f"call_{number}_{place}", name, json.dumps(arguments, ensure_ascii=False))
            for place, (name, arguments) in enumerate(step.calls)
        )
        text = "" if calls else step.exactly or " ".join(step.words)
        return replace(reply, text=text, calls=calls, finish="tool_calls" if calls else "stop", reasoning_complete=True)

    return change
