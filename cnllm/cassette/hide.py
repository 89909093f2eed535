"""Remove the secrets of a request from the bytes of its response, also where chunks and events split them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from cnllm.config import redact

__all__ = ["redact_chunks"]

_DATA = re.compile(rb"^data:[ \t]*(\{.*\})[ \t]*\r?$", re.MULTILINE)


def redact_chunks(chunks: list[bytes], secrets: tuple[str, ...]) -> list[bytes]:
    """Return the chunks without secrets. The other bytes stay in their chunk."""
    if not secrets:
        return chunks
    # bytes as latin-1, so that an index in the text is an index in the bytes
    text = b"".join(chunks).decode("latin-1")
    spans = redact.secret_spans(text, [secret.encode("utf-8", "surrogatepass").decode("latin-1") for secret in secrets])
    chunks = _replace(chunks, [(start, end, redact.MARK.encode()) for start, end in spans])
    return _replace(chunks, _split_secrets(b"".join(chunks), secrets))


def _replace(chunks: list[bytes], edits: list[tuple[int, int, bytes]]) -> list[bytes]:
    """Return the chunks with other bytes at some places. The new bytes go into the chunk where the place begins."""
    if not edits:
        return chunks
    out: list[bytes] = []
    begin = index = 0
    for chunk in chunks:
        end, position, piece = begin + len(chunk), begin, b""
        while index < len(edits) and edits[index][0] < end:
            start, stop, new = edits[index]
            piece += chunk[position - begin : max(start, position) - begin]
            if start >= begin:
                piece += new
            position = min(stop, end)
            if stop > end:
                break
            index += 1
        out.append(piece + chunk[position - begin :])
        begin = end
    return out


def _split_secrets(body: bytes, secrets: tuple[str, ...]) -> list[tuple[int, int, bytes]]:
    """Return the events to replace because consecutive strings of several events form a secret."""
    places = [match.span(1) for match in _DATA.finditer(body)] or [(0, len(body))]
    events: list[Any] = []
    fields: dict[tuple[str, ...], list[tuple[int, Any, Any]]] = {}
    for index, (start, end) in enumerate(places):
        try:
            event = json.loads(body[start:end])
        except (ValueError, RecursionError):
            event = None
        events.append(event)
        for path, holder, key in _strings(event, ()):
            fields.setdefault(path, []).append((index, holder, key))
    dirty: set[int] = set()
    for strings in fields.values():
        texts = [holder[key] for _, holder, key in strings]
        joined = "".join(texts)
        edits = [
            (_size(joined[:start]), _size(joined[:end]), redact.MARK.encode())
            for start, end in redact.secret_spans(joined, secrets)
        ]
        if not edits:
            continue
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        for (index, holder, key), old, new in zip(strings, encoded, _replace(encoded, edits), strict=True):
            if old != new:
                holder[key] = new.decode("utf-8", "surrogatepass")
                dirty.add(index)
    return [(*places[index], json.dumps(events[index]).encode()) for index in sorted(dirty)]


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _strings(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield every string in data: its path of keys, the container, and the key in the container."""
    stack: list[tuple[Any, tuple[str, ...]]] = [(value, path)]
    while stack:
        container, parents = stack.pop()
        items = list(
            container.items() if type(container) is dict else enumerate(container) if type(container) is list else ()
        )
        children: list[tuple[Any, tuple[str, ...]]] = []
        for key, item in items:
            item_path = (*parents, key if type(container) is dict else "*")
            if type(item) is str:
                yield item_path, container, key
            elif type(item) in (dict, list):
                children.append((item, item_path))
        stack += reversed(children)
