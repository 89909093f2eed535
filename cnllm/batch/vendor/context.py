"""Hold what the parts of a run at a vendor share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from cnllm.batch.comparison import Bits, InputComparison
from cnllm.batch.jobs import JobMaker
from cnllm.batch.output import Output
from cnllm.batch.pricing import RequestPrice
from cnllm.batch.report import Tally
from cnllm.batch.rows import Reader
from cnllm.batch.runner import RunParts
from cnllm.batch.state import BatchState
from cnllm.batch.vendor.exchange import VendorConnection
from cnllm.batch.vendor.parts import VendorParts
from cnllm.registry import Registry

if TYPE_CHECKING:
    from cnllm.client.call_record import CallRecorder

__all__ = ["SessionParts", "VendorContext"]


class SessionParts(RunParts, Protocol):
    """The parts of a session that a run at a vendor uses."""

    registry: Registry
    reader: Reader
    state: BatchState
    output: Output
    parts: VendorParts
    comparison: InputComparison
    recorder: CallRecorder | None


class VendorContext(Struct, frozen=True):
    """The session, the connection, and the rows in work.

    `leftover` gets the lines that are to be asked one by one; `retake` gets those of them that the state knows, because
    they were in a job.
    """

    session: SessionParts
    exchange: VendorConnection
    jobs: JobMaker
    price: RequestPrice
    tally: Tally
    leftover: Bits
    retake: Bits
    stopping: asyncio.Event
