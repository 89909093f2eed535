"""Write a data release: facts on models that installed copies of cnllm may take over, signed with a maintainer's key.

    python -m maintenance.release_data UPDATES.toml … --key KEY.pem --name ada-2026 --serial 3 > release.toml

UPDATES.toml is a file of updates, as `cnllm registry update` writes it, which a person has read; a later file wins over
an earlier one. The key is an Ed25519 key in PEM form (`openssl genpkey -algorithm ed25519 -out KEY.pem`). The line for
`cnllm/registry_files/updates/release_keys.toml` goes to stderr: only copies that have it there accept the release.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cnllm
from cnllm.config.signatures import public_bytes, read_signing_key
from cnllm.errors import CnllmError
from cnllm.registry.merge import merge_tables
from cnllm.registry.read import read
from cnllm.registry_files.updates.patch_file import data_text
from cnllm.registry_files.updates.release import check_release, signed_release

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_COMMENT = "# Limits, prices and other facts on models. It holds no address, no key and no header.\n"


def main() -> int:
    """Write the release to stdout, and the line of the public key to stderr. Return 2 where nothing is signed."""
    parser = argparse.ArgumentParser(prog="python -m maintenance.release_data", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--serial", type=int, required=True)
    parser.add_argument("--date", type=datetime.date.fromisoformat, default=datetime.datetime.now(datetime.UTC).date())
    parser.add_argument("--made-for", default=cnllm.__version__)
    options = parser.parse_args()
    try:
        head = {"made_for": options.made_for, "release": {"date": options.date.isoformat(), "serial": options.serial}}
        key = read_signing_key(options.key.read_bytes(), str(options.key))
        content, line = release(options.files, head, options.name, key)
    except (CnllmError, OSError, ValueError) as error:
        sys.stderr.write(f"release_data: {' '.join(str(error).split())}\n")
        return 2
    sys.stdout.buffer.write(content)
    sys.stderr.write(f"{line}\n")
    return 0


def release(files: Sequence[Path], head: dict[str, Any], name: str, key: Ed25519PrivateKey) -> tuple[bytes, str]:
    """Return the release, and the line of its public key. Raises `RegistryError` for what would be refused."""
    models: dict[str, Any] = {}
    for file in files:
        models = merge_tables(models, dict(read(file, is_data=True).data.get("models", {})))
    content = signed_release(data_text(_COMMENT, head, models).encode(), name, key)
    public = public_bytes(key)
    check_release(content, "the release", {name: public})
    return content, f'{name} = "{base64.b64encode(public).decode()}"'


if __name__ == "__main__":
    sys.exit(main())
