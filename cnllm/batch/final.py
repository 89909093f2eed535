"""The final pass over an output: one line a row, in the order of the input on demand, and a copy of the failures."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from cnllm.batch.output import LINE_BEGIN, Output, is_line
from cnllm.batch.recovery import output_facts
from cnllm.batch.state import BatchState
from cnllm.errors import CnllmError
from cnllm.system.files import explain_errors, open_private, sync_folder

__all__ = ["errors_path", "finish_files", "require_ours"]

_LIVE = "SELECT seq, place, length FROM rows WHERE place IS NOT NULL ORDER BY "
_BUFFER = 1 << 20


def errors_path(out: Path) -> Path:
    """Return the path of the copy of the failures."""
    return out.with_name(f"{out.name}.errors.jsonl")


def finish_files(output: Output, state: BatchState, *, order: bool) -> list[str]:
    """Remove lines of rows that have a newer one, order the lines, and copy the failures. Return what to tell.

    Where the disk has no room for a second copy of the output, the output stays as it is. Where it has none for the
    places of the lines in the new one, the failures are not copied. Raises `CnllmError` where another program has taken
    the output away or changed it.
    """
    messages = []
    output.require_whole()
    if not output.path.exists():
        _restore(output, state)
        messages.append(f"{output.path} was removed or renamed while the batch ran; it was written anew")
    try:
        if order:
            _rewrite(output, state, "number, seq")
        elif state.execute("SELECT 1 FROM superseded LIMIT 1"):
            _rewrite(output, state, "place")
    except (OSError, CnllmError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        if state.fact("output") != output_facts(output)["output"]:  # the failures stand elsewhere in the new file
            return [
                *messages,
                f"{output.path} is in its new form, and {state.path} does not know it yet ({reason}): free disk space, "
                "and run the same command again",
            ]
        messages.append(
            f"{output.path} still holds lines of rows that were asked again ({reason}): the last line of a row "
            "counts; free disk space, and run the same command again"
        )
    try:
        _copy_failures(output, state)
    except OSError as error:
        messages.append(f"{errors_path(output.path)}: {error.strerror}")
    return messages


def _restore(output: Output, state: BatchState) -> None:
    """Write the output anew where its name is gone. Raises `CnllmError` where that is not possible."""
    message = f"{output.path} was removed or renamed while the batch ran, and cannot be written anew"
    with explain_errors(message, "put the file back, then run the same command again: it asks what is missing"):
        _rewrite(output, state, "place")


def _rewrite(output: Output, state: BatchState, order: str) -> None:
    """Write the live lines to a new file, in an order, and put it in the place of the output.

    A crash before the new file has the name leaves the old one, a crash after it leaves a state that does not know
    the file: the next run then reads the file again.
    """
    path = output.path
    with _unfinished_file(path) as file, state.writing():
        state.execute("CREATE TEMP TABLE moved (seq INTEGER PRIMARY KEY, place INTEGER) STRICT")
        state.execute_many("INSERT INTO moved VALUES (?, ?)", _copy(output, state, order, file))
        file.flush()
        os.fsync(file.fileno())
        state.execute("UPDATE rows SET place = moved.place FROM moved WHERE moved.seq = rows.seq")
        state.execute("DROP TABLE moved")
        state.execute("DELETE FROM superseded")
        os.replace(file.name, path)  # ours: the output holds lines of a batch only
        sync_folder(path.parent)
        output.reopen()
        state.put_facts(output_facts(output))


def _copy(output: Output, state: BatchState, order: str, file: BinaryIO) -> Iterator[tuple[int, int]]:
    """Copy the live lines, and yield the new place of each."""
    position = 0
    for seq, place, length in state.stream(_LIVE + order):
        file.write(output.read(place, length))
        yield seq, position
        position += length


def _copy_failures(output: Output, state: BatchState) -> None:
    path = errors_path(output.path)
    rows = state.stream("SELECT place, length FROM rows WHERE state >= 2 AND place IS NOT NULL ORDER BY place")
    first = next(rows, None)
    require_ours(path, _is_ours)
    if first is None:
        path.unlink(missing_ok=True)  # ours: it begins with a line of a batch
        return
    with _unfinished_file(path) as file:
        for place, length in chain([first], rows):
            file.write(output.read(place, length))
        file.close()
        os.replace(file.name, path)  # ours: it begins with a line of a batch


def require_ours(path: Path, is_ours: Callable[[Path], bool]) -> None:
    """Raise `OSError` where a file exists that no batch has written: it is not replaced."""
    if path.exists() and not is_ours(path):
        raise OSError(errno.EEXIST, "it exists, and no batch has written it; it stays as it is")


def _is_ours(path: Path) -> bool:
    """Whether a file is empty or begins with a line of a batch."""
    with path.open("rb") as file:
        begin = file.read(len(LINE_BEGIN))
        return not begin or (begin == LINE_BEGIN and is_line(begin + file.readline()))


@contextmanager
def _unfinished_file(path: Path) -> Iterator[BinaryIO]:
    """Open the file that is to replace another one, with its mode. An error removes it.

    What a killed run left there is removed, too.
    """
    new = path.with_name(f".{path.name}.cnllm-new")
    new.unlink(missing_ok=True)  # ours: no other program has such names
    try:
        with open(new, "xb", buffering=_BUFFER, opener=open_private) as file:
            with suppress(FileNotFoundError):
                os.chmod(new, stat.S_IMODE(path.stat().st_mode))  # ours: made above
            yield file
    except BaseException:
        new.unlink(missing_ok=True)  # ours: made above
        raise
