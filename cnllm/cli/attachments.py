"""Read attachments: text files, and pictures, sounds, videos and PDFs, recognised by their content."""

from __future__ import annotations

import base64
import functools
import itertools
import os
import re
import shlex
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from cnllm.cli.output.errors import UsageError, read_file
from cnllm.cli.output.stdio import read_stdin
from cnllm.config import keys
from cnllm.engine.history.media import media_problem
from cnllm.types import Media, Message, Part, Text
from cnllm.types.documents import as_document
from cnllm.types.media import is_pdf, kind_of_url, media_kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cnllm.registry import Registry
    from cnllm.registry.model import Model

__all__ = ["encoding_hint", "read_attachment", "read_files", "require_readable"]

_MAX_BYTES = 256 * 1024 * 1024  # no endpoint takes as much
_MAX_TEXT = 50_000_000  # bytes of one text file: no model reads as much; a device would never end
_SHOWN = 3  # models that an error names

_BY_CONTENT = ("image/png", "image/jpeg", "image/gif", "image/bmp", "image/webp")
_SIGNATURES: dict[str, bytes | tuple[bytes, ...]] = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": (b"GIF87a", b"GIF89a"),
    "application/pdf": b"%PDF-",
    "audio/mp3": (b"ID3\x02", b"ID3\x03", b"ID3\x04"),
    "audio/flac": b"fLaC\x00",
    "audio/ogg": b"OggS\x00",
    "audio/amr": (b"#!AMR\n", b"#!AMR-WB\n"),
    "image/tiff": (b"II*\x00", b"MM\x00*"),
    "video/webm": b"\x1aE\xdf\xa3",
}
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_BRANDS = {
    b"M4A ": "audio/m4a",
    b"M4B ": "audio/m4a",
    b"heic": "image/heic",
    b"mif1": "image/heif",
    b"avif": "image/avif",
}
_SCHEME = r"([A-Za-z][A-Za-z0-9+.-]+)://"
_NOUNS = {"image": "images", "audio": "audio", "video": "video", "file": "files"}


def read_attachment(source: str, stdin: BinaryIO | None = None) -> Part:
    """Read a file, stdin (`-`) or a URL as a part of a message. A text file becomes text.

    A URL is passed on as it is. Its ending says what it is; without one it is a picture.
    """
    if not source.strip():
        raise UsageError("-a names nothing", "name a file, a URL, or - for stdin")
    if scheme := re.match(_SCHEME, source):
        return _from_url(source, scheme[1])
    if source == "-":
        name = "stdin"
        data = read_stdin(stdin, _MAX_BYTES, "-a -") if stdin is not None else b""
    else:
        name = Path(source).name
        hint = "name a file that can be read, or a URL"
        data = read_file(Path(source).expanduser(), f"-a {source}", hint, _MAX_BYTES)
    if not data:
        raise UsageError(f"-a {source}: it is empty", "nothing was sent")
    media_type = _media_type(data)
    if media_type is None:
        from mimetypes import guess_type  # reads the system's tables, so only for the rare kinds

        guess = guess_type(name)[0] if _decode_text(data) is None else None
        if guess is None or not guess.startswith("image/") or guess in _BY_CONTENT:
            return _as_text(source, name, data)
        media_type = guess
    extra = {"filename": name} if media_type == "application/pdf" and source != "-" else None
    return Media(media_type, base64.b64encode(data).decode(), None, None, extra)


def _from_url(url: str, scheme: str) -> Media:
    if scheme.lower() not in ("http", "https"):
        raise UsageError(f"-a {url}: endpoints read http and https addresses only", "attach a file by its path")
    url = scheme.lower() + url[len(scheme) :]
    return Media(kind_of_url(url) or "image", url=url)


def _media_type(data: bytes) -> str | None:
    """Return the MIME type of a content; None for text and unknown forms."""
    for media_type, signatures in _SIGNATURES.items():
        if data.startswith(signatures):
            return media_type
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], "video/mp4")
    if data[:4] == b"FORM" and data[8:11] == b"AIF":
        return "audio/aiff"
    if data[:2] == b"BM" and len(data) > 14 and data[6:10] == bytes(4):
        return "image/bmp"
    # A frame of MPEG audio: layer III, or AAC. Layer I is in no use, and begins as a text in UTF-16 does.
    if len(data) > 2 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0 and data[1] & 0x06 != 0x06:
        return "audio/aac" if data[1] & 0x06 == 0 else "audio/mp3"
    return "application/pdf" if b"%PDF-" in data[:1024] and b"\0" not in data[:1024].partition(b"%PDF-")[0] else None


def _as_text(source: str, name: str, data: bytes) -> Text:
    text = _decode_text(data)
    if text is None:
        raise UsageError(
            f"-a {source}: it is neither a picture, PDF, sound or video nor text in UTF-8",
            "convert it first, for example to PDF, PNG or MP3",
        )
    return Text(as_document(name, text))


