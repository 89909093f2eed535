"""The bytes of a response without the secrets of its request, wherever chunks and events split them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from cnllm.config import redact

__all__ = ["redact_chunks"]

_DATA = re.compile(rb"^data:[ \t]*(\{.*\})[ \t]*\r?$", re.MULTILINE)


def redact_chunks(chunks: list[bytes], secrets: tuple[str, ...]) -> list[bytes]:
    """Return the chunks without secrets; what is left stays in the chunk that it was in."""
    if not secrets:
        return chunks
    # bytes as latin-1, so that places in the text are places in the bytes
    text = b"".join(chunks).decode("latin-1")
    found = redact.secret_spans(text, [secret.encode("utf-8", "surrogatepass").decode("latin-1") for secret in secrets])
    chunks = _replaced(chunks, [(start, end, redact.MARK.encode()) for start, end in found])
    return _replaced(chunks, _split(b"".join(chunks), secrets))


def _replaced(chunks: list[bytes], found: list[tuple[int, int, bytes]]) -> list[bytes]:
    """The chunks with other bytes in some places, in the chunk where each place begins."""
    if not found:
        return chunks
    out: list[bytes] = []
    begin = nth = 0
    for chunk in chunks:
        end, at, piece = begin + len(chunk), begin, b""
        while nth < len(found) and found[nth][0] < end:
            start, stop, new = found[nth]
            piece += chunk[at - begin : max(start, at) - begin]
            if start >= begin:
                piece += new
            at = min(stop, end)
            if stop > end:
                break
            nth += 1
        out.append(piece + chunk[at - begin :])
        begin = end
    return out


def _split(body: bytes, secrets: tuple[str, ...]) -> list[tuple[int, int, bytes]]:
    """The events to replace because strings of several, one after another, are a secret."""
    places = [match.span(1) for match in _DATA.finditer(body)] or [(0, len(body))]
    events: list[Any] = []
    fields: dict[tuple[str, ...], list[tuple[int, Any, Any]]] = {}
    for nth, (start, end) in enumerate(places):
        try:
            event = json.loads(body[start:end])
        except (ValueError, RecursionError):
            event = None
        events.append(event)
        for path, holder, key in _strings(event, ()):
            fields.setdefault(path, []).append((nth, holder, key))
    dirty: set[int] = set()
    for held in fields.values():
        texts = [holder[key] for _, holder, key in held]
        found = redact.secret_spans("".join(texts), secrets)
        if not found:
            continue
        pieces = [text.encode("utf-8", "surrogatepass") for text in texts]
        whole = "".join(texts)
        sizes = [(len(whole[:start].encode("utf-8", "surrogatepass")), whole[start:end]) for start, end in found]
        spans = [(at, at + len(said.encode("utf-8", "surrogatepass")), redact.MARK.encode()) for at, said in sizes]
        for (nth, holder, key), old, new in zip(held, pieces, _replaced(pieces, spans), strict=True):
            if old != new:
                holder[key] = new.decode("utf-8", "surrogatepass")
                dirty.add(nth)
    return [(*places[nth], json.dumps(events[nth]).encode()) for nth in sorted(dirty)]


def _strings(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Every string in data: the keys that lead to it, and what holds it under which key."""
    todo: list[tuple[Any, tuple[str, ...]]] = [(value, path)]
    while todo:
        one, way = todo.pop()
        items = list(one.items() if type(one) is dict else enumerate(one) if type(one) is list else ())
        deeper: list[tuple[Any, tuple[str, ...]]] = []
        for key, item in items:
            here = (*way, key if type(one) is dict else "*")
            if type(item) is str:
                yield here, one, key
            elif type(item) in (dict, list):
                deeper.append((item, here))
        todo += reversed(deeper)
