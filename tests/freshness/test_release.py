"""Data releases: signed, newer, restricted, and nothing else. All keys here are thrown away."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import cnllm
from cnllm import CnllmError, Registry, RegistryError
from cnllm.config.distribution import install_command
from cnllm.registry.files import data_folder
from cnllm.registry_files.updates.data_store import restore_data_file
from cnllm.registry_files.updates.release import check_release, install_release, shipped_keys, signed_release

from .support import NAME, write_data

ROOT = Path(__file__).parents[2]
SECRET = Ed25519PrivateKey.generate()
OTHER = Ed25519PrivateKey.generate()


def public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


KEYS = {"ada-2026": public(SECRET)}
MODEL = f'[models."{NAME}"]\nlimits.context = 5\n'


def body(serial: int = 3, text: str = MODEL, *, made_for: str = cnllm.__version__, head: str = "schema = 1") -> bytes:
    return f'{head}\nmade_for = "{made_for}"\nrelease = {{ date = 2026-11-20, serial = {serial} }}\n{text}'.encode()


def release(content: bytes | None = None, name: str = "ada-2026", key: Ed25519PrivateKey = SECRET) -> bytes:
    return signed_release(body() if content is None else content, name, key)


def install(content: bytes) -> None:
    install_release(check_release(content, "release.toml", KEYS))


def refused(content: bytes, words: str) -> None:
    """It is refused with one clear line, and nothing is written."""
    before = sorted(Path(data_folder()).rglob("*")) if Path(data_folder()).exists() else []
    with pytest.raises(RegistryError, match=words) as caught:
        install(content)
    assert caught.value.file == "release.toml"
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    assert (sorted(Path(data_folder()).rglob("*")) if Path(data_folder()).exists() else []) == before


def context() -> int | None:
    return Registry.load().resolve(NAME).flags.limits.context


@pytest.mark.usefixtures("small_builtin")
class TestInstallation:
    def test_a_release_ranks_above_the_built_in_file_and_below_the_updates(self) -> None:
        install(release())
        assert context() == 5
        fact = next(fact for fact in Registry.load().resolve(NAME).explain() if fact.flag == "limits.context")
        assert fact.where == f"{data_folder()}/release.toml:8"
        assert Registry.load().version.endswith(" release 2026-11-20.3")
        write_data(f'[models."{NAME}"]\nlimits.context = 6\n')
        assert context() == 6

    def test_a_newer_one_replaces_it_and_can_be_undone(self) -> None:
        before, version = context(), Registry.load().version
        install(release())
        install(release(body(4, MODEL.replace("5", "8"))))
        assert context() == 8
        restore_data_file("release.toml")
        assert context() == 5
        install(release(body(4, MODEL.replace("5", "8"))))
        restore_data_file("release.toml")
        restore_data_file("release.toml")
        assert (context(), Registry.load().version) == (before, version)

    def test_the_same_one_again_is_no_error(self) -> None:
        install(release())
        install(release())

    @pytest.mark.parametrize("serial", [1, 2, 3])
    def test_one_that_is_not_newer_is_refused(self, serial: int) -> None:
        install(release())
        with pytest.raises(
            RegistryError, match=rf"is release 2026-11-20\.{serial}, which is not newer than 2026-11-20\.3"
        ):
            install(release(body(serial, MODEL.replace("5", "8"))))
        assert context() == 5

    def test_one_for_an_older_package_is_refused_and_no_longer_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = context()
        install(release())
        monkeypatch.setattr("cnllm.registry.data_layer.VERSION", "99.0.0")
        refused(release(), r"was made for cnllm .*; the data of this cnllm are newer")
        assert context() == before
        install(release(body(1, MODEL.replace("5", "8"), made_for="99.0.0")))  # the old one counts no longer
        assert context() == 8


# ── refusals ─────────────────────────────────────────────────────────────────
def test_the_package_has_no_key_and_installs_nothing() -> None:
    assert shipped_keys() == {}
    with pytest.raises(CnllmError, match="has no maintainer's key"):
        check_release(release(), "release.toml", shipped_keys())


def test_another_key_is_refused_also_under_the_name_of_the_right_one() -> None:
    refused(release(key=OTHER), "is not what the key ada-2026 signed")
    refused(release(name="eve"), "is signed with the key eve, which is not a maintainer's")


def test_every_changed_byte_is_refused() -> None:
    good = release()
    check_release(good, "release.toml", KEYS)
    for index in range(len(good)):
        for value in (good[index] ^ 1, good[index] ^ 2, good[index] ^ 0x20):
            changed = good[:index] + bytes([value]) + good[index + 1 :]
            with pytest.raises(RegistryError):
                check_release(changed, "release.toml", KEYS)
    for changed in (
        good + b"\n",
        good[:-1],
        good + good,
        b"\n" + good,
        b"\xef\xbb\xbf" + good,
        good.replace(b"\n", b"\r\n"),
    ):
        with pytest.raises(RegistryError):
            check_release(changed, "release.toml", KEYS)


def test_a_wrong_digest_is_refused_although_the_signature_is_right() -> None:
    good = release()
    refused(good.replace(hashlib.sha256(body()).hexdigest().encode(), b"0" * 64), "its SHA-256 is wrong")


@pytest.mark.parametrize(
    "content", [b"", b"schema = 1\n", b"# cnllm data release\n" * 3, b"\x00" * 1000, b"\xff" * 1000]
)
def test_a_file_that_is_no_release_is_refused(content: bytes) -> None:
    refused(content, "is not a data release")


def test_a_huge_file_is_refused() -> None:
    refused(release() + b"#" * 17 * 1024 * 1024, "is too large")


def test_a_newer_schema_is_refused_with_what_to_do() -> None:
    refused(release(body(head="schema = 2")), "has schema 2; this cnllm reads schema 1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[providers.zai]\nbase_url = "https://evil.example"\n', "has no flag 'providers'"),
        ('[aliases]\nglm = "evil/m"\n', "has no flag 'aliases'"),
        ("[defaults]\n", "has no flag 'defaults'"),
        ('[tiers]\nfast = ["evil/m"]\n', "has no flag 'tiers'"),
        ("[gateway]\n", "has no flag 'gateway'"),
        ("[mcp.x]\n", "has no flag 'mcp'"),
        (f'[models."{NAME}"]\nbase_url = "https://evil.example"\n', "has no flag 'base_url'"),
        (f'[models."{NAME}"]\nheaders = {{ host = "evil.example" }}\n', "has no flag 'headers'"),
        (f'[models."{NAME}"]\nkeys = ["HOME"]\n', "has no flag 'keys'"),
        (f'[models."{NAME}"]\nbody.set.model = "x"\n', "has no flag 'body'"),
        (f'[models."{NAME}"]\nextends = "evil/m"\n', "has no flag 'extends'"),
        (f'[models."{NAME}"]\ncorrects = {{ "price.input" = 1 }}\n', "has no flag 'corrects'"),
        (f'[models."{NAME}"]\non.openai-chat.base_url = "x"\n', "has no flag 'on'"),
        (f'[models."{NAME}"]\nwhen.tools.base_url = "x"\n', "has no flag 'when'"),
        ('[models."../../../etc/passwd"]\nlimits.context = 5\n', "no model has such a name"),
        ('[models."zai/../../x"]\nlimits.context = 5\n', "no model has such a name"),
        (MODEL + MODEL, "not TOML"),  # a table twice
        (MODEL + "limits.context = 6\n", "not TOML"),  # a key twice
        (MODEL + "price.input = nan\n", "no model has such a value"),
        (f'[models."{NAME}"]\n' + "x = " + "[" * 2000 + "]" * 2000, "release.toml"),
    ],
)
def test_a_hostile_release_with_the_right_signature_is_refused(text: str, words: str) -> None:
    refused(release(body(text=text)), words)


@pytest.mark.parametrize(
    "content",
    [
        b"schema = 1\n" + MODEL.encode(),
        f'schema = 1\nmade_for = "0.1.0"\n{MODEL}'.encode(),
        f"schema = 1\nrelease = {{ date = 2026-11-20, serial = 1 }}\n{MODEL}".encode(),
    ],
)
def test_a_release_without_its_head_is_refused(content: bytes) -> None:
    refused(release(content), "names no release or no version of cnllm")


@pytest.mark.parametrize("serial", [0, -1, 10**12])
def test_a_serial_is_a_number_from_one(serial: int) -> None:
    refused(release(body(serial)), "release.serial")


def test_without_cryptography_it_says_what_to_install(tmp_path: Path) -> None:
    """The extra is optional: everything else works without it, and nothing imports it before."""
    file = tmp_path / "release.toml"
    file.write_bytes(release())
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "import cnllm, cnllm.cli, cnllm.cli.commands.registry\n"
        "from cnllm.registry_files.updates.release import check_release\n"
        f"check_release(open({str(file)!r}, 'rb').read(), 'x', {KEYS!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "cryptography, which checks signatures, is not installed" in done.stderr
    assert install_command("upgrade") in done.stderr


# ── making one ───────────────────────────────────────────────────────────────
def make(folder: Path, *options: str, text: str = MODEL) -> subprocess.CompletedProcess[bytes]:
    key, file = folder / "key.pem", folder / "updates.toml"
    file.write_text(text)
    form = serialization.PrivateFormat.PKCS8
    key.write_bytes(SECRET.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    command = [sys.executable, "-m", "maintenance.release_data", str(file), "--key", str(key), "--name", "ada-2026"]
    return subprocess.run(
        [*command, "--serial", "7", "--date", "2026-11-20", *options], capture_output=True, cwd=ROOT, check=False
    )


def test_the_script_makes_a_release_that_installs_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = make(tmp_path), make(tmp_path)
    assert first.returncode == 0, first.stderr.decode()
    assert first.stdout == second.stdout
    assert check_release(first.stdout, "x", KEYS).version == "2026-11-20.7"
    install(first.stdout)
    assert context() == 5
    key = base64.b64encode(public(SECRET)).decode()
    assert re.search(rf'^ada-2026 = "{re.escape(key)}"$', first.stderr.decode(), re.MULTILINE)
    assert b"PRIVATE" not in first.stdout + first.stderr


@pytest.mark.parametrize("text", ['[providers.x]\nbase_url = "y"\n', "x", '[models."a/.."]\nlimits.context = 5\n'])
def test_the_script_signs_nothing_that_would_be_refused(tmp_path: Path, text: str) -> None:
    done = make(tmp_path, text=text)
    assert done.returncode == 2
    assert done.stdout == b""
    assert len(done.stderr.splitlines()) <= 2
