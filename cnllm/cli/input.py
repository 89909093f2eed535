"""Read the user's message: text from the command line and from stdin, and files."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

from cnllm.cli.output import stdio
from cnllm.cli.output.errors import UsageError
from cnllm.system import files
from cnllm.system.files import MOST_BYTES
from cnllm.types import Message, Part, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cnllm.cli.call_template import FilledTemplate

__all__ = ["decode_argument", "read_call", "read_extras", "read_messages", "read_text"]

PATIENCE = 3.0
"""Seconds of silence after which a line tells the user that the program waits for stdin."""

_HINT = 'give it in quotes: cnllm "Why?", or pipe it in'


def read_call(params: dict[str, Any], template: FilledTemplate) -> list[Message]:
    """Build the first messages of a call from its options: text, files and attachments."""
    attachments, text = params["attachments"], params["text"]
    takes_stdin = "-" in attachments
    if takes_stdin and (text == "-" or attachments.count("-") > 1):
        raise UsageError("stdin is named twice", "give - once: as the text, or for -a")
    if text is not None and (params["files"] or attachments) and os.path.isfile(text):
        raise UsageError(
            f"{text} is a file, but it stands where the text goes",
            "one -f takes one file: quote a pattern, -f '*.md', or repeat -f",
        )
    required = template.needs_text and not (attachments or params["files"])
    if takes_stdin:
        text = "" if text is None else decode_argument(text, "the text")
    else:
        text = read_text(text, required=required)
    extras = read_extras(params["files"], attachments)
    return read_messages(template.prompt(text), params["system"], extras)


def read_extras(files: tuple[str, ...], attachments: tuple[str, ...]) -> list[Part]:
    """Read text files and attachments as parts of a message, the text first."""
    if not files and not attachments:
        return []
    from cnllm.cli.attachments import read_attachment, read_files

    stdin = getattr(sys.stdin, "buffer", None)
    media = [read_attachment(source, stdin) for source in attachments]
    return [Text(read_files(files)), *media] if files else media


def read_messages(text: str, system: str | None, extras: Sequence[Part] = ()) -> list[Message]:
    """Build the first messages of a call: the system message, if any, and the user's.

    Text of files goes before the question, so that the next question about them can be answered from the cache.
    """
    texts = [part.text for part in extras if type(part) is Text] + ([text] if text else [])
    media = [part for part in extras if type(part) is not Text]
    question = Message("user", [*([Text("\n\n".join(texts))] if texts else []), *media])
    return [Message("system", [Text(decode_argument(system, "--system"))]), question] if system else [question]


def read_text(argument: str | None, *, required: bool = True, attaches: bool = True) -> str:
    """Read TEXT, or stdin if TEXT is absent or `-`. If both have text, join them with a blank line.

    `attaches` is whether the command has `-a`.
    """
    if argument == "-":
        text = _stdin(sys.stdin, wait=True, attaches=attaches)
    elif argument is None:
        typing = sys.stdin is not None and sys.stdin.isatty()
        if typing and required:
            raise UsageError("there is no text", _HINT)
        text = "" if typing else _stdin(sys.stdin, wait=True, attaches=attaches)
    else:
        piped = _stdin(sys.stdin, wait=False, attaches=attaches)
        text = decode_argument(argument, "the text")
        if piped.strip():
            text = f"{text}\n\n{piped}" if text.strip() else piped
    if required and not text.strip():
        raise UsageError("the prompt is empty", _HINT)
    return text if text.strip() else ""


def _stdin(stream: object, *, wait: bool, attaches: bool) -> str:
    """Read all of stdin. Without `wait`, read only a pipe or a file: other kinds of stdin are not for this program."""
    raw: BinaryIO | None = getattr(stream, "buffer", None)
    if raw is None:
        return ""
    if not wait and not stdio.is_piped(raw):
        return ""
    if stdio.is_piped(raw) and files.wait_readable(raw.fileno(), PATIENCE) is False:
        stdio.print_line("cnllm: waiting for stdin (use < /dev/null if nothing comes)")
    data = stdio.read_stdin(raw, MOST_BYTES, "stdin")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        from cnllm.cli.attachments import encoding_hint

        line = data.count(b"\n", 0, error.start) + 1
        message = f"stdin is not UTF-8: byte 0x{data[error.start]:02x} in line {line}"
        raise UsageError(message, encoding_hint(data, "-", attaches=attaches)) from None


def decode_argument(argument: str, label: str) -> str:
    """Return the argument. Raise if it is not UTF-8: Python decodes bytes that the locale lacks to lone surrogates.

    A locale without letters beyond ASCII lacks all of them, though the bytes are UTF-8.
    """
    try:
        is_decoded = not any("\ud800" <= char <= "\udfff" for char in argument)
        return argument if is_decoded else os.fsencode(argument).decode()
    except UnicodeError:
        raise UsageError(f"{label} is not UTF-8", "set LANG to a UTF-8 locale, or pipe UTF-8 in") from None
