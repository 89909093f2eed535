"""Which variables a registry file gets: those of its own providers where it is the user's own, else none unasked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cnllm import Client, Registry, RegistryError, Untrusted
from cnllm.config import paths
from cnllm.registry.trusted_files import trust

from .support import Files, Nowhere, Peer

SECRET = "ghx_0123456789abcdefghij"
MINE = '[providers.mine]\nprotocol = "openai-chat"\nbase_url = "https://mine.example/v1"\nkeys = ["SOME_TOKEN"]\n'
VARIANTS = {  # what somebody else's file may say → (its text, the model to call)
    "keys": (MINE, "mine/x"),
    "keys in another mode": (MINE.replace("keys =", "when.no-stream.keys ="), "mine/x"),
    "keys on a wire": (MINE.replace("keys =", "on.openai-chat.keys ="), "mine/x"),
    "keys of a model": (MINE.replace("keys =", 'title = "x"\n[models."mine/x"]\nkeys ='), "mine/x"),
    "keys of a family": (MINE.replace("keys =", 'title = "x"\n[providers.mine.families.glm]\nkeys ='), "mine/glm-9"),
    "an extended provider": (MINE + '[providers.two]\nextends = "mine"\n', "two/x"),
    "a built-in provider extended": (
        '[providers.two]\nextends = "zai"\nbase_url = "https://e.example"\nkeys = ["SOME_TOKEN"]\n',
        "two/x",
    ),
    "an alias": (MINE + '[aliases]\nbest = "mine/x"\n', "best"),
    "another header": (MINE + 'auth = { header = "x-thing", value = "{key}" }\n', "mine/x"),
    "a header of its own": (MINE + 'auth = {}\nheaders = { x-thing = "{key}" }\n', "mine/x"),
    "two names": (MINE.replace('["SOME_TOKEN"]', '["NOT_SET", "SOME_TOKEN"]'), "mine/x"),
    "small letters": (MINE.replace("SOME_TOKEN", "some_token"), "mine/x"),
    "this machine": (MINE.replace("https://mine.example", "http://127.0.0.1:9"), "mine/x"),
    "keys of a built-in provider": ('[providers.zai]\nkeys = ["SOME_TOKEN"]\n', "zai/glm-4.7"),
    "a built-in key under another host header": (
        '[providers.zai]\nheaders = { Host = "evil.example" }\n',
        "zai/glm-4.7",
    ),
    "a host header in a call": (
        '[providers.zai]\ncall.extra_headers = { host = "evil.example" }\n',
        "zai/glm-4.7",
    ),
    "a host header that carries the key in one mode": (
        '[providers.zai]\nauth = { header = "X-Key" }\nwhen.no-tools.auth = { header = "Host" }\n',
        "zai/glm-4.7",
    ),
}


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SOME_TOKEN", "some_token", "ZAI_API_KEY"):
        monkeypatch.setenv(name, SECRET)


def own(text: str) -> Path:
    """The user's own file."""
    file = paths.config_dir() / "providers.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def sends(registry: Registry, model: str, **options: Any) -> bool:
    peer = Peer()
    with Client(registry, transport=peer) as client:
        client.call(model, "hi", **options)
    return any(SECRET in value for value in peer.sent[0].headers.values())


def refused(registry: Registry, model: str) -> str:
    with Client(registry, transport=Nowhere()) as client, pytest.raises(Untrusted) as caught:
        client.call(model, "hi")
    assert SECRET not in repr(vars(caught.value))
    return f"{caught.value} {caught.value.hint}"


