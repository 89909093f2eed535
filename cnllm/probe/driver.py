"""Drive a probe: send its requests over a transport, wait where it says so, and read no more than it wants."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from cnllm.client.echo import insert_key, plan_secrets, redact_bytes, secret_bytes
from cnllm.config import redact
from cnllm.errors import CnllmError
from cnllm.probe.recording import Recording
from cnllm.probe.runner import Investigation, Outcome, Response, Send
from cnllm.types.policy import Timeouts

__all__ = ["drive"]

_MOST_BYTES = 4 * 1024 * 1024
_MOST_EVENTS = 64 * 1024
"""The most bytes of a stream where none was asked for."""
_TIMEOUTS = Timeouts(first_byte=120.0, idle=30.0, progress=60.0)
_LONGEST = 120.0
"""The seconds after which a reply that does not end is left."""


def drive(
    investigation: Investigation,
    transport: Any,
    api_key: str | None,
    recording: Recording | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> Outcome:
    """Run a probe to its end over a transport. Raises what the probe raises.

    Requests that the recording has answers to are not sent again; the others are appended to it.
    """
    if recording is not None:
        transport = recording.around(transport, () if api_key is None else (api_key,))
    response: Response | None = None
    while True:
        try:
            step = investigation.send(response)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        if isinstance(step, Send):
            known = None if recording is None else recording.take(insert_key(step.plan, api_key))
            response = known if known is not None else _send(step, transport, api_key)
        else:
            sleep(step.seconds)
            response = None


def _send(step: Send, transport: Any, api_key: str | None) -> Response:
    """Send one request and read the answer."""
    plan = replace(insert_key(step.plan, api_key), timeouts=_TIMEOUTS)
    try:
        status, headers, chunks = transport.send(plan)
    except CnllmError as error:
        return Response(error=error)
    content = bytearray()
    streams = "event-stream" in headers.get("content-type", "")
    most = step.most or (_MOST_EVENTS if streams and not step.plan.stream else _MOST_BYTES)
    end = time.monotonic() + _LONGEST
    abandoned = False
    try:
        for chunk in chunks:
            content += chunk
            if len(content) > most or time.monotonic() > end:
                abandoned = True
                break
    except CnllmError as error:
        if not content:
            return Response(error=error)
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            with contextlib.suppress(CnllmError):
                close()
    secrets = plan_secrets(plan, api_key)
    return Response(
        status,
        redact.redact_headers(dict(headers), secrets),
        redact_bytes(secret_bytes(secrets), bytes(content)),
        abandoned,
    )
