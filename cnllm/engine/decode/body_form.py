"""Detect the form of a body from its first bytes, and whether a chunk is complete."""

from __future__ import annotations

from cnllm.types.lenient_json import NotJson, decode_lenient

__all__ = ["BLANK", "BOM", "detect_mode", "is_complete", "short_text"]


_SSE_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")


_MAX_FIELD_SIZE = max(len(field) for field in _SSE_FIELDS)


BOM = b"\xef\xbb\xbf"


BLANK = b" \t\r\n"


def detect_mode(head: bytes, *, at_end: bool = False) -> str | None:
    """Return the mode that the first bytes indicate, "sse" or "whole"; None while both are possible."""
    if head[:3] == BOM:
        text = head[3:].lstrip(BLANK)
    elif not at_end and BOM.startswith(head[:3]):
        return None
    else:
        text = head.lstrip(BLANK)
    if not text:
        return "whole" if at_end else None
    if text.startswith(_SSE_FIELDS):
        return "sse"
    if len(text) < _MAX_FIELD_SIZE and any(f.startswith(text) for f in _SSE_FIELDS):
        return "sse" if at_end else None  # the beginning of a field's name, cut off
    return "whole"


def is_complete(data: bytes) -> bool:
    """Whether data is a whole chunk or the end marker, although its blank line is missing."""
    text = data.strip()
    if text == b"[DONE]":
        return True
    try:
        decode_lenient(text)
    except NotJson:
        return False
    return True


def short_text(data: bytes) -> str:
    """Return data as text of at most 80 characters."""
    text = data.decode("utf-8", "replace").strip()
    return text if len(text) <= 80 else text[:79] + "…"
