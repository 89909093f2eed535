"""Write what happens in groups, in this order: lines to the output, on the disk; then the state, on the disk.

A request may be sent once its mark is on the disk, and a row counts as finished once its line is. Between the two
writes a crash leaves lines that the state does not know yet: the next run takes them in (`recovery.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from msgspec import Struct

from cnllm.batch.jobs import Job
from cnllm.batch.output import Outcome, Output
from cnllm.batch.recovery import output_facts
from cnllm.batch.state import BatchState, Finish, RowMark, RowRecord

__all__ = ["Journal", "WriteGroup", "write_finishes"]

T = TypeVar("T")
_PAUSE = 0.01  # seconds between two groups while there is enough to send


class WriteGroup(Struct):
    """Data that are written together, each with its job: marks of rows, and finished rows with their outcomes.

    `records` are the marked rows as they were before, once the group is written.
    """

    marks: list[tuple[RowMark, Job]] = []
    finishes: list[tuple[Finish, Job, Outcome]] = []
    records: Sequence[RowRecord | None] = ()


class Journal:
    """Writes groups in a thread of its own. `facts` returns what else to store with each group, by name.

    Rows from `first_seq` on are those of this run.
    """

    def __init__(self, output: Output, state: BatchState, facts: Callable[[], dict[str, Any]], first_seq: int) -> None:
        self._output = output
        self.state = state
        self._facts = facts
        self.first_seq = first_seq
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cnllm-batch")
        self._group = WriteGroup()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.hurry = True

    def mark(self, mark: RowMark, job: Job) -> None:
        """Store that a request is about to be sent."""
        self._group.marks.append((mark, job))
        self._notify()

    def finish(self, finish: Finish, job: Job, outcome: Outcome) -> None:
        """Write the line of a row."""
        self._group.finishes.append((finish, job, outcome))
        self._notify()

    def _notify(self) -> None:
        if not self._wake.is_set():
            self._wake.set()
            self._idle.clear()

    async def run(self, written: Callable[[WriteGroup], None]) -> None:
        """Write groups until it is cancelled, and call back with each. Raises `CnllmError` where the disk is full."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            if not self.hurry:
                await asyncio.sleep(_PAUSE)
            self._wake.clear()
            group, self._group = self._group, WriteGroup()
            group.records = await loop.run_in_executor(self._thread, self._write, group, self._facts())
            written(group)
            if not self._wake.is_set():
                self._idle.set()

    async def drain(self) -> None:
        """Wait until everything is written."""
        await self._idle.wait()

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function in the thread that owns the state."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True)

    def _write(self, group: WriteGroup, facts: dict[str, Any]) -> Sequence[RowRecord | None]:
        marks, finishes = [mark for mark, _ in group.marks], [finish for finish, _, _ in group.finishes]
        return write_finishes(self._output, self.state, finishes, facts, lambda: self.state.mark(marks, self.first_seq))


def write_finishes(
    output: Output, state: BatchState, finishes: Sequence[Finish], facts: dict[str, Any], more: Callable[[], T]
) -> T:
    """Write lines to the output, then in one transaction the facts, what `more` writes, and what became of the rows.

    Return what `more` returns.
    """
    places = output.append([finish.line for finish in finishes]) if finishes else []
    with state.writing():
        result = more()
        if finishes:
            state.finish(finishes, places)
        state.put_facts({**facts, **(output_facts(output) if finishes else {})})
    return result
