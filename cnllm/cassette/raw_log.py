"""A log of every exchange as recorded bytes, without secrets: one file of limited size per process.

`CNLLM_RAW_LOG` or `Client(raw_log=…)` switches it on: `on` for the folder `raw` of the data folder, or another folder.
The files are cassettes: `cnllm call --replay FILE` reads them.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import re
from pathlib import Path
from threading import Lock
from typing import Any

from cnllm.cassette.record import append, encode_entry
from cnllm.config import paths
from cnllm.errors import CnllmError
from cnllm.system import files
from cnllm.system.processes import fork_safe
from cnllm.types import checks

__all__ = ["RawLog", "raw_log_folder"]

FILE_BYTES = 16 * 1024 * 1024
FILES = 16
_STAMP = "%Y%m%dT%H%M%S.%f"
_NAME = re.compile(r"\d{8}T\d{6}\.\d{6}-\d{1,10}\.jsonl")


def raw_log_folder(setting: bool | str | os.PathLike[str]) -> Path | None:
    """Return the folder of the log, or None where it is off."""
    if setting is True or setting is False:
        return paths.data_dir() / "raw" if setting else None
    checks.require_path("raw_log", setting)
    return Path(setting).expanduser()


class RawLog:
    """Appends exchanges to the newest file of this process. Safe to share between threads, and after a fork.

    After `FILE_BYTES` a new file begins, and of the files with such names only the newest `FILES` stay. A later
    write error does not stop a call: `failed` holds the first one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failed: CnllmError | None = None
        self._lock = fork_safe(Lock())
        self._pid = 0
        self._file: Path | None = None
        try:
            files.make_private_folder(folder, narrow=False)
            append(self._current_file(0), b"")
        except OSError as error:
            raise CnllmError(
                f"cannot log to {folder}: {error.strerror}", hint="name another folder, or switch CNLLM_RAW_LOG off"
            ) from error

    def write(self, entry: dict[str, Any]) -> None:
        """Append one exchange as one line."""
        line = encode_entry(entry)
        try:
            with self._lock:
                append(self._current_file(len(line)), line)
        except (CnllmError, OSError) as error:
            self._report(error)

    def _current_file(self, more: int) -> Path:
        """Return the file with room for this many more bytes."""
        file = self._file
        if file is not None and self._pid == os.getpid():
            try:
                size = file.stat().st_size
            except FileNotFoundError:  # another program deleted the file
                size = 0
            if not size or size + more <= FILE_BYTES:
                return file
        self._pid = os.getpid()
        self._file = self.folder / f"{self._next_stamp()}-{self._pid}.jsonl"
        return self._file

    def _next_stamp(self) -> str:
        """Return the time of a new file, and delete the oldest files, so that the new one is among `FILES`.

        It is later than that of every other file, also where the clock was set back: the next file would delete it.
        """
        names = sorted(name for name in os.listdir(self.folder) if _NAME.fullmatch(name))  # only reads
        for old in names[: max(0, len(names) - FILES + 1)]:
            with contextlib.suppress(OSError):  # another process was faster
                os.unlink(self.folder / old)  # ours: the exact form of our names
        stamp = datetime.datetime.now(datetime.UTC).strftime(_STAMP)
        if names and names[-1][: len(stamp)] >= stamp:
            with contextlib.suppress(ValueError, OverflowError):  # the digits of a name may be no time
                newest = datetime.datetime.strptime(names[-1][: len(stamp)], _STAMP)
                stamp = (newest + datetime.timedelta(microseconds=1)).strftime(_STAMP)
        return stamp

    def _report(self, error: CnllmError | OSError) -> None:
        if self.failed is None:
            self.failed = (
                error if isinstance(error, CnllmError) else CnllmError(f"cannot log to {self.folder}: {error}")
            )
            logging.getLogger("cnllm.raw_log").warning("%s; the call goes on", self.failed)
