"""Files of a conversation: which kind one is, and content parts of every wire as `Media`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import unquote_to_bytes, urlsplit

from cnllm.types import Media

__all__ = [
    "KIND_OF_PART",
    "MediaKind",
    "as_media",
    "data_url",
    "file_name",
    "is_file_part",
    "is_pdf",
    "media_kind",
    "upload_name",
]

MediaKind = Literal["image", "audio", "video", "file"]

_KINDS: tuple[MediaKind, ...] = ("image", "audio", "video", "file")
_MAJOR: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}
_MIME: dict[str, MediaKind] = {"application/ogg": "audio", "application/mp4": "video", "application/x-mpegurl": "video"}
_BY_ENDING: dict[MediaKind, str] = {
    "image": "png jpg jpeg jfif gif webp bmp tif tiff svg heic heif avif ico",
    "audio": "wav mp3 m4a oga ogg opus flac aac aif aiff amr pcm wma weba",
    "video": "mp4 m4v mov webm mkv avi mpeg mpg 3gp flv wmv ogv m3u8",
    "file": (
        "pdf txt md csv tsv json jsonl xml html htm rtf epub mobi doc docx xls xlsx ppt pptx odt ods odp zip gz tar "
        "log yaml yml toml py js ts java c cpp go rs sql tex"
    ),
}
_ENDINGS: dict[str, MediaKind] = {ending: kind for kind, all_ in _BY_ENDING.items() for ending in all_.split()}
_MIME_OF = {
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "html": "text/html",
}
_UNKNOWN = ("", "application/octet-stream", "binary/octet-stream")
KIND_OF_PART: dict[str, MediaKind] = {
    "image_url": "image",
    "input_image": "image",
    "image": "image",
    "audio_url": "audio",
    "input_audio": "audio",
    "audio": "audio",
    "video_url": "video",
    "input_video": "video",
    "video": "video",
    "file": "file",
    "file_url": "file",
    "input_file": "file",
    "document": "file",
}
"""The types of content parts that hold a file, on every wire."""


def media_kind(media: Media) -> MediaKind:
    """Return what a medium is: its MIME type decides, then the ending of its name, then the type of its part."""
    mime = media.type.partition(";")[0].strip().lower()
    url = media.url or ""
    if (mime in _KINDS or mime in _UNKNOWN) and url[:5].lower() == "data:":
        mime = url[5:].partition(",")[0].partition(";")[0].strip().lower() or mime
    if mime in _MIME:
        return _MIME[mime]
    major = mime.partition("/")[0]
    if "/" in mime and mime not in _UNKNOWN:
        return _MAJOR.get(major, "file")
    part = _MAJOR.get(mime, "file")
    named = _ENDINGS.get(_ending(file_name(media) or "") or _ending(_path(url)))
    if named is None or (part == "audio" and named == "video"):  # a container of sound alone
        return part
    return named


def file_name(media: Media) -> str | None:
    """Return the name that a file came with, or None."""
    for key in ("filename", "title"):
        name = (media.extra or {}).get(key)
        if isinstance(name, str) and name:
            return str(name)
    return None


def upload_name(media: Media) -> str:
    """Return the name that a file goes out by: its own, with an ending, by which endpoints tell what it is."""
    name = file_name(media) or "document"
    return name if "." in name else f"{name}.pdf"


def is_pdf(media: Media) -> bool:
    """Whether a medium is a PDF, by its MIME type or its name."""
    return "pdf" in (
        media.type.lower().rpartition("/")[2],
        _ending(file_name(media) or "") or _ending(_path(media.url or "")),
    )


def data_url(media: Media) -> str:
    """Return the URL of a medium; its data as a data URL where it has none."""
    return media.url if media.url is not None else f"data:{media.type};base64,{media.data}"


def is_file_part(data: Any) -> bool:
    """Whether a content part of any wire is a picture, a sound, a video or a file."""
    return isinstance(data, Mapping) and isinstance(kind := data.get("type"), str) and kind in KIND_OF_PART


def as_media(data: Mapping[str, Any]) -> Media | None:
    """Return a content part of any wire as `Media`; None for one that names a file which an endpoint keeps."""
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
        beside = {key: value for key, value in data.items() if key not in ("type", kind, f"{KIND_OF_PART[kind]}_url")}
        return _from_url(inner, KIND_OF_PART[kind], beside or None)
    if not isinstance(inner, Mapping):
        return None
    for key in ("file_data", "data", "url", "file_url"):
        where = inner.get(key)
        if isinstance(where, str) and where:
            extra = {name: value for name, value in inner.items() if name not in (key, "file_id") and value is not None}
            return _from_text(where, KIND_OF_PART[kind], extra or None)
    return None


def _from_source(data: Mapping[str, Any], kind: MediaKind) -> Media | None:
    """A block with a source: bytes in base64, or a URL."""
    extra = {key: value for key, value in data.items() if key not in ("type", "source") and value is not None} or None
    match data["source"]:
        case {"type": "base64", "media_type": str(mime), "data": str(content)}:
            return Media(mime, content, None, None, extra)
        case {"type": "url", "url": str(url)}:
            return _from_url(url, kind, extra)
    return None


def _from_text(where: str, kind: MediaKind, extra: dict[str, Any] | None) -> Media:
    """A URL, or bare base64 of which only the name or the format tells what it is."""
    if ":" in where[:12]:
        return _from_url(where, kind, extra)
    ending = str((extra or {}).get("format") or _ending(str((extra or {}).get("filename", "")))).lower()
    if kind == "file":
        mime = _MIME_OF.get(ending, "application/pdf" if not ending else "application/octet-stream")
    else:
        mime = f"{kind}/{ending or 'wav'}"
    extra = {key: value for key, value in (extra or {}).items() if key != "format"}
    return Media(mime, where, None, None, extra or None)


def _from_url(url: str, kind: MediaKind, extra: dict[str, Any] | None) -> Media:
    head, comma, content = url.partition(",")
    if comma and head[:5].lower() == "data:":
        mime = head[5:].partition(";")[0]
        if head.lower().endswith(";base64"):
            return Media(mime or _bare(kind, extra), content, None, None, extra)
        import base64

        return Media(mime or "text/plain", base64.b64encode(unquote_to_bytes(content)).decode(), None, None, extra)
    return Media(kind, None, url, None, extra)


def _bare(kind: MediaKind, extra: dict[str, Any] | None) -> str:
    """The MIME type of data that comes without one."""
    return f"audio/{(extra or {}).get('format') or 'wav'}" if kind == "audio" else kind


def _path(url: str) -> str:
    try:
        return urlsplit(url).path if url[:5].lower() != "data:" else ""
    except ValueError:
        return ""


def _ending(name: str) -> str:
    return name.rpartition(".")[2].lower() if "." in name else ""
