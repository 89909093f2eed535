"""Send requests to a batch interface, again where that does no harm, and read the answers.

`VendorContext` holds what the parts of a run at a vendor share.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import mmap
import os
import random
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.batch.comparison import Bits, InputComparison
from cnllm.batch.jobs import JobMaker
from cnllm.batch.output import Output
from cnllm.batch.report import Tally
from cnllm.batch.rows import Reader
from cnllm.batch.runner import RunParts
from cnllm.batch.state import BatchState
from cnllm.batch.vendor.codec import VendorJob, decode_long, poll_plan, read_job
from cnllm.batch.vendor.parts import VendorParts
from cnllm.client.call_record import CallRecorder
from cnllm.client.secret_removal import insert_key, plan_secrets, redact_body, redact_error
from cnllm.engine.decode.parser import parse_response
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError, EndpointError, TransportError
from cnllm.registry import Registry
from cnllm.registry.flags.batch import Batch
from cnllm.types.policy import Timeouts

__all__ = [
    "Interrupted",
    "SessionParts",
    "UnreadableAnswer",
    "VendorConnection",
    "VendorContext",
    "delay_of",
    "disk_error",
    "failure_reason",
]

_TIMEOUTS = Timeouts(first_byte=600.0, idle=120.0)  # a vendor checks a file of hundreds of megabytes before it answers
_ATTEMPTS = 6
_LONGEST_DELAY = 60.0
_MOST_BYTES = 64 * 1024 * 1024  # of an answer that is kept in memory
_BLOCK = 1 << 16


class Interrupted(Exception):
    """The user stopped the run while it waited."""


class UnreadableAnswer(CnllmError):
    """An answer of a batch interface is not as the registry describes it."""


class VendorConnection(Struct, eq=False):
    """The connection to one interface with one key.

    `probe` is any request to the endpoint. `out` is the output: what is fetched is kept beside it while it is read.
    `sleep(seconds, reason)` waits, and raises where the run is stopped. `requests` counts what was sent, `secrets` are
    those of the last one.
    """

    batch: Batch
    probe: Plan
    transport: Any
    key: str | None
    out: Path
    sleep: Callable[[float, str], Awaitable[object]]
    requests: int = 0
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:  # without the key
        return f"<VendorConnection to {self.probe.model.name}>"

    async def repeat(self, plan: Plan) -> Any:
        """Return the answer to a request that may be sent twice. Raises the error of the last attempt.

        It is kept in a file: the results in it may be larger than the memory. They still hold what `redact` removes.
        """
        try:
            with tempfile.TemporaryFile(dir=self.out.parent) as file:
                await self.download(plan, file)
                is_empty = not file.seek(0, os.SEEK_END)
                content = b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise disk_error(self.out, error) from error
        return decode_answer(plan, content, self.redact)

    async def send(self, plan: Plan) -> Any:
        """Return the answer to a request that must not be sent twice. Raises the error of the only attempt."""
        return decode_answer(plan, await self._send(plan))

    async def download(self, plan: Plan, file: BinaryIO) -> None:
        """Write the body of an answer to a file, from its start. Raises the error of the last attempt.

        The file may hold secrets that the endpoint echoed: `redact` its pieces.
        """
        for tries in itertools.count(1):
            try:
                await self._send(plan, file)
                return
            except (TransportError, EndpointError) as error:
                if not error.meaning.again or tries >= _ATTEMPTS:
                    raise
                await self.sleep(delay_of(error, tries), failure_reason(error))

    async def _send(self, plan: Plan, file: BinaryIO | None = None) -> bytes:
        """Return the body of an answer, or write it to a file. Raises `EndpointError` for a refusal."""
        plan = replace(plan, timeouts=_TIMEOUTS)
        request = insert_key(plan, self.key)
        self.secrets = secrets = plan_secrets(request, self.key)
        self.requests += 1
        if file is not None:
            file.seek(0)
            file.truncate()  # ours: the caller's temporary file
        try:
            status, headers, chunks = await self.transport.send(request)
            content = await _read(chunks, file if status < 300 else None)
            content = self.redact(content)
            if status >= 300:
                raise _refusal(plan, status, headers, content)
        except CnllmError as error:
            raise redact_error(error, secrets) from error.__cause__
        return content

    async def poll(self, id: str) -> VendorJob | None:
        """Return a job as it is now; None where the answer is none."""
        return read_job(self.batch, await self.repeat(poll_plan(self.batch, self.probe, id)))

    def redact(self, content: bytes) -> bytes:
        """Return bytes of a downloaded file without the secrets of the requests."""
        return redact_body(self.secrets, content)

    async def close(self) -> None:
        """Close the connections."""
        if hasattr(self.transport, "aclose"):
            await self.transport.aclose()


def failure_reason(error: CnllmError) -> str:
    """Return why a request is sent again."""
    if isinstance(error, EndpointError):
        return f"the vendor answered HTTP {error.status}"
    return f"no answer came from the vendor ({type(error).__name__})"


def disk_error(out: Path, error: OSError) -> CnllmError:
    """Return the error for what cannot be written beside the output."""
    hint = f"free disk space in {out.parent}, then run the same command again: it goes on"
    return CnllmError(f"the vendor's results cannot be written beside {out}: {error.strerror}", hint=hint)


def decode_answer(plan: Plan, content: Any, redact: Callable[[bytes], bytes] = bytes) -> Any:
    """Return an answer as JSON, which is a long one as `decode_long` has it. Raises `UnreadableAnswer`."""
    try:
        return decode_long(content, redact)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        excerpt = " ".join(redact(content[:2000]).decode("utf-8", "replace")[:120].split())
        raise UnreadableAnswer(
            f"{plan.method} {plan.url}: the answer is not JSON: {excerpt}",
            hint="check base_url and batch in the registry",
        ) from None


def delay_of(error: CnllmError | None, tries: int) -> float:
    """Return the seconds to wait after an attempt that failed, or that came back incomplete."""
    if error is not None and error.retry_after is not None:
        return max(error.retry_after, 0.05)
    delay: float = min(_LONGEST_DELAY, 0.25 * 2**tries) * random.uniform(0.5, 1.0)
    return delay


async def _read(chunks: Any, file: BinaryIO | None) -> bytes:
    """Return a body, or write it to a file."""
    content = bytearray()
    try:
        async for chunk in chunks:
            if file is not None:
                file.write(chunk)
                continue
            content += chunk
            if len(content) > _MOST_BYTES:
                raise UnreadableAnswer(f"the answer is longer than {_MOST_BYTES >> 20} MB")
    finally:
        if hasattr(chunks, "aclose"):
            with contextlib.suppress(CnllmError, asyncio.CancelledError):
                await chunks.aclose()
    return bytes(content)


def _refusal(plan: Plan, status: int, headers: Mapping[str, str], content: bytes) -> CnllmError:
    """Return the typed error of a refusal."""
    try:
        parse_response(plan.model, status, dict(headers), content, plan=plan)
    except EndpointError as error:
        return error
    return cast(CnllmError, UnreadableAnswer(f"{plan.method} {plan.url}: HTTP {status}"))


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
    tally: Tally
    leftover: Bits
    retake: Bits
    stopping: asyncio.Event
