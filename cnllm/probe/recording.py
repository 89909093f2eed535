"""Keep the exchanges of a probe in a file, so that it can be stopped and resumed. The file is a cassette.

A line is written when an exchange has ended. After `kill -9` at most the last line is torn; it is skipped.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cnllm.cassette.parts import read_exchange
from cnllm.cassette.record import append
from cnllm.config import paths, redact
from cnllm.engine.encode.plan import Plan
from cnllm.probe.exchange import RawResponse
from cnllm.system import files
from cnllm.system.files import CASSETTE_BYTES, read_bounded

__all__ = ["ProbeRecording", "state_file"]

_LONGEST = datetime.timedelta(hours=24)
"""How long answers count: later the endpoint may be another one."""
_PASSING = (401, 402, 403, 429)
"""They say something of the key, the account or the moment: the answer may be another one the next time."""


def state_file(base_url: str, id: str | None, protocol: str | None) -> Path:
    """Return the file that holds the exchanges of an unfinished probe of an endpoint."""
    text = json.dumps([base_url, id, protocol])
    folder = paths.data_dir() / "probe"
    files.make_private_folder(folder)
    return folder / f"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}.jsonl"


class ProbeRecording:
    """The file of exchanges: what it holds answers first, what is new is appended."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._answers: dict[str, deque[RawResponse]] = {}
        with files.explain_errors(f"{self.path} cannot be read", "delete it"):
            text = read_bounded(self.path, CASSETTE_BYTES) if self.path.exists() else b""
        now = datetime.datetime.now(datetime.UTC)
        for line in text.splitlines():
            entry = _entry(line)
            if entry is not None and abs(now - entry[0]) < _LONGEST:  # the clock may have been set back
                self._answers.setdefault(entry[1], deque()).append(entry[2])
        if text and not text.endswith(b"\n"):
            append(self.path, b"\n")

    def take(self, plan: Plan) -> RawResponse | None:
        """Return the next answer to this very request; None where the file has no more."""
        secrets = redact.request_secrets(plan.url, plan.headers)
        body = redact.redact_data(plan.body, secrets)
        answers = self._answers.get(_identity(plan.method, plan.url, plan.headers, body))
        return answers.popleft() if answers else None


def _identity(method: str, url: str, headers: Mapping[str, str], body: Any) -> str:
    names = sorted(name.lower() for name in headers)
    text = json.dumps([method, url, names, body], sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()


def _entry(line: bytes) -> tuple[datetime.datetime, str, RawResponse] | None:
    """Return when, which request and which answer; None for a line that says nothing about the endpoint."""
    try:
        exchange = read_exchange(line)
        when = datetime.datetime.fromisoformat(exchange.when).astimezone(datetime.UTC)
        request, response = exchange.request, exchange.response
        if response is None or exchange.ended == "failed" or response.status in _PASSING or response.status >= 500:
            return None
        content = b"".join(exchange.chunks)
        answer = RawResponse(response.status, dict(response.headers), content, exchange.ended == "abandoned")
        return when, _identity(request.method, request.url, request.headers, request.body), answer
    except (ValueError, OverflowError, RecursionError):
        return None
