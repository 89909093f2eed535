"""Sealed tokens: only who sealed one opens it, for the same client; and the file of their keys."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from examples import SHARE, examples
from hypothesis import given
from hypothesis import strategies as st

from cnllm.config.distribution import install_command
from cnllm.errors import CnllmError
from cnllm.gateway import tokens
from cnllm.gateway.tokens import MAX_PAYLOAD, PREFIX, Keyring

KEY = bytes(range(32))
TEXT = base64.urlsafe_b64encode(KEY).decode().rstrip("=")
RING = Keyring([KEY])
# Half of a surrogate pair is in no real identity, and raises nothing either.
IDENTITIES = st.text(max_size=20) | st.sampled_from(["", "a", "b", "\ud83d", "x" * 5000])
PAYLOADS = st.binary(max_size=200) | st.builds(lambda piece, times: piece * times, st.binary(max_size=30), st.just(300))


def script(code: str, *args: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        env={**os.environ, **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# ── tokens ───────────────────────────────────────────────────────────────────
@given(IDENTITIES, IDENTITIES, PAYLOADS)
@examples(200)
def test_only_the_same_identity_opens_a_token(identity: str, other: str, payload: bytes) -> None:
    token = RING.seal(identity, payload)
    assert token.startswith(PREFIX)
    assert token[len(PREFIX) :].replace("-", "").replace("_", "").isalnum()
    assert RING.open(identity, token) == payload
    assert RING.open(other, token) == (payload if other == identity else None)
    assert Keyring([bytes(32)]).open(identity, token) is None


@pytest.mark.parametrize("payload", [b"", b"short", b"long " * 400, os.urandom(1500)])
def test_a_token_that_was_cut_or_changed_does_not_open(payload: bytes) -> None:
    token = RING.seal("me", payload)
    places = range(len(token)) if len(token) < 200 else [*range(60), *range(60, len(token), 37), len(token) - 1]
    for place in places:
        assert RING.open("me", token[:place]) is None
        assert RING.open("me", token[place + 1 :]) is None
        assert RING.open("me", token[:place] + token[place + 1 :]) is None
        for letter in "A_9-=\n é":
            if letter != token[place]:
                assert RING.open("me", token[:place] + letter + token[place + 1 :]) is None, (place, letter)
            assert RING.open("me", token[:place] + letter + token[place:]) is None, (place, letter)
    assert RING.open("me", token + "=") is None
    assert RING.open("me", token + token) is None
    assert RING.open("me", token.upper()) is None
    assert RING.open("me", token) == payload


def test_another_spelling_of_the_same_bytes_does_not_open() -> None:
    """The last letter of base64 may have bits that stand for nothing."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for length in range(3):
        token = RING.seal("me", b"x" * length)
        assert [letter for letter in alphabet if RING.open("me", token[:-1] + letter) is not None] == [token[-1]]


@given(st.text() | st.text(alphabet="cnllm1.AB_-=\ud83d", max_size=80).map(PREFIX.__add__))
@examples(200)
def test_no_text_raises(text: str) -> None:
    assert RING.open("me", text) is None
    assert RING.open(text, RING.seal("me", b"x")) == (b"x" if text == "me" else None)


def test_no_value_of_another_type_raises() -> None:
    token = RING.seal("me", b"x")
    for value in (None, 1, b"", token.encode(), [token], {"a": token}, 1.5, object()):
        anything: Any = value
        assert RING.open("me", anything) is None
        assert RING.open(anything, token) is None


def test_the_same_payload_never_makes_the_same_token() -> None:
    tokens = {RING.seal("me", b"same") for _ in range(100)}
    assert len(tokens) == 100


def sealed_by_hand(content: bytes) -> str:
    """A token of the right key with any content, as no `seal` writes it."""
    key_id = base64.urlsafe_b64decode(RING.seal("me", b"")[len(PREFIX) :] + "==")[:6]
    sealed = ChaCha20Poly1305(KEY).encrypt(bytes(12), content, PREFIX.encode() + key_id + b"me")
    return PREFIX + base64.urlsafe_b64encode(key_id + bytes(12) + sealed).decode().rstrip("=")


