"""Make messages of the cells of a row: text, images, files, and whole conversations."""

from __future__ import annotations

import base64
import io
from typing import Any

from daft.daft import guess_mimetype_from_content
from daft.dependencies import np, pil_image
from daft.file import File

from cnllm.types import Media, Message, Text

__all__ = ["ContentError", "messages_of"]


class ContentError(ValueError):
    """A cell that cannot be sent."""


def messages_of(cells: tuple[Any, ...]) -> list[Any]:
    """Return the messages of a row. A cell that is a list of messages comes first, the others are one user message.

    Raises `ContentError` for a cell that cannot be sent.
    """
    messages: list[Any] = []
    parts: list[Text | Media] = []
    for cell in cells:
        if isinstance(cell, list):
            messages += [_message(item) for item in cell]
        elif cell is not None:
            parts.append(_part(cell))
    return [*messages, Message.user(parts)] if parts else messages


def _message(item: Any) -> dict[str, Any]:
    """Return a message of a conversation. A struct of Daft has all keys; those without a value are left out."""
    if not isinstance(item, dict) or not item.get("role"):
        raise ContentError(f"a list in prompt holds messages with role and content, not {type(item).__name__}")
    return {name: value for name, value in item.items() if value is not None or name == "content"}


def _part(cell: Any) -> Text | Media:
    if isinstance(cell, str):
        return Text(cell)
    if isinstance(cell, File):
        with cell.open() as file:
            return _file_part(file.read(), cell.mime_type())
    if isinstance(cell, bytes):
        return _file_part(cell, guess_mimetype_from_content(cell))
    if np.module_available() and isinstance(cell, np.ndarray):
        return _image_part(cell)
    raise ContentError(f"prompt takes text, bytes, images and files, not {type(cell).__name__}")


def _file_part(data: bytes, mime: str | None) -> Text | Media:
    """Return a file as a part. One that is text goes as text, in a tag with its type as Daft's own providers do."""
    kind = (mime or "").partition(";")[0].strip().lower()
    if kind.startswith("text/"):
        tag = f"file_{kind.replace('/', '_')}"
        return Text(f"<{tag}>{data.decode('utf-8', 'replace')}</{tag}>")
    if kind in ("", "application/octet-stream"):
        try:
            return Text(data.decode())
        except UnicodeDecodeError:
            raise ContentError(f"{len(data)} bytes are neither text nor a known type of file") from None
    return Media(kind, base64.b64encode(data).decode())


def _image_part(pixels: Any) -> Media:
    if not pil_image.module_available():
        raise ContentError("an image column needs pillow to be sent: pip install pillow")
    file = io.BytesIO()
    pil_image.fromarray(pixels).save(file, "PNG")
    return Media("image/png", base64.b64encode(file.getvalue()).decode())