@pytest.mark.usefixtures("small_builtin")
def test_somebody_elses_file_gets_no_variable_until_the_user_vouches_for_it(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, (text, model) in VARIANTS.items():
        path = files.write(text)
        said = refused(Registry.load(path), model)
        assert f"{path}:" in said, name
        assert "cnllm registry trust" in said
        if name == "keys":
            with monkeypatch.context() as patched:
                patched.setenv("CNLLM_PROVIDERS", str(path))
                refused(Registry.load(), model)
            assert sends(Registry.load(path), model, api_key=SECRET)
        trust(path)
        assert sends(Registry.load(path), model), name
        path.write_text(text + "\n")
        refused(Registry.load(path), model)


def test_a_key_that_is_kept_in_the_file_is_kept_from_it_too(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    from cnllm.config import keys

    monkeypatch.delenv("SOME_TOKEN")
    keys.set_key("SOME_TOKEN", SECRET)
    refused(files.load(MINE), "mine/x")
    own(MINE)
    assert sends(Registry.load(), "mine/x")


def test_a_file_cannot_lean_on_the_users_own(files: Files) -> None:
    file = own(MINE)
    for text in (
        '[providers.mine]\nbase_url = "https://evil.example"\n',
        '[providers.mine]\nwhen.no-stream.base_url = "https://evil.example"\n',
        '[models."mine/x"]\nbase_url = "https://evil.example"\n',
        '[providers.mine]\nheaders = { host = "evil.example" }\n',
    ):
        for order in ((file, files.write(text)), (files.write(text), file)):
            refused(Registry.load(*order), "mine/x")
    for table in ("providers.mine", "protocols.openai-chat"):
        text = f'[{table}]\npath = "@evil.example/"\n'
        for order in ((file, files.write(text)), (files.write(text), file)):
            with pytest.raises(RegistryError, match="must begin with /"):
                Registry.load(*order).resolve("mine/x")
    assert sends(Registry.load(file, files.write('[models."mine/x"]\nlimits.output = 5\n')), "mine/x")


def test_the_users_own_file_needs_no_word_for_its_own_providers() -> None:
    for name in ("keys", "keys in another mode", "an extended provider", "an alias", "this machine"):
        text, model = VARIANTS[name]
        own(text)
        assert sends(Registry.load(), model), name
    own('[providers.zai]\nbase_url = "https://mine.example"\n')  # a built-in key does
    refused(Registry.load(), "zai/glm-4.7")


def test_the_users_own_file_is_nobody_elses_to_write(tmp_path: Path) -> None:
    file = own(MINE)
    assert sends(Registry.load(), "mine/x")
    folder = file.parent
    for place, mode in ((file, 0o620), (file, 0o602), (folder, 0o770), (folder, 0o707), (folder.parent, 0o777)):
        before = place.stat().st_mode & 0o777
        place.chmod(mode)
        assert str(place) in refused(Registry.load(), "mine/x")
        place.chmod(before)
        assert sends(Registry.load(), "mine/x")
    if os.geteuid() == 0:
        os.chown(file, 12345, -1)
        assert "belongs to another user" in refused(Registry.load(), "mine/x")
        os.chown(file, 0, -1)


def test_a_link_is_as_good_as_what_it_leads_to(tmp_path: Path) -> None:
    file = own(MINE)
    target = tmp_path / "dotfiles" / "providers.toml"
    target.parent.mkdir()
    file.rename(target)
    file.symlink_to(target)
    assert sends(Registry.load(), "mine/x")
    target.parent.chmod(0o777)
    refused(Registry.load(), "mine/x")
    target.parent.chmod(0o755)
    target.chmod(0o666)
    refused(Registry.load(), "mine/x")


def test_a_file_that_is_swapped_after_it_was_read_changes_nothing(files: Files) -> None:
    path = files.write(MINE)
    registry = Registry.load(path)
    harmless = files.write("# nothing\n")
    trust(harmless)
    path.unlink()
    path.symlink_to(harmless)  # the name leads to a trusted file now; what was read is not it
    refused(registry, "mine/x")
    trust(path)
    refused(registry, "mine/x")
    good = files.write(MINE)
    trust(good)
    link = files.folder / "link.toml"
    link.symlink_to(good)
    registry = Registry.load(link)
    link.unlink()
    link.symlink_to(files.write(MINE.replace("mine.example", "evil.example")))
    refused(Registry.load(link), "mine/x")
    assert sends(Registry.load(good), "mine/x")


def test_only_a_plain_file_can_be_vouched_for(files: Files) -> None:
    os.mkfifo(files.folder / "pipe")
    with pytest.raises(RegistryError, match="cannot be read"):
        trust(files.folder / "pipe")


def test_an_address_of_the_call_is_the_callers_will(files: Files) -> None:
    own(MINE)
    registry = Registry.load()
    with Client(registry, transport=(peer := Peer())) as client:
        client.call(registry.resolve("mine/x", base_url="https://other.example"), "hi")
    assert any(SECRET in value for value in peer.sent[0].headers.values())
    strange = files.load(MINE)
    with Client(strange, transport=Nowhere()) as client, pytest.raises(Untrusted):
        client.call(strange.resolve("mine/x", base_url="https://other.example"), "hi")


def test_what_a_registry_file_says_of_headers_and_addresses_is_shown_without_passwords(files: Files) -> None:
    said = (
        '[providers.mine]\nprotocol = "openai-chat"\nbase_url = "https://me:hunter2@mine.example/v1"\nkeys = []\n'
        f'auth = {{ header = "x-thing", value = "{SECRET}" }}\n'
        f'headers = {{ x-api-key = "{SECRET}", authorization = "Bearer {SECRET}", x-team = "blue" }}\n'
    )
    model = files.load(said).resolve("mine/x")
    facts = {fact.flag: fact.value for fact in model.explain()}
    assert not [flag for flag, value in facts.items() if SECRET in str(value) or "hunter2" in str(value)]
    assert "mine.example" in str(facts["base_url"])
    assert facts["auth.header"] == "x-thing"
    assert len([flag for flag in facts if flag.startswith("headers")]) == 3
    assert model.layer("base_url") == "providers.mine"
    assert model.layer("limits.output") == ""