def test_what_a_token_unpacks_to_is_bounded() -> None:
    whole = b"\1" + zlib.compress(b"fine" * 500)
    assert RING.open("me", sealed_by_hand(whole)) == b"fine" * 500
    tracemalloc.start()
    bomb = zlib.compressobj(9)
    packed = b"".join([*(bomb.compress(bytes(1 << 20)) for _ in range(200)), bomb.flush()])
    tracemalloc.reset_peak()
    assert RING.open("me", sealed_by_hand(b"\1" + packed)) is None
    assert tracemalloc.get_traced_memory()[1] < 4 * MAX_PAYLOAD
    tracemalloc.stop()
    for content in (b"", b"\2abc", b"\1", b"\1abc", whole[:-5], whole + b"x"):
        assert RING.open("me", sealed_by_hand(content)) is None, content


def test_a_payload_has_a_bound_and_is_compressed() -> None:
    largest = bytes(MAX_PAYLOAD)
    assert RING.open("me", RING.seal("me", largest)) == largest
    noise = os.urandom(MAX_PAYLOAD)
    assert RING.open("me", RING.seal("me", noise)) == noise
    with pytest.raises(ValueError, match="at most"):
        RING.seal("me", largest + b"x")
    assert len(RING.seal("me", b"the same words again and again " * 1000)) < 2000


def test_rotation_keeps_old_tokens_alive() -> None:
    old = RING.seal("me", b"x")
    both = Keyring([bytes(32), KEY])
    assert both.open("me", old) == b"x"
    new = both.seal("me", b"y")
    assert Keyring([bytes(32)]).open("me", new) == b"y"
    assert RING.open("me", new) is None
    assert Keyring([bytes(32)]).open("me", old) is None


def test_keys_of_another_length_are_refused() -> None:
    for keys in ([], [b""], [KEY, KEY[:-1]], [KEY + b"x"]):
        with pytest.raises(ValueError, match="32 random bytes"):
            Keyring(keys)


def test_nothing_shows_a_key() -> None:
    assert TEXT not in repr(RING)
    assert "\\x" not in repr(RING)


# ── where the keys are ───────────────────────────────────────────────────────
def test_the_file_is_created_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "serve.keys"
    usual = os.umask(0)
    try:
        token = Keyring.load(path).seal("me", b"x")
    finally:
        os.umask(usual)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [file.name for file in path.parent.iterdir()] == ["serve.keys"]
    before = path.read_bytes()
    assert Keyring.load(path).open("me", token) == b"x"
    assert path.read_bytes() == before


def test_its_default_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CNLLM_CONFIG_DIR", str(tmp_path / "config"))
    Keyring.load()
    assert (tmp_path / "config" / "serve.keys").exists()


RACE = (
    "import sys\nfrom cnllm.gateway import tokens\nprint('ready', flush=True)\nsys.stdin.read(1)\n"
    "print(tokens.Keyring.load(sys.argv[1]).seal('me', b'x'))"
)
NO_LINKS = "import errno, os\ndef link(*args): raise OSError(errno.EPERM, 'no links here')\nos.link = link\n"


@pytest.mark.sampled
@pytest.mark.parametrize("before", ["", NO_LINKS], ids=["links", "no-links"])
def test_processes_that_start_at_once_share_one_key(tmp_path: Path, before: str) -> None:
    rounds = 3 if SHARE == 1 else 1
    for number in range(rounds):
        path = tmp_path / f"{number}.keys"
        runs = [script(before + RACE, str(path)) for _ in range(4)]
        for run in runs:
            assert run.stdout is not None
            assert run.stdout.readline() == "ready\n"
        tokens = []
        for run in runs:
            assert run.stdin is not None
            run.stdin.write("x")
            run.stdin.flush()
        for run in runs:
            out, error = run.communicate(timeout=60)
            assert run.returncode == 0, error
            tokens.append(out.strip())
        ring = Keyring.load(path)
        assert [ring.open("me", token) for token in tokens] == [b"x"] * 4
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"{number}.keys" for number in range(rounds)]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_crash_while_it_is_written_leaves_no_file(tmp_path: Path, step: str) -> None:
    path = tmp_path / "serve.keys"
    killer = f"import os, signal\nos.{step} = lambda *args: os.kill(os.getpid(), signal.SIGKILL)\n"
    run = script(killer + RACE, str(path))
    run.communicate("x", timeout=60)
    assert run.returncode == -9
    assert not path.exists()
    assert Keyring.load(path).open("me", Keyring.load(path).seal("me", b"x")) == b"x"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o601])
