"""The files that a run writes: its output and its state, opened together or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from cnllm.batch.final import errors_path
from cnllm.batch.output import Output
from cnllm.batch.recovery import state_path
from cnllm.batch.state import BatchState
from cnllm.errors import CnllmError
from cnllm.system.files import explain_errors, lock_folder

__all__ = ["RunFiles"]

_LOCK_SECONDS = 10.0  # that other runs in the same folder may take to open their output


class RunFiles:
    """The open output of a run at a path, and its state beside it.

    `source` is the input of the run, which must be none of them. Raises `CnllmError` where they cannot be opened.
    """

    def __init__(self, path: Path, source: Any) -> None:
        self._path = path
        self._require_place()
        self._refuse_input(source)
        with self._lock_folder(), ExitStack() as undo:
            self._made = [file for file in (path, state_path(path)) if not file.exists()]
            undo.callback(self._remove_made)
            self.state = BatchState(state_path(path))
            undo.callback(self.state.close)
            self.output = Output(path)
            undo.pop_all()

    def close(self) -> None:
        """Close both."""
        self.output.close()
        self.state.close()

    def discard(self) -> None:
        """Close both, and remove what this run made of them, unless the output has an answer."""
        with self._lock_folder():
            self.close()
            self._remove_made()

    def _require_place(self) -> None:
        """Raise `CnllmError` for a path that no output can have."""
        path = self._path
        if path.is_dir():
            raise CnllmError(f"{path} is a folder", hint="name a file: -o OUT.jsonl")
        if path.exists() and not path.is_file():  # it could not be read again, or cut off
            raise CnllmError(f"{path} is a device or a pipe", hint="name a file: -o OUT.jsonl")
        if not path.parent.is_dir():
            raise CnllmError(f"there is no folder {path.parent} for {path}", hint="create it, or choose another -o OUT")

    def _refuse_input(self, source: Any) -> None:
        """Raise `CnllmError` where a file that this run writes is its input."""
        if not isinstance(source, str):
            return
        for path in (self._path, state_path(self._path), errors_path(self._path)):
            try:
                same = os.path.samestat(os.fstat(0) if source == "-" else os.stat(source), path.stat())
            except OSError:
                continue
            if same:
                raise CnllmError(
                    f"{path} is the input of this batch, and would be written", hint="choose another -o OUT"
                )

    @contextmanager
    def _lock_folder(self) -> Iterator[None]:
        """Let one run at a time open or remove an output: otherwise one removes the files that another has opened."""
        folder = self._path.parent
        with ExitStack() as stack:
            with explain_errors(f"{folder} cannot be locked", "choose another -o OUT"):
                stack.enter_context(lock_folder(folder, _LOCK_SECONDS))  # it may be one of all users
            yield

    def _remove_made(self) -> None:
        """Remove the files that this run made, unless the output has an answer. They are closed."""
        if self._path not in self._made or not self._path.exists() or self._path.stat().st_size == 0:
            for path in self._made:
                with suppress(OSError):  # the error that ended the run is the one to tell
                    path.unlink()  # ours: this run made it
