"""`registry upgrade`: refuses everything until a key is there, and then what no maintainer signed."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import cnllm
from cnllm.registry_files.updates import release as releases

from .support import Machine, Server, http

pytestmark = pytest.mark.usefixtures("small_builtin")

SECRET = Ed25519PrivateKey.generate()
KEYS = {"ada": SECRET.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)}
BODY = f"""schema = 1
made_for = "{cnllm.__version__}"
release = {{ date = 2026-11-20, serial = 3 }}
[models."zai/glm-4.7"]
limits.output = 600
"""


@pytest.fixture
def path(machine: Machine) -> str:
    return machine.file("release.toml", releases.signed_release(BODY.encode(), "ada", SECRET))


@pytest.fixture
def with_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package as a maintainer ships it once there is a key."""
    monkeypatch.setattr(releases, "shipped_keys", lambda: KEYS)


def test_without_a_key_nothing_is_installed_and_nothing_is_asked(machine: Machine, path: str) -> None:
    machine.run("registry", "upgrade", path, "--yes").fails(2, "has no maintainer's key")
    with Server([http(200, b"")]) as server:
        machine.run("registry", "upgrade", f"{server.url}/release.toml", "--yes").fails(2, "has no maintainer's key")
    assert server.received == []
    assert not (machine.config / "registry").exists()


def test_no_variable_and_no_option_adds_a_key(machine: Machine, path: str) -> None:
    public = KEYS["ada"].hex()
    env = {f"CNLLM_{name}": public for name in ("KEY", "KEYS", "RELEASE_KEY", "RELEASE_KEYS", "REGISTRY_KEYS")}
    machine.run("registry", "upgrade", path, "--yes", env=env).fails(2, "has no maintainer's key")
    (machine.config / "registry").mkdir(parents=True)
    (machine.config / "registry" / "release_keys.toml").write_text(f'[keys]\nada = "{public}"\n')
    machine.run("registry", "upgrade", path, "--yes").fails(2, "has no maintainer's key")


@pytest.mark.usefixtures("with_key")
def test_a_release_is_shown_installed_and_undone(machine: Machine, path: str) -> None:
    done = machine.run("registry", "upgrade", path, "--dry-run")
    assert done.status == 0
    assert "zai/glm-4.7  limits.output" in done.out
    assert "release 2026-11-20.3, signed with the key ada: 1 change" in done.err
    assert not (machine.config / "registry").exists()
    refused = machine.run("registry", "upgrade", path)
    assert refused.status == 2
    assert "nothing is installed in a pipe without --yes" in refused.err
    assert machine.run("registry", "upgrade", path, "--yes").status == 0
    call = machine.run("call", "-m", "zai/glm-4.7", "--simulate", "--json", "hi")
    assert call.json()["registry"].endswith(" release 2026-11-20.3")
    logged = machine.run("logs", "show", "--json").json()
    assert logged["turns"][0]["registry"] == call.json()["registry"]
    assert f"registry {call.json()['registry']}" in machine.run("logs", "show").out
    assert machine.run("models", "show", "zai/glm-4.7", "--json").json()["output"] == 600
    assert machine.run("registry", "rollback", "release").status == 0
    assert machine.run("models", "show", "zai/glm-4.7", "--json").json()["output"] != 600


@pytest.mark.usefixtures("with_key")
def test_a_release_comes_from_a_server_and_a_changed_one_does_not(machine: Machine, path: str) -> None:
    with open(path, "rb") as file:
        good = file.read()
    with Server([http(200, good.replace(b"600", b"601"))], [http(200, good)]) as server:
        machine.run("registry", "upgrade", f"{server.url}/r", "--yes").fails(2, "is not what the key ada signed")
        assert not (machine.config / "registry").exists()
        assert machine.run("registry", "upgrade", f"{server.url}/r", "--yes").status == 0
    machine.run("registry", "upgrade", "/nothing", "--yes").fails(2, "/nothing cannot be read")


@pytest.mark.parametrize("what", ["updates", "release"])
def test_nothing_to_undo_is_said(machine: Machine, what: str) -> None:
    machine.run("registry", "rollback", what).fails(2, f"{what}.toml: there is no earlier one")
