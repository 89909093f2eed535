"""The identity of a request, and what it depends on beside the row: model, prompt, options, registry, version.

The identity is a digest of the URL, the model's id on the wire, the bytes of the body, and the schema of the answer
where the body does not hold it as it is; no key is in it. To know it the request has to be built. A finished row of
which neither the bytes nor the setting changed has the same identity, so a run that goes on builds no request for it.
Several runs share answers by their identities, in an SQLite file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from cnllm._version import VERSION
from cnllm.batch.database import AnswerFile
from cnllm.batch.settings import BatchSettings
from cnllm.config.redact import redact_url
from cnllm.engine.encode.plan import Plan
from cnllm.registry.model import Model
from cnllm.types.json_form import encode_json

__all__ = [
    "AnswerCache",
    "RunSetting",
    "changed_parts",
    "describe_setting",
    "plan_identity",
]


_NO_PART_OF_A_REQUEST = ("title", "price", "status", "keys", "errors", "error", "usage", "finish", "simulator", "batch")
"""Flags that no request depends on."""
_UNNAMED = ("tools", "api_key", "extra_headers", "timeout", "limits", "fallback", "params")

_TABLE = "CREATE TABLE IF NOT EXISTS answers (identity BLOB PRIMARY KEY, reply BLOB NOT NULL) STRICT, WITHOUT ROWID"


class RunSetting(Struct, frozen=True):
    """The settings that the requests of a run depend on beside the rows. `parts` name each with a value or a digest."""

    fingerprint: bytes
    parts: dict[str, Any]


def plan_identity(plan: Plan) -> bytes:
    """Return the identity of a request."""
    head = f"{_plain_url(plan.url)}\0{plan.model.id}\0".encode("utf-8", "surrogatepass")
    return blake2b(head + plan.content + _rules(plan), digest_size=16).digest()


def _rules(plan: Plan) -> bytes:
    """Return the schema of the answer where the body does not hold it as it is; nothing otherwise."""
    answer = plan.answer
    if answer is None:
        return b""
    schema = encode_json(answer.schema)
    return b"" if schema in plan.content and not answer.wrapped else b"\0" + schema


_plain_url = lru_cache(maxsize=64)(redact_url)


def describe_setting(model: Model, probe: Plan, options: Mapping[str, Any], settings: BatchSettings) -> RunSetting:
    """Return the setting of a run. `probe` is the request of a fixed text with the options of the run."""
    flags = {
        name: value
        for name, value in asdict(model.flags).items()
        if name not in _NO_PART_OF_A_REQUEST and value is not None
    }
    values: dict[str, Any] = {name: value for name, value in options.items() if name not in _UNNAMED}
    values |= options.get("params") or {}
    parts: dict[str, Any] = {
        "model": f"{model.name} over {model.protocol}",
        "url": _plain_url(probe.url),
        "prompt": settings.prompt,
        "options": {name: _short(value) for name, value in values.items() if value is not None},
        "registry": _digest(flags),
        "request": blake2b(probe.content, digest_size=8).hexdigest(),
        "tools": settings.max_steps is not None,
        "cnllm": VERSION,
    }
    return RunSetting(blake2b(msgspec.json.encode(parts, order="sorted"), digest_size=16).digest(), parts)


def changed_parts(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> list[str]:
    """Name what differs between two settings, in words."""
    if before is None:
        return ["the setting of an earlier run, which is not known"]
    out = []
    if before.get("model") != now["model"] or before.get("url") != now["url"]:
        old, new = (f"{parts.get('model')} at {parts.get('url')}" for parts in (before, now))
        out.append(f"the model: {old} → {new}")
    if before.get("prompt") != now["prompt"]:
        out.append(f"the prompt: {_quote(before.get('prompt'))} → {_quote(now['prompt'])}")
    old_options, new_options = before.get("options") or {}, now["options"]
    for name in sorted({*old_options, *new_options}):
        if old_options.get(name) != new_options.get(name):
            old, new = (str(options.get(name, "not set")) for options in (old_options, new_options))
            out.append(f"the option {name}: {old} → {new}")
    if before.get("tools") != now["tools"]:
        out.append("whether tools run")
    rest = {
        "registry": "the registry's entry of the model",
        "cnllm": f"the version of cnllm: {before.get('cnllm')} → {now['cnllm']}",
        "request": "the requests that are built from the same options",
    }
    return out or [text for part, text in rest.items() if before.get(part) != now[part]][:1]


def _quote(text: Any) -> str:
    return "none" if text is None else repr(text if len(str(text)) <= 60 else f"{str(text)[:60]}…")


def _short(value: Any) -> Any:
    """Return a value that is short enough to be stored and shown; of a long one a digest."""
    try:
        text = msgspec.json.encode(value, enc_hook=_kind, order="sorted").decode()
    except (TypeError, ValueError):
        text = _kind(value)
    if len(text) <= 200:
        return msgspec.json.decode(text) if text[:1] in '"[{0123456789-tfn' else text
    return f"digest {blake2b(text.encode(), digest_size=8).hexdigest()}"


def _kind(value: Any) -> str:
    """Return a value that JSON cannot hold by its type: a repr may differ in each process."""
    return type(value).__name__


def _digest(value: Any) -> str:
    return blake2b(msgspec.json.encode(value, enc_hook=str, order="sorted"), digest_size=8).hexdigest()


# ── answers that several runs share ──────────────────────────────────────────


class AnswerCache(AnswerFile):
    """An open cache. Each method may be called in any thread, one at a time. Raises `CnllmError` for a bad file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, [_TABLE], "leave --cache out, or move that file away")

    def find(self, identity: bytes) -> bytes | None:
        """Return the reply of a request as JSON; None where no run has one."""
        rows = self.execute("SELECT reply FROM answers WHERE identity = ?", identity)
        return bytes(rows[0][0]) if rows else None

    def store(self, answers: Sequence[tuple[bytes, bytes]]) -> None:
        """Store replies as JSON. One that is there stays."""
        with self.writing() as connection:
            connection.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?)", answers)
