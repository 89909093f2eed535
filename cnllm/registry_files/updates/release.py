"""Check, install and make data releases: one file with the signature of a maintainer.

The file begins with three comment lines: what it is, the signature with the name of its key, and the SHA-256 of the
rest. The rest is a data file with `made_for` and the table `release`. The signature covers every byte of the rest.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cnllm.config.signatures import is_signed
from cnllm.errors import CnllmError, RegistryError
from cnllm.registry.check import SCHEMA, require_valid
from cnllm.registry.data_layer import is_outdated, release_version
from cnllm.registry.documents import Document, parse
from cnllm.registry.files import RELEASE, data_folder
from cnllm.registry_files.updates.data_store import replace_data_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["MAX_BYTES", "Release", "check_release", "install_release", "shipped_keys", "signed_release"]

MAX_BYTES = 16 * 1024 * 1024
"""The largest release that is read."""

_TITLE = b"# cnllm data release\n"
_HEAD = re.compile(
    rb"# cnllm data release\n# ed25519 ([a-z0-9-]{1,40}) ([A-Za-z0-9+/]{86}==)\n# sha256 ([0-9a-f]{64})\n"
)
_UNCHANGED = "nothing was changed"


class Release(NamedTuple):
    """A data release whose signature and content are right: its version, its key's name, and the file."""

    version: str
    key: str
    document: Document


def shipped_keys() -> dict[str, bytes]:
    """Return the public keys that come with the package, by name."""
    path = Path(__file__).with_name("release_keys.toml")
    keys: dict[str, str] = parse(path.read_bytes(), path.name)["keys"]
    return {name: base64.b64decode(key, validate=True) for name, key in keys.items()}


def require_keys(keys: Mapping[str, bytes]) -> None:
    """Raise `CnllmError` where there is no key that could have signed a release."""
    if not keys:
        raise CnllmError(
            "this version of cnllm has no maintainer's key, so it installs no data release",
            hint="upgrade cnllm itself, or use `cnllm registry update`",
        )


def check_release(content: bytes, label: str, keys: Mapping[str, bytes]) -> Release:
    """Return the release in a file. Raises `RegistryError` with what is wrong.

    One of the keys must have signed exactly these bytes, and they must hold no more than a release may hold.
    """
    require_keys(keys)
    error = partial(RegistryError, file=label, hint=_UNCHANGED)
    if len(content) > MAX_BYTES:
        raise error("is too large for a data release")
    head = _HEAD.match(content)
    if head is None:
        raise error("is not a data release: its first lines are wrong")
    key, body = head[1].decode(), content[head.end() :]
    if key not in keys:
        raise error(f"is signed with the key {key}, which is not a maintainer's")
    signature = base64.b64decode(head[2])
    if base64.b64encode(signature) != head[2] or not is_signed(_TITLE + body, signature, keys[key]):
        raise error(f"is not what the key {key} signed")
    if hashlib.sha256(body).hexdigest().encode() != head[3]:
        raise error("is damaged: its SHA-256 is wrong")
    data = parse(content, label)
    if type(data.get("schema")) is int and data["schema"] > SCHEMA:
        raise error(f"has schema {data['schema']}; this cnllm reads schema {SCHEMA}", hint="upgrade cnllm")
    document = Document(Path(label), label, content, data, builtin=False, is_data=True)
    require_valid(document)
    version = release_version(document)
    if version is None or "made_for" not in data:
        raise error("names no release or no version of cnllm")
    if is_outdated(document):
        raise error(f"was made for cnllm {data['made_for']}; the data of this cnllm are newer")
    return Release(version, key, document)


def install_release(release: Release) -> Path:
    """Install a release. Raises `RegistryError` for one that is not newer than the present one."""
    label, head = release.document.label, release.document.data["release"]
    path = Path(data_folder()) / RELEASE

    def require_older(present: bytes | None) -> None:
        if present is None or present == release.document.text:
            return
        installed = Document(path, str(path), present, parse(present, str(path)), builtin=False, is_data=True)
        old = installed.data.get("release")
        if (
            old is not None
            and not is_outdated(installed)
            and (head["serial"], head["date"]) <= (old["serial"], old["date"])
        ):
            raise RegistryError(
                f"is release {release.version}, which is not newer than {release_version(installed)}, the present one",
                file=label,
                hint="`cnllm registry rollback release` brings the one before back",
            )

    return replace_data_file(RELEASE, release.document.text, require_older)


def signed_release(body: bytes, key_name: str, key: Ed25519PrivateKey) -> bytes:
    """Return the file of a release with this content, signed."""
    signature = base64.b64encode(key.sign(_TITLE + body)).decode()
    digest = hashlib.sha256(body).hexdigest()
    return _TITLE + f"# ed25519 {key_name} {signature}\n# sha256 {digest}\n".encode() + body