def test_a_file_that_others_can_open_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "serve.keys"
    Keyring.load(path)
    path.chmod(mode)
    with pytest.raises(CnllmError, match=rf"other users can open .*serve\.keys \(mode {mode:04o}\)") as caught:
        Keyring.load(path)
    assert caught.value.hint is not None
    assert f"chmod 600 {path}" in caught.value.hint
    path.chmod(0o600)
    Keyring.load(path)


def test_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = RING.seal("me", b"x")
    padded, hexadecimal = base64.b64encode(KEY).decode(), KEY.hex()
    other = tokens.new_key().hex()
    for text in (TEXT, padded, hexadecimal, f" {TEXT} ", f"{TEXT},{other}", f"{TEXT}\n{other}", f"{TEXT}, {other},"):
        monkeypatch.setenv("CNLLM_GATEWAY_KEY", text)
        ring = Keyring.load(tmp_path / "serve.keys")
        assert ring.open("me", token) == b"x"
        assert RING.open("me", ring.seal("me", b"y")) == b"y"
    monkeypatch.setenv("CNLLM_GATEWAY_KEY", f"{other},{TEXT}")
    assert Keyring.load(tmp_path / "k").open("me", token) == b"x"
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("CNLLM_GATEWAY_KEY", " ")
    Keyring.load(tmp_path / "serve.keys")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_weak_or_broken_key_of_the_environment_is_refused_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("secret", "x" * 32, TEXT[:-1], TEXT + "A", f"{TEXT},secret", "é" * 43, "ab" * 31, f"{TEXT}=="):
        monkeypatch.setenv("CNLLM_GATEWAY_KEY", text)
        with pytest.raises(CnllmError, match="CNLLM_GATEWAY_KEY") as caught:
            Keyring.load(tmp_path / "serve.keys")
        shown = f"{caught.value} {caught.value.hint}"
        assert text not in shown.replace("secrets", "")
        assert TEXT not in shown
        assert "token_urlsafe(32)" in shown


def test_several_keys_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "serve.keys"
    ring = Keyring.load(path)
    old = ring.seal("me", b"x")
    path.write_text(f"# a comment\n\n{TEXT}\n" + path.read_text())
    both = Keyring.load(path)
    assert both.open("me", old) == b"x"
    assert RING.open("me", both.seal("me", b"y")) == b"y"


def test_a_file_that_cannot_be_used_is_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "serve.keys"
    for content, words in (
        (b"", "holds no key"),
        (b"# nothing\n\n", "holds no key"),
        (TEXT.encode() + b"\nsecret\n", r"serve\.keys:2: this line is not a key"),
        (b"\xff\xfe\x00", r"serve\.keys:1"),
        (TEXT[:20].encode(), r"serve\.keys:1"),
    ):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(CnllmError, match=words) as caught:
            Keyring.load(path)
        assert "secret" not in str(caught.value)
        assert caught.value.hint
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(CnllmError, match="not a regular file"):
        Keyring.load(path)
    for place in (tmp_path, tmp_path / "serve.keys" / "below"):
        with pytest.raises(CnllmError) as caught:
            Keyring.load(place)
        assert str(place) in str(caught.value)
        assert caught.value.hint


def test_a_linked_file_is_created_at_its_real_place(tmp_path: Path) -> None:
    (tmp_path / "link.keys").symlink_to(tmp_path / "real" / "serve.keys")
    token = Keyring.load(tmp_path / "link.keys").seal("me", b"x")
    assert (tmp_path / "link.keys").is_symlink()
    assert Keyring.load(tmp_path / "real" / "serve.keys").open("me", token) == b"x"


def test_without_the_package_there_is_a_hint_and_no_file(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom cnllm.gateway import tokens\nassert 'cryptography' not in sys.modules\n"
        "sys.modules['cryptography'] = None\n"
        "try: tokens.Keyring.load(sys.argv[1])\nexcept Exception as error: print(type(error).__name__, error.hint)"
    )
    out, error = script(code, str(tmp_path / "serve.keys")).communicate(timeout=60)
    assert out.strip() == f"CnllmError {install_command('serve')}", error
    assert list(tmp_path.iterdir()) == []
