"""Read the text in files and in blocks of content: text files, documents, search results, references to tools."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import msgspec

from cnllm.types import checks
from cnllm.types.convert import result_text
from cnllm.types.media import as_media, file_name, is_pdf
from cnllm.types.parts import CACHE_MARK, Media, Text

__all__ = [
    "TOOL_CHANGES",
    "as_document",
    "block_kind",
    "block_parts",
    "decoded_text",
    "file_text",
    "name_line",
    "pdf_text",
    "unreadable_line",
]

_TEXT_TYPES = ("text", "message")
_TEXT_SUFFIXES = ("+xml", "+json", "+yaml", "+toml")
_OTHER_TYPES = ("", "file", "application", "binary")
"""Types whose bytes decide whether a file is text, as of source code and JSON."""
_TEXT_LIKE_VIDEO = "video/mp2t"
"""The type that programs give to files named *.ts, which also is the ending of TypeScript."""
_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def as_document(name: str | None, text: str, context: str | None = None) -> str:
    """Return a text between marks that name it, with what its sender says of it."""
    attribute = "" if name is None else f' name="{_attribute(name)}"'
    about = f"<context>\n{context.strip()}\n</context>\n" if context and context.strip() else ""
    return f"<file{attribute}>\n{about}{text.rstrip()}\n</file>"


def decoded_text(media: Media) -> str | None:
    """Return the content of a text file; None for any other file, and for one without its content."""
    mime, _, parameters = media.type.lower().partition(";")
    mime = mime.strip()
    major = mime.partition("/")[0]
    is_text = major in _TEXT_TYPES or mime.endswith(_TEXT_SUFFIXES)
    may_be_text = major in _OTHER_TYPES and not mime.startswith("application/vnd.") and not is_pdf(media)
    if media.data is None or not (is_text or may_be_text or mime == _TEXT_LIKE_VIDEO):
        return None
    try:
        data = media.data.translate(_WHITESPACE)
        content = base64.b64decode(data + "=" * (-len(data) % 4), validate=True)
    except ValueError:
        return None
    text = _decode(content, parameters)
    if text is None or (_CONTROL.search(text) if not is_text else "\0" in text):
        return None
    return text


_WHITESPACE = dict.fromkeys(map(ord, " \r\n\t"))


def _decode(content: bytes, parameters: str) -> str | None:
    """Return bytes as text, by their character set or their byte order mark, else as UTF-8."""
    match = re.search(r"charset\s*=\s*\"?([\w.:-]+)", parameters)
    marked = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    for charset in (marked, match[1]) if match else (marked,):
        try:
            return content.decode(charset)
        except (UnicodeError, LookupError):
            continue
    return None


def file_text(media: Media) -> str | None:
    """Return the text of a file for the model, between marks that name it; None where it is no text file."""
    text = decoded_text(media)
    return None if text is None else as_document(file_name(media), text, _context(media))


def pdf_text(media: Media) -> str | None:
    """Return the text of a PDF, between marks that name it; empty where it has none, None where it cannot be read.

    Raises `ImportError` without the extra `pdf`.
    """
    if media.data is None:
        return None
    import logging  # a call without a PDF does without it

    from pypdf import PdfReader
    from pypdf.errors import DependencyError, PyPdfError

    logger = logging.getLogger("pypdf")
    if not logger.handlers:  # else a program without logging prints its warnings on stderr
        logger.addHandler(logging.NullHandler())

    texts: list[str] = []
    room = _MAX_PDF_TEXT
    try:
        pages = PdfReader(BytesIO(base64.b64decode(media.data))).pages
        for number, page in enumerate(pages):
            if number >= _MAX_PDF_PAGES or room <= 0:
                texts.append(f"[{len(pages) - number} more pages are left out]")
                break
            texts.append(page.extract_text().strip()[:room])
            room -= len(texts[-1])
    except (PyPdfError, DependencyError, OSError, *checks.FAILURES):  # a file that is broken, or has a password
        return None
    text = result_text(texts)
    return as_document(file_name(media), text, _context(media)) if text else ""


_MAX_PDF_PAGES = 1_000
_MAX_PDF_TEXT = 2_000_000  # characters; no model's window holds more


def _context(media: Media) -> str | None:
    """Return what a document is about, from the further keys of its medium."""
    value = (media.extra or {}).get("context")
    return value if isinstance(value, str) else None


def block_parts(data: Any) -> list[Text | Media] | None:
    """Return a block of content as text and media; None for a block that has neither.

    These are documents with blocks in them, results of a search, references to tools, tools that come or go, summaries
    of what came before, and tabs of a browser.
    """
    match data:
        case {"type": "document", "source": {"type": "content", "content": str() | list() as content}}:
            texts, media = _flatten(content)
            title, context = (str(data[key]) if data.get(key) else None for key in ("title", "context"))
            return [Text(as_document(title, result_text(texts), context)), *media]
        case {"type": "search_result", "content": str() | list() as content}:
            texts, media = _flatten(content)
            keys = "".join(f' {key}="{_attribute(str(data[key]))}"' for key in ("title", "source") if data.get(key))
            return [Text(f"<search_result{keys}>\n{result_text(texts).rstrip()}\n</search_result>"), *media]
        case {"type": "tool_reference", "tool_name": str(name)}:
            return [Text(f"The tool {name} can be called now.")]
        case {"type": "tool_addition" | "tool_removal" as kind, "tool": {"type": str()} as tool}:
            return [Text(f"{_tool_words(tool)} {TOOL_CHANGES[kind]}.")]
        case {"type": "compaction", "content": str(content)} if content:
            return [Text(f"<summary>\n{content.strip()}\n</summary>")]
        case {"type": "browser_state", "tabs": list()}:
            fields = {key: value for key, value in data.items() if key != CACHE_MARK}
            return [Text(msgspec.json.encode(fields).decode())]
    return None


TOOL_CHANGES = {"tool_addition": "can be called now", "tool_removal": "can no longer be called"}
"""Blocks by which a message of the system changes the tools, and the words for a model that does not take them."""


def _tool_words(tool: Mapping[str, Any]) -> str:
    """Return the words for the tool, or the tools of a server, that a block names."""
    definition = tool.get("definition")
    name = definition.get("name") if isinstance(definition, Mapping) else tool.get("name")
    return f"The tool {name}" if isinstance(name, str) else f"The tools of {tool.get('server_name') or 'a server'}"


def _flatten(content: str | list[Any]) -> tuple[list[str], list[Media]]:
    """Return the texts and the media in the content of a block."""
    if isinstance(content, str):
        return [content], []
    texts: list[str] = []
    media: list[Media] = []
    for block in content:
        if isinstance(block, Mapping) and isinstance(text := block.get("text"), str):
            texts.append(text)
        elif (parts := block_parts(block)) is not None:
            texts += [part.text for part in parts if type(part) is Text]
            media += [part for part in parts if type(part) is Media]
        elif isinstance(block, Mapping) and (medium := as_media(block)) is not None:
            media.append(medium)
        else:
            texts.append(unreadable_line(block_kind(block)))
    return texts, media


def block_kind(data: Any) -> str:
    """Return the type of a block of content: its own word, else its first key."""
    if not isinstance(data, Mapping):
        return "block"
    kind = data.get("type")
    return kind if isinstance(kind, str) and kind else str(next(iter(data), "block"))


def unreadable_line(noun: str, name: str | None = None) -> str:
    """Return the line that stands in the place of what a model cannot read."""
    return f"[{noun}{f' {_attribute(name)}' if name else ''}: this model cannot read it]"


def name_line(noun: str, name: str) -> str:
    """Return the line with the name of a file that follows, where the file itself has no field for it."""
    return f"[{noun} {_attribute(name)}]"


def _attribute(text: str) -> str:
    """Return a text for the value of an attribute."""
    return " ".join(text.replace('"', "'").split())
