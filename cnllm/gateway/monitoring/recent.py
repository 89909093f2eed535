"""Keep the last requests with the client's body, the endpoint's body and the reply, without secrets."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cnllm.config.redact import MARK, is_secret_name, redact, redact_url
from cnllm.system.files import open_private
from cnllm.types.newest import Newest

__all__ = ["Recent", "hide_secrets", "record_of"]

_MOST = 100  # requests
_LONGEST_TEXT = 8_000  # characters of one string
_LARGEST = 96 * 1024  # bytes of one body
_KEY_WORD = re.compile(
    r"(?<![\w-])(?:(?:sk|pk|rk|ak|tok|key|ghp|gho|xox[abp])[-_](?=[\w.-]*\d)[\w.-]{12,}|AIza[\w-]{20,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.+/=~-]{8,}")
_ID = re.compile(r"req_[0-9a-f]{24}")


class Recent:
    """The last requests, at most a hundred. With a folder several processes share them; it is for the owner alone."""

    def __init__(self, folder: str | None = None, most: int = _MOST) -> None:
        self._most = most
        self._folder = None if folder is None else Path(folder)
        self._records: Newest[str, bytes] = Newest(most)

    def add(self, id: str, record: Mapping[str, Any]) -> None:
        """Keep a record, and drop the oldest."""
        data = msgspec.json.encode(record)
        if self._folder is None:
            self._records[id] = data
            return
        with contextlib.suppress(OSError):  # a full disk must not stop a request
            path = self._folder / f"{time.time_ns():020d}-{id}.json"
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
        return [msgspec.json.decode(data)["entry"] for data in self._all()]

    def find(self, id: str) -> bytes | None:
        """Return a record as JSON, or None."""
        if _ID.fullmatch(id) is None:
            return None
        if self._folder is None:
            return self._records.get(id)
        for path in self._folder.glob(f"*-{id}.json"):  # only reads
            with contextlib.suppress(OSError):
                return path.read_bytes()
        return None

    def _all(self) -> list[bytes]:
        """Return every record, the newest first."""
        if self._folder is None:
            return list(reversed(self._records.values()))
        records = []
        for path in self._files():
            with contextlib.suppress(OSError):
                records.append(path.read_bytes())
        return records

    def _files(self) -> list[Path]:
        """Return the files of records, the newest first."""
        assert self._folder is not None
        return sorted(self._folder.glob("*.json"), reverse=True)  # ours: the same folder


def record_of(
    entry: Mapping[str, Any], body: Any, upstream: Any, address: str | None, reply: Any, secrets: Iterable[str]
) -> dict[str, Any]:
    """Return a record: the line of the log, both bodies and the reply, without secrets."""
    needles = tuple(secrets)
    name = {"key": hide_secrets(entry["key"], needles)} if "key" in entry else {}  # of a key, and no key
    return {
        "entry": hide_secrets(entry, needles) | name,
        "sent": _shorten_body(hide_secrets(body, needles)),
        "upstream": _shorten_body(hide_secrets(upstream, needles)),
        "address": None if address is None else redact_url(address, needles),
        "reply": _shorten_body(hide_secrets(reply, needles)),
    }


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
