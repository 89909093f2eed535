"""Keep the last requests with the client's body, the endpoint's body and the reply, without secrets."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cnllm.config.redact import MARK, is_secret_name, redact, redact_url
from cnllm.system.files import open_private

__all__ = ["Recent", "RequestRecord", "hide_secrets"]

_MOST = 100  # requests
_LONGEST_TEXT = 8_000  # characters of one string
_LARGEST = 96 * 1024  # bytes of one body that is shown
_LARGEST_RECORD = 4 << 20  # bytes of a record that is kept as it came
_LARGEST_SUM = 32 << 20  # bytes of all records in memory
_KEY_WORD = re.compile(
    r"(?<![\w-])(?:(?:sk|pk|rk|ak|tok|key|ghp|gho|xox[abp])[-_](?=[\w.-]*\d)[\w.-]{12,}|AIza[\w-]{20,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.+/=~-]{8,}")
_ID = re.compile(r"req_[0-9a-f]{24}")


class RequestRecord(msgspec.Struct, frozen=True):
    """A request as it came: the line of the log, both bodies, the endpoint's address, and the reply."""

    entry: Mapping[str, Any]
    sent: Any
    upstream: Any
    address: str | None
    reply: Any


class Recent:
    """The last requests, at most a hundred. With a folder several processes share them; it is for the owner alone.

    To look for secrets takes longer than a request. So those in memory are searched when somebody looks at them; those
    in a file before they are written, and those that are too large to be kept whole.
    """

    def __init__(self, folder: str | None = None, most: int = _MOST) -> None:
        self._most = most
        self._folder = None if folder is None else Path(folder)
        self._records: OrderedDict[str, tuple[bytes, tuple[str, ...] | None]] = OrderedDict()
        """JSON of records, with the secrets of those that may hold some."""
        self._size = 0  # bytes of them
        self._lock = threading.Lock()

    def add(self, id: str, record: RequestRecord, secrets: Iterable[str]) -> None:
        """Keep a record, and drop the oldest."""
        needles = tuple(secrets)
        try:
            data = msgspec.json.encode(record)
        except RecursionError:  # such a body is not shown to its end
            data = b""
        if self._folder is not None or not data or len(data) > _LARGEST_RECORD:
            shown = msgspec.json.encode(_shown_record(record if not data else _decode(data), needles))
            if self._folder is None:
                self._keep(id, shown, None)
            else:
                self._write(self._folder, id, shown)
        else:
            self._keep(id, data, needles)

    def _keep(self, id: str, data: bytes, secrets: tuple[str, ...] | None) -> None:
        """Keep JSON in memory."""
        with self._lock:
            self._records[id] = data, secrets
            self._size += len(data)
            while len(self._records) > self._most or (self._size > _LARGEST_SUM and len(self._records) > 1):
                _, (old, _) = self._records.popitem(last=False)
                self._size -= len(old)

    def _write(self, folder: Path, id: str, data: bytes) -> None:
        """Keep JSON in the folder."""
        with contextlib.suppress(OSError):  # a full disk must not stop a request
            path = folder / f"{time.time_ns():020d}-{id}.json"
            part = path.with_suffix(".part")
            try:
                with open(part, "wb", opener=open_private) as file:  # ours: a folder that the gateway made for this run
                    file.write(data)
                os.replace(part, path)  # ours: the same folder
            except OSError:
                part.unlink(missing_ok=True)  # ours: the same folder
                raise
            for old in self._files()[self._most :]:
                old.unlink(missing_ok=True)  # ours: the same folder

    def entries(self) -> list[dict[str, Any]]:
        """Return the records without bodies, the newest first."""
        if self._folder is not None:
            return [msgspec.json.decode(data)["entry"] for data in self._read_all()]
        with self._lock:
            records = [*reversed(self._records.values())]
        return [
            entry if secrets is None else _shown_entry(entry, secrets)
            for entry, secrets in ((_decode_entry(data).entry, secrets) for data, secrets in records)
        ]

    def find(self, id: str) -> bytes | None:
        """Return a record as JSON, or None."""
        if _ID.fullmatch(id) is None:
            return None
        if self._folder is None:
            with self._lock:
                data, secrets = self._records.get(id, (None, None))
            if data is None or secrets is None:
                return data
            return msgspec.json.encode(_shown_record(_decode(data), secrets))
        for path in self._folder.glob(f"*-{id}.json"):  # only reads
            with contextlib.suppress(OSError):
                return path.read_bytes()
        return None

    def _read_all(self) -> list[bytes]:
        """Return every record in the folder, the newest first."""
        records = []
        for path in self._files():
            with contextlib.suppress(OSError):
                records.append(path.read_bytes())
        return records

    def _files(self) -> list[Path]:
        """Return the files of records, the newest first."""
        assert self._folder is not None
        return sorted(self._folder.glob("*.json"), reverse=True)  # ours: the same folder


class _RecordLine(msgspec.Struct, frozen=True):
    """The line of a record."""

    entry: dict[str, Any]


_decode = msgspec.json.Decoder(RequestRecord).decode
_decode_entry = msgspec.json.Decoder(_RecordLine).decode


def _shown_record(record: RequestRecord, secrets: tuple[str, ...]) -> dict[str, Any]:
    """Return a record without secrets, and with long bodies cut off."""
    return {
        "entry": _shown_entry(record.entry, secrets),
        "sent": _shorten_body(hide_secrets(record.sent, secrets)),
        "upstream": _shorten_body(hide_secrets(record.upstream, secrets)),
        "address": None if record.address is None else redact_url(record.address, secrets),
        "reply": _shorten_body(hide_secrets(record.reply, secrets)),
    }


def _shown_entry(entry: Mapping[str, Any], secrets: tuple[str, ...]) -> dict[str, Any]:
    """Return the line of the log without secrets."""
    name = {"key": hide_secrets(entry["key"], secrets)} if "key" in entry else {}  # of a key, and no key
    shown: dict[str, Any] = hide_secrets(entry, secrets)
    return shown | name


def hide_secrets(value: Any, secrets: tuple[str, ...], depth: int = 0) -> Any:
    """Return JSON data without secrets: known ones, words shaped as keys, and texts under names such as `api_key`."""
    if isinstance(value, str):
        text = value[: 2 * _LONGEST_TEXT]  # no more is searched than what is shown, and a secret at its end
        text = _BEARER.sub(lambda match: f"{match[1]} {MARK}", _KEY_WORD.sub(MARK, redact(text, secrets)))
        if len(text) > _LONGEST_TEXT:
            return f"{text[:_LONGEST_TEXT]}… ({len(value):,} characters)"
        return text
    if depth > 100:
        return "… (nested too deeply)"
    if isinstance(value, Mapping):
        return {
            hide_secrets(str(name), secrets): MARK
            if isinstance(item, str) and item and is_secret_name(str(name))
            else hide_secrets(item, secrets, depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [hide_secrets(item, secrets, depth + 1) for item in value]
    return value


def _shorten_body(value: Any) -> Any:
    """Return a body; one that is too large as its beginning."""
    content = msgspec.json.encode(value)
    if len(content) <= _LARGEST:
        return value
    return f"{content[:_LARGEST].decode('utf-8', 'ignore')}… ({len(content):,} bytes)"
