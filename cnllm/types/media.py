"""Classify the files of a conversation, and convert content parts of every wire to `Media`."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from msgspec.structs import replace

from cnllm.types.parts import Media

__all__ = [
    "KIND_OF_PART",
    "NAME_KEYS",
    "MediaKind",
    "as_media",
    "data_url",
    "file_name",
    "from_url",
    "is_file_part",
    "is_pdf",
    "kind_of_url",
    "media_kind",
    "media_noun",
    "plain_mime",
    "read_data_url",
    "sound_format",
    "upload_name",
    "url_name",
]

MediaKind = Literal["image", "audio", "video", "file"]

_KINDS: tuple[MediaKind, ...] = ("image", "audio", "video", "file")
_KIND_BY_MAJOR_TYPE: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}
_KIND_BY_MIME: dict[str, MediaKind] = {
    "application/ogg": "audio",
    "application/mp4": "video",
    "application/x-mpegurl": "video",
}
_ENDINGS_BY_KIND: dict[MediaKind, str] = {
    "image": "png jpg jpeg jfif gif webp bmp tif tiff svg heic heif avif ico",
    "audio": "wav mp3 m4a oga ogg opus flac aac aif aiff amr pcm wma weba",
    "video": "mp4 m4v mov webm mkv avi mpeg mpg 3gp flv wmv ogv m3u8",
    "file": (
        "pdf txt md csv tsv json jsonl xml html htm rtf epub mobi doc docx xls xlsx ppt pptx odt ods odp zip gz tar "
        "log yaml yml toml py js ts java c cpp go rs sql tex"
    ),
}
_KIND_BY_ENDING: dict[str, MediaKind] = {
    ending: kind for kind, all_ in _ENDINGS_BY_KIND.items() for ending in all_.split()
}
_MIME_BY_ENDING = {
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "html": "text/html",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}
_ENDING_BY_MIME = {mime: ending for ending, mime in _MIME_BY_ENDING.items()}
NAME_KEYS = ("filename", "title")
"""Further keys of a medium that hold its name."""
_UNKNOWN_MIME = ("", "application/octet-stream", "binary/octet-stream")
KIND_OF_PART: dict[str, MediaKind] = {
    **{form.format(kind): kind for kind in _KINDS for form in ("{}", "{}_url", "input_{}")},
    "document": "file",
}
"""Types of content parts that hold a file, on every wire."""


def media_kind(media: Media) -> MediaKind:
    """Return the kind of a medium, by its MIME type, then by the ending of its name, then by the type of its part."""
    mime = media.type.partition(";")[0].strip().lower()
    url = media.url or ""
    if (mime in _KINDS or mime in _UNKNOWN_MIME) and url[:5].lower() == "data:":
        mime = url[5:].partition(",")[0].partition(";")[0].strip().lower() or mime
    if mime in _KIND_BY_MIME:
        return _KIND_BY_MIME[mime]
    major = mime.partition("/")[0]
    if "/" in mime and mime not in _UNKNOWN_MIME:
        return _KIND_BY_MAJOR_TYPE.get(major, "file")
    by_part = _KIND_BY_MAJOR_TYPE.get(mime, "file")
    by_name = _KIND_BY_ENDING.get(_ending(file_name(media) or "") or _ending(_url_path(url)))
    if by_name is None or (by_part == "audio" and by_name == "video"):  # a video container with sound only
        return by_part
    return by_name


def kind_of_url(url: str) -> MediaKind | None:
    """Return the kind that the ending of a URL's path names; None where it names none."""
    return _KIND_BY_ENDING.get(_ending(_url_path(url).rpartition("/")[2]))


def file_name(media: Media) -> str | None:
    """Return the name of a file, or None."""
    for key in NAME_KEYS:
        name = (media.extra or {}).get(key)
        if isinstance(name, str) and name:
            return str(name)
    return None


def url_name(media: Media) -> str | None:
    """Return the last name in the path of a medium's URL, or None."""
    name = unquote(_url_path(media.url or "").rpartition("/")[2])
    return name if "." in name else None


def upload_name(media: Media) -> str:
    """Return the name for an upload: the file's own, with an ending, from which endpoints infer its type."""
    name = file_name(media) or "document"
    if "." in name:
        return name
    mime = plain_mime(media)
    major, _, subtype = mime.partition("/")
    ending = subtype if subtype in _KIND_BY_ENDING else "txt" if major == "text" else "pdf"
    return f"{name}.{_ENDING_BY_MIME.get(mime, ending)}"


def is_pdf(media: Media) -> bool:
    """Whether a medium is a PDF, by its MIME type or its name."""
    return "pdf" in (
        media.type.lower().rpartition("/")[2],
        _ending(file_name(media) or "") or _ending(_url_path(media.url or "")),
    )


def media_noun(media: Media) -> str:
    """Return the word for a medium in messages."""
    return "PDF" if is_pdf(media) else media_kind(media)


def data_url(media: Media) -> str:
    """Return the URL of a medium; its data as a data URL where it has none."""
    if media.url is not None:
        return media.url
    return f"data:{media.type if '/' in media.type else plain_mime(media)};base64,{media.data}"


def read_data_url(media: Media) -> Media:
    """Return a medium with a data URL, in either of its fields, as one with the data; any other as it is."""
    url = media.url if media.data is None else media.data
    if url is None or url[:5].lower() != "data:":
        return media
    found = from_url(url, media_kind(replace(media, data=None, url=url)), media.extra)
    return media if found.data is None else replace(found, seal=media.seal)