def _decode_text(data: bytes) -> str | None:
    """Return a text in UTF-8, or in UTF-16 with its mark; None for other bytes."""
    try:
        text = data.decode("utf-16" if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig")
        return None if "\0" in text else text
    except UnicodeDecodeError:
        return None


# ── text files ───────────────────────────────────────────────────────────────
def read_files(patterns: tuple[str, ...]) -> str:
    """Return the text of all files, each between marks with its name. A pattern stands for the files that match it."""
    names = list(dict.fromkeys(name for pattern in patterns for name in _expand(pattern)))
    return "\n\n".join(as_document(_shown_name(name), _read_text(name)) for name in names)


def _shown_name(name: str) -> str:
    """Return the name that the model sees: a path below the current folder, else the file's name alone."""
    path = Path(os.path.normpath(name))
    if not path.is_absolute() and path.parts[:1] != ("..",):
        return path.as_posix()
    folder = Path.cwd()
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


def _expand(pattern: str) -> Iterator[str]:
    if pattern == "-":
        raise UsageError("-f - is not needed", "stdin goes into the prompt without it")
    if not pattern.strip():
        raise UsageError("-f names no file", "name a text file, or a pattern such as '*.md'")
    if pattern.lower().startswith(("http://", "https://")):
        raise UsageError(f"-f {pattern}: -f reads files of this machine", "curl URL | cnllm call … - reads an address")
    import glob  # most calls have no files

    path = Path(pattern).expanduser()
    if path.exists() or not glob.has_magic(pattern):
        if path.is_dir():
            raise UsageError(f"-f {pattern}: this is a folder", f"name its files: -f '{pattern.rstrip('/')}/**/*.md'")
        yield str(path)
        return
    # only reads
    names = [name for name in sorted(glob.glob(str(path), recursive=True)) if not Path(name).is_dir()]
    if not names:
        raise UsageError(f"-f {pattern}: no file has such a name", "** finds files in all folders below")
    yield from names


def _read_text(name: str) -> str:
    data = read_file(name, f"-f {name}", "name a text file that can be read", _MAX_TEXT)
    if data.startswith(b"%PDF-"):  # some have no byte that text lacks
        raise UsageError(f"-f {name}: this is a PDF", f"attach it: -a {name}")
    text = _decode_text(data)
    if text is None:
        raise UsageError(f"-f {name}: this is not text in UTF-8", encoding_hint(data, name))
    return text


def encoding_hint(data: bytes, name: str, *, attaches: bool = True) -> str:
    """Return what to do with bytes that are no UTF-8: attach a medium, convert text. `name` is a file, or - for stdin.

    `attaches` is whether the command has `-a`. Text in GB18030 is not converted here: of one file nobody can tell
    whether it is that, or another old encoding.
    """
    quoted = shlex.quote(name)
    is_media = _media_type(data) is not None
    try:
        is_text = not is_media and b"\0" not in data and bool(data.decode("gb18030"))
    except UnicodeDecodeError:
        is_text = False
    if not is_text and not attaches:
        return "pipe UTF-8 in"
    if not is_text:
        return f"attach it: -a {quoted}" if is_media else f"-a {quoted} attaches a picture, a PDF, a sound or a video"
    return f"convert it first, for example: iconv -f GB18030 -t UTF-8{'' if name == '-' else f' {quoted}'} | cnllm …"


# ── what the model reads ─────────────────────────────────────────────────────
def require_readable(registry: Registry, model: Model, messages: Sequence[Message], options: dict[str, Any]) -> None:
    """Raise `UsageError` for a medium that the model does not read, and name models that read it.

    `on_unsupported`, also as a default of the model, says that the user wants something else.
    """
    options = {**(model.flags.call or {}), **options}
    if "on_unsupported" in options:
        return
    media = [part for message in messages for part in message.parts if type(part) is Media]
    if not media:
        return
    for medium in media:
        reason = media_problem(medium, model.flags, model.protocol)
        if reason is None or (options.get("pdf_text") and is_pdf(medium)):
            continue
        noun = "PDFs" if medium.type == "application/pdf" else _NOUNS[media_kind(medium)]
        if reason == "the model does not read it":
            message = f"{model.name} does not read {noun}"
        elif medium.url is not None:
            message = f"{model.name} does not accept {noun} by URL"
        else:
            message = f"{noun} ({medium.type}) for {model.name}: {reason}"
        names = _readers(registry, model, medium)
        hint = f"these do: {', '.join(names)}" if names else "no described model does"
        if reason.startswith("it is unknown"):
            hint += "; to send it nevertheless: -p on_unsupported=send"
        raise UsageError(message, hint)


def _readers(registry: Registry, model: Model, medium: Media) -> list[str]:
    """Return models that read a medium: of the same provider first, then of those whose key is set."""
    from cnllm.model_facts import summary

    listing, kind = summary.listing(), media_kind(medium)
    short: dict[str, str] = {}
    for alias in listing.aliases:  # as they are resolved, which `prefer` changes
        short.setdefault(registry.resolve(alias).name, alias)

    @functools.cache
    def has_key(provider: str) -> bool:
        names = registry.endpoint(provider).flags.keys
        return not names or keys.find_key(names) is not None

    def is_reader(name: str) -> bool:
        other = registry.resolve(name)
        return media_problem(medium, other.flags, other.protocol) is None

    candidates = []
    for name in listing.models:
        row = listing.row(name)
        if row["status"] in ("retired", "preview") or not {kind, "image"} & set(row["input"] or ()):
            continue
        own, is_known = row["provider"] == model.provider, has_key(row["provider"])
        candidates.append(((not own, not is_known, name not in short, _newest_first(row["id"])), name))
    names = (name for _, name in sorted(candidates))
    return [short.get(name, name) for name in itertools.islice(filter(is_reader, names), _SHOWN)]


def _newest_first(id: str) -> list[float]:
    """Return the numbers of an id as a rank, a higher version first. A date in it is no version."""
    numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", id)]
    return [-number for number in numbers if number < 1000]
