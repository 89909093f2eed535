"""Read a multipart form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from email.message import EmailMessage

__all__ = ["UploadForm", "read_form"]


class UploadForm(Struct, frozen=True):
    """The fields of a form, and its one file. `filename` is None if there is no file."""

    fields: dict[str, str]
    content: bytes = b""
    filename: str | None = None


def read_form(content_type: str, body: bytes) -> UploadForm:
    """Return the fields and the file of a form. Raise `ValueError` for a body that is none."""
    kind = _headers(b"content-type: " + content_type.encode("latin-1", "replace"))
    boundary = kind.get_boundary()
    if kind.get_content_type() != "multipart/form-data" or not boundary:
        raise ValueError("the body is no multipart/form-data")
    # The parser of `email` reads the heads of parts alone: it takes seconds for a file of a usual size.
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1"))
    if not parts or not parts[-1].startswith(b"--"):
        raise ValueError("the form has no end")
    fields: dict[str, str] = {}
    file: tuple[bytes, str] | None = None
    for part in parts[:-1]:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        headers = _headers(head)
        name = headers.get_param("name", header="content-disposition")
        if not isinstance(name, str):
            raise ValueError("a part of the form has no name")
        if name == "file":
            file = (content, headers.get_filename() or "")
        else:
            fields[name] = content.decode("utf-8", "replace")
    return UploadForm(fields) if file is None else UploadForm(fields, *file)


def _headers(text: bytes) -> EmailMessage:
    from email.message import EmailMessage  # slow to import, and few need it
    from email.parser import BytesParser
    from email.policy import HTTP

    message = BytesParser(policy=HTTP).parsebytes(text + b"\r\n\r\n", headersonly=True)
    assert isinstance(message, EmailMessage)
    return message