def is_file_part(data: Any) -> bool:
    """Whether a content part of any wire is an image, a sound, a video or a file."""
    return isinstance(data, Mapping) and isinstance(kind := data.get("type"), str) and kind in KIND_OF_PART


def as_media(data: Mapping[str, Any]) -> Media | None:
    """Return a content part of any wire as `Media`; None for one that names a file stored at an endpoint."""
    kind = data.get("type")
    if not isinstance(kind, str) or kind not in KIND_OF_PART:
        return None
    inner = data.get(kind)
    if kind == "input_file":
        inner = {key: value for key, value in data.items() if key != "type"}
    elif kind in ("document", "image", "audio", "video") and isinstance(data.get("source"), Mapping):
        return _from_source(data, KIND_OF_PART[kind])
    elif kind in ("input_image", "input_video"):
        inner = data.get(f"{kind.removeprefix('input_')}_url")
    if isinstance(inner, str):
        extra_keys = {
            key: value for key, value in data.items() if key not in ("type", kind, f"{KIND_OF_PART[kind]}_url")
        }
        return from_url(inner, KIND_OF_PART[kind], extra_keys or None)
    if not isinstance(inner, Mapping):
        return None
    for key in ("file_data", "data", "url", "file_url"):
        text = inner.get(key)
        if isinstance(text, str) and text:
            extra = {name: value for name, value in inner.items() if name not in (key, "file_id") and value is not None}
            return _from_text(text, KIND_OF_PART[kind], extra or None)
    return None


def _from_source(data: Mapping[str, Any], kind: MediaKind) -> Media | None:
    """Return a block with a source, which is bytes in base64 or a URL, as media."""
    extra = {key: value for key, value in data.items() if key not in ("type", "source") and value is not None} or None
    match data["source"]:
        case {"type": "base64", "media_type": str(mime), "data": str(content)}:
            return Media(mime, content, None, None, extra)
        case {"type": "url", "url": str(url)}:
            return from_url(url, kind, extra)
        case {"type": "text", "data": str(text)}:
            return Media("text/plain", base64.b64encode(text.encode("utf-8", "replace")).decode(), None, None, extra)
    return None


def _from_text(text: str, kind: MediaKind, extra: dict[str, Any] | None) -> Media:
    """Return a URL, or bare base64 whose type only the name or the format shows, as media."""
    if ":" in text[:12]:
        return from_url(text, kind, extra)
    ending = str((extra or {}).get("format") or _ending(str((extra or {}).get("filename", "")))).lower()
    if kind == "file":
        mime = _MIME_BY_ENDING.get(ending, "application/pdf" if not ending else "application/octet-stream")
    else:
        mime = f"{kind}/{ending or 'wav'}"
    extra = {key: value for key, value in (extra or {}).items() if key != "format"}
    return Media(mime, text, None, None, extra or None)


def from_url(url: str, kind: MediaKind, extra: dict[str, Any] | None) -> Media:
    """Return a URL, or the data in a data URL, as media."""
    head, comma, content = url.partition(",")
    if comma and head[:5].lower() == "data:":
        mime = head[5:].partition(";")[0]
        if head.lower().endswith(";base64"):
            return Media(mime or _default_mime(kind, extra, content), content, None, None, extra)
        return Media(mime or "text/plain", base64.b64encode(unquote_to_bytes(content)).decode(), None, None, extra)
    return Media(kind, None, url, None, extra)


def _default_mime(kind: MediaKind, extra: dict[str, Any] | None, content: str) -> str:
    """Return the MIME type of data without one, for a picture by its first bytes."""
    if kind == "audio":
        return f"audio/{(extra or {}).get('format') or 'wav'}"
    return _picture_mime(content) or kind


def _picture_mime(content: str) -> str | None:
    """Return the MIME type of a picture by its first bytes; None where they do not show it."""
    return next((mime for start, mime in _BEGINNINGS.items() if content.startswith(start)), None)


def plain_mime(media: Media) -> str:
    """Return the MIME type of a medium without parameters and in its registered spelling, as endpoints compare it."""
    mime = media.type.partition(";")[0].strip().lower()
    if "/" not in mime and media.data is not None:
        mime = _picture_mime(media.data) or mime
    return _REGISTERED.get(mime, mime)


def sound_format(media: Media) -> str:
    """Return the format of a sound, in the words of the wires that name formats and not MIME types."""
    mime = plain_mime(media).partition("/")[2]
    return _FORMATS.get(mime, mime.removeprefix("x-"))


_BEGINNINGS = {"iVBORw0KGgo": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
"""The first characters of pictures in base64."""
_REGISTERED = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}
_FORMATS = {"mpeg": "mp3", "mpeg3": "mp3", "x-mpeg": "mp3", "wave": "wav", "vnd.wave": "wav", "x-pn-wav": "wav"}


def _url_path(url: str) -> str:
    """Return the path of a URL; empty for a data URL."""
    try:
        return urlsplit(url).path if url[:5].lower() != "data:" else ""
    except ValueError:
        return ""


def _ending(name: str) -> str:
    """Return the ending of a name, in lower case."""
    return name.rpartition(".")[2].lower() if "." in name else ""
