"""A built-in key goes to the origins of its built-in provider, and elsewhere only where a user vouched for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cases import each
from examples import SHARE

from cnllm import Client, Model, Registry, RegistryError, Untrusted
from cnllm.client.credentials import untrusted_models
from cnllm.config import keys, paths
from cnllm.registry.routing import origin_of
from cnllm.registry.trusted_files import trust

from .support import Files, Nowhere, Peer, builtin

KEY = "sk-zai-0123456789abcdef"
EVIL = "https://evil.example"

OVERLAYS = {  # what an overlay may try → (its text, the model to call)
    "a changed base_url": ('[providers.zai]\nbase_url = "https://evil.example/v1"\n', "zai/glm-4.7"),
    "a changed base_url of one model": ('[models."zai/glm-4.7"]\nbase_url = "https://evil.example/v1"\n', "glm-4.7"),
    "a base_url in one mode": ('[providers.zai]\nwhen.no-tools.base_url = "https://evil.example/v1"\n', "glm-4.7"),
    "a base_url in the mode in which a cut stream goes on": (
        '[providers.zai]\nwhen.no-stream.base_url = "https://evil.example/v1"\n',
        "glm-4.7",
    ),
    "a base_url on one wire": ('[providers.zai.on.openai-chat]\nbase_url = "https://evil.example/v1"\n', "glm-4.7"),
    "a base_url of a family": ('[providers.zai.families.glm]\nbase_url = "https://evil.example/v1"\n', "glm-4.7"),
    "another port": ('[providers.zai]\nbase_url = "https://api.z.ai:8443/api/paas/v4"\n', "glm-4.7"),
    "a host below": ('[providers.zai]\nbase_url = "https://x.api.z.ai/v4"\n', "glm-4.7"),
    "a host that begins alike": ('[providers.zai]\nbase_url = "https://api.z.ai.evil.example/v4"\n', "glm-4.7"),
    "a user before the host": ('[providers.zai]\nbase_url = "https://api.z.ai@evil.example/v4"\n', "glm-4.7"),
    "a provider of its own that names the key": (
        '[providers.mine]\nprotocol = "openai-chat"\nbase_url = "https://evil.example/v1"\nkeys = ["ZAI_API_KEY"]\n',
        "mine/x",
    ),
    "the key named in another case": (
        '[providers.mine]\nprotocol = "openai-chat"\nbase_url = "https://evil.example/v1"\nkeys = ["Zai_Api_Key"]\n',
        "mine/x",
    ),
    "a provider that extends": ('[providers.mine]\nextends = "zai"\nbase_url = "https://evil.example/v1"\n', "mine/x"),
    "the key at another built-in provider": ('[providers.moonshotai]\nkeys = ["ZAI_API_KEY"]\n', "kimi-k3"),
    "the key of a provider without an address": (
        '[providers.mine]\nextends = "azure"\nbase_url = "https://evil.example/v1"\n',
        "mine/x",
    ),
    "an alias": (
        '[providers.mine]\nextends = "zai"\nbase_url = "https://evil.example"\n[aliases]\n"glm-4.7" = "mine/x"\n',
        "glm-4.7",
    ),
}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ZAI_API_KEY", "Zai_Api_Key", "AZURE_API_KEY", "MOONSHOT_API_KEY", "DATABRICKS_TOKEN"):
        monkeypatch.setenv(name, KEY)


def call(registry: Registry, model: str | Model, **options: Any) -> Peer:
    peer = Peer()
    with Client(registry, transport=peer) as client:
        assert client.call(model, "hi", **options).text == "Hello"
    return peer


def refused(registry: Registry, model: str | Model, advice: str = "cnllm registry trust") -> Untrusted:
    with Client(registry, transport=Nowhere()) as client:
        with pytest.raises(Untrusted) as streamed, client.stream(model, "hi") as stream:
            list(stream)
        with pytest.raises(Untrusted) as caught:
            client.call(model, "hi")
    for error in (streamed.value, caught.value):
        assert KEY not in f"{error!r} {error} {error.hint} {vars(error)}"
        assert error.hint is not None
        assert advice in error.hint or "https" in error.hint
    return caught.value


def sent_key(peer: Peer) -> bool:
    (plan,) = peer.sent
    return any(KEY in value for value in plan.headers.values())


# ── at home ──────────────────────────────────────────────────────────────────
def test_a_built_in_key_goes_home() -> None:
    assert sent_key(call(Registry.load(), "glm-4.7"))


@pytest.mark.sampled
def test_every_built_in_model_is_at_home_in_every_mode() -> None:
    registry = Registry([builtin()])
    for name in registry.names()[::SHARE]:
        model = registry.resolve(name)
        said = [fact.value for fact in model.explain() if fact.flag.split(".")[-1] == "base_url"]
        places = {origin_of(str(url)) for url in said}
        assert places or name.startswith(
            ("azure/", "cloudflare-workers-ai/", "databricks/", "openai-compatible/", "spark-x25/")
        )
        for key in model.flags.keys or ():
            assert all(model.trusts(key, place) for place in places), (name, key)
            assert not model.trusts(key, EVIL), (name, key)


def test_an_overlay_that_leaves_address_and_key_alone_needs_no_trust(files: Files) -> None:
    said = '[providers.zai]\nparams.temperature = false\n[models."zai/x"]\nlimits.output = 5\n[aliases]\nx = "zai/x"\n'
    assert sent_key(call(files.load(said), "x"))


def test_another_path_at_home_needs_no_trust(files: Files) -> None:
    said = '[providers.zai]\nbase_url = "https://API.z.ai:443/another/v5"\n[models."zai/x"]\npath = "/other"\n'
    peer = call(files.load(said), "zai/x")
    assert peer.sent[0].url.endswith("/another/v5/other")


def test_a_key_of_the_users_own_goes_where_the_user_says(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_OWN_KEY", KEY)
    said = '[providers.mine]\nextends = "zai"\nbase_url = "https://mine.example"\nkeys = ["MY_OWN_KEY"]\n'
    path = files.write(said)
    trust(path)
    assert sent_key(call(Registry.load(path), "mine/x"))


# ── elsewhere ────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("attempt", list(OVERLAYS))
def test_an_overlay_cannot_send_a_built_in_key_elsewhere_until_it_is_trusted(files: Files, attempt: str) -> None:
    text, model = OVERLAYS[attempt]
    path = files.write(text)
    error = refused(Registry.load(path), model)
    assert error.origin != "https://api.z.ai"
    if "evil" in text:
        assert "evil.example" in error.origin
    trust(path)
    for _ in range(2):
        assert sent_key(call(Registry.load(path), model))
    path.write_text(text + "# edited\n")
    refused(Registry.load(path), model)
    path.write_text(text)
    assert sent_key(call(Registry.load(path), model))


def test_trust_is_for_what_was_read_and_not_for_what_stands_there_now(files: Files) -> None:
    text, model = OVERLAYS["a changed base_url"]
    path = files.write(text)
    registry = Registry.load(path)
    path.write_text("# harmless\n")
    trust(path)
    refused(registry, model)


def test_trust_is_for_one_file(files: Files) -> None:
    text, model = OVERLAYS["a changed base_url"]
    trust(files.write(text))
    refused(Registry.load(files.write(text)), model)


def test_a_file_is_trusted_by_whatever_name_it_goes(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    text, model = OVERLAYS["a changed base_url"]
    path = files.write(text, "sub/mine.toml")
    link = files.folder / "link.toml"
    link.symlink_to(path)
    monkeypatch.chdir(files.folder)
    trust("sub/../link.toml")
    for name in ("sub/mine.toml", str(path), str(link)):
        assert sent_key(call(Registry.load(name), model))


LEANING = {  # what an untrusted file may add to a trusted one that already moved the provider
    "base_url": '[providers.zai]\nbase_url = "https://evil.example/v1"\n',
    "base_url in one mode": '[providers.zai]\nwhen.no-stream.base_url = "https://evil.example/v1"\n',
    "path": '[providers.zai]\npath = "@evil.example/v1"\n',
    "stream_path": '[providers.zai]\nstream_path = "@evil.example/v1"\n',
    "path of the wire": '[protocols.openai-chat]\npath = "@evil.example/v1"\n',
    "keys": '[providers.zai]\nkeys = ["MOONSHOT_API_KEY"]\n',
}


@pytest.mark.parametrize("attempt", list(LEANING))
@pytest.mark.parametrize("last", [False, True], ids=["before", "after"])
def test_an_untrusted_file_cannot_lean_on_a_trusted_one(files: Files, attempt: str, last: bool) -> None:
    good = files.write('[providers.zai]\nbase_url = "https://proxy.example"\n')
    bad = files.write(LEANING[attempt])
    trust(good)
    assert sent_key(call(Registry.load(good), "glm-4.7"))
    registry = Registry.load(good, bad) if last else Registry.load(bad, good)
    with Client(registry, transport=Nowhere()) as client:
        for stream in (False, True):
            with pytest.raises(RegistryError if "@evil" in LEANING[attempt] else Untrusted):
                list(client.stream("glm-4.7", "hi")) if stream else client.call("glm-4.7", "hi")


def test_a_base_url_of_the_call_needs_the_key_in_hand(files: Files) -> None:
    registry = Registry.load()
    for model in (
        registry.resolve("glm-4.7", base_url=EVIL),
        registry.resolve("azure/gpt-5", base_url="https://mine.openai.azure.com/openai/v1"),
    ):
        refused(registry, model, "--key-env")  # there is no file to trust
        assert sent_key(call(registry, model, api_key=KEY))
        with Client(registry, transport=(peer := Peer()), api_key=KEY) as client:
            client.call(model, "hi")
        assert sent_key(peer)
    assert sent_key(call(registry, registry.resolve("glm-4.7", base_url="https://api.z.ai/v9")))


def test_a_base_url_of_the_call_is_not_covered_by_a_trusted_file(files: Files) -> None:
    path = files.write(OVERLAYS["a changed base_url"][0])
    trust(path)
    registry = Registry.load(path)
    refused(registry, registry.resolve("glm-4.7", base_url="https://worse.example"), "--key-env")


def test_a_path_that_moves_the_host_is_refused_whoever_wrote_it(files: Files) -> None:
    path = files.write('[providers.zai]\nbase_url = "https://api.z.ai"\npath = "@evil.example/v1"\n')
    for _ in range(2):
        with pytest.raises(RegistryError, match="path must begin with /"):
            Registry.load(path).resolve("glm-4.7")
        trust(path)


@pytest.mark.parametrize("attempt", list(OVERLAYS))
def test_a_key_given_on_purpose_goes_anywhere(files: Files, attempt: str) -> None:
    text, model = OVERLAYS[attempt]
    assert sent_key(call(files.load(text), model, api_key=KEY))


def test_no_key_no_question(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    said = '[providers.mine]\nextends = "zai"\nbase_url = "https://mine.example"\nkeys = []\n'
    assert not sent_key(call(files.load(said), "mine/x"))


# ── in the clear ─────────────────────────────────────────────────────────────
@pytest.mark.parametrize("host", ["api.z.ai", "192.168.1.20:8000", "example.com", "[2001:db8::1]", "localhost.example"])
def test_no_kept_key_goes_over_plain_http_to_another_machine(
    files: Files, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("MY_OWN_KEY", KEY)
    said = f'[providers.mine]\nprotocol = "openai-chat"\nbase_url = "http://{host}/v1"\nkeys = ["MY_OWN_KEY"]\n'
    path = files.write(said)
    trust(path)
    error = refused(Registry.load(path), "mine/x")
    assert error.origin == f"http://{host}"
    assert "unencrypted" in str(error)
    built_in = files.write(f'[providers.zai]\nbase_url = "http://{host}/v1"\n')
    refused(Registry.load(built_in), "glm-4.7")
    trust(built_in)
    refused(Registry.load(built_in), "glm-4.7")
    assert sent_key(call(Registry.load(path), "mine/x", api_key=KEY))


@pytest.mark.parametrize("host", ["127.0.0.1:9", "localhost", "[::1]:8000", "127.8.8.8"])
def test_plain_http_is_well_on_this_machine(files: Files, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("MY_OWN_KEY", KEY)
    said = f'[providers.mine]\nprotocol = "openai-chat"\nbase_url = "http://{host}/v1"\nkeys = ["MY_OWN_KEY"]\n'
    path = files.write(said)
    refused(Registry.load(path), "mine/x")
    trust(path)
    assert sent_key(call(Registry.load(path), "mine/x"))
    built_in = files.write(f'[providers.zai]\nbase_url = "http://{host}/v1"\n')
    refused(Registry.load(built_in), "glm-4.7")  # another program may listen there
    trust(built_in)
    assert sent_key(call(Registry.load(built_in), "glm-4.7"))


# ── the list of trusted files ────────────────────────────────────────────────
def test_the_list_is_kept_from_others_and_holds_no_key(files: Files) -> None:
    one, two = files.write("# one\n"), files.write("# two\n")
    trust(one)
    trust(two)
    store = paths.config_dir() / "trusted.json"
    assert set(json.loads(store.read_text())) == {str(one), str(two)}
    assert oct(store.stat().st_mode & 0o777) == "0o600"
    assert oct(store.parent.stat().st_mode & 0o777) == "0o700"
    assert [file.name for file in store.parent.iterdir()] == ["trusted.json"]


@pytest.mark.parametrize("text", ["{", "", "[]", "7", '"x"', "[" * 100_000], ids=range(6))
def test_a_broken_list_is_told_and_trusts_nobody(files: Files, text: str) -> None:
    overlay, model = OVERLAYS["a changed base_url"]
    path = files.write(overlay)
    store = paths.config_dir() / "trusted.json"
    store.parent.mkdir(parents=True)
    store.write_text(text)
    with pytest.raises(RegistryError) as caught, Client(Registry.load(path), transport=Nowhere()) as client:
        client.call(model, "hi")
    assert caught.value.file == str(store)
    with pytest.raises(RegistryError):
        trust(path)
    assert sent_key(call(Registry.load(), "glm-4.7"))  # who needs no trust does not read it


@each("content", [b'[providers.caf\xe9]\nbase_url = "https://a"\n', b"\xff\xfe[\x00"])
def test_a_file_that_is_not_utf8_cannot_be_trusted(files: Files, content: bytes) -> None:
    path = files.folder / "odd.toml"
    path.write_bytes(content)
    with pytest.raises(RegistryError, match=r"odd\.toml: is not UTF-8") as caught:
        trust(path)
    assert caught.value.hint
    assert not (paths.config_dir() / "trusted.json").exists()


def test_only_what_can_be_read_can_be_trusted(files: Files) -> None:
    for path in (files.folder / "nobody.toml", files.folder):
        with pytest.raises(RegistryError, match="cannot be read") as caught:
            trust(path)
        assert caught.value.file == str(path)
    assert not (paths.config_dir() / "trusted.json").exists()


@each(
    "url, origin",
    [
        ("https://API.z.ai/api/paas/v4", "https://api.z.ai"),
        ("https://api.z.ai:443/x", "https://api.z.ai"),
        ("https://api.z.ai:80/x", "https://api.z.ai:80"),
        ("http://h:80", "http://h"),
        ("HTTP://user:pw@H:8080/?q=https://api.z.ai", "http://h:8080"),
        ("https://api.z.ai@evil.example/", "https://evil.example"),
        ("https://evil.example#@api.z.ai/", "https://evil.example"),
        ("https://evil.example?@api.z.ai/", "https://evil.example"),
        ("https://[::1]:8000/v1", "https://[::1]:8000"),
        ("https://api.z.ai./v1", "https://api.z.ai."),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, origin: str) -> None:
    assert origin_of(url) == origin


def test_trust_does_not_depend_on_where_the_file_lies(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    text, model = OVERLAYS["a provider that extends"]
    own: Path = paths.config_dir() / "providers.toml"
    own.parent.mkdir(parents=True)
    own.write_text(text)
    refused(Registry.load(), model)
    trust(own)
    assert sent_key(call(Registry.load(), model))


WIDE = {
    "defaults": '[defaults]\nbase_url = "https://evil.example/v1"\nkeys = ["ZAI_API_KEY"]\n',
    "a protocol": '[protocols.openai-chat]\nbase_url = "https://evil.example/v1"\nkeys = ["ZAI_API_KEY"]\n',
    "a family": '[families.glm]\nbase_url = "https://evil.example/v1"\nkeys = ["ZAI_API_KEY"]\n',
    "a provider that built-in ones extend": '[providers.openai-compatible]\nbase_url = "https://evil.example/v1"\n',
    "no address and no key": '[providers.mine]\nextends = "zai"\n[aliases]\nx = "zai/glm-4.7"\n',
}


def distrusted(registry: Registry) -> set[str]:
    """Of all providers and of the user's models those whose key may not go to the address."""
    found: set[str] = set()
    for name in (*registry.providers, *registry.own_models()):
        model = registry.resolve(name) if "/" in name else registry.endpoint(name)
        key = next((key for key in model.flags.keys or () if keys.find_key([key]) is not None), None)
        if model.flags.base_url and key is not None and model.provider not in found:
            origin = origin_of(model.flags.base_url)
            found |= {name} if model.distrusts(key, origin) is not None else set()
    return found


@pytest.mark.share(3)
@each("name", [*OVERLAYS, *WIDE])
def test_a_gateway_finds_every_provider_whose_key_may_not_go_to_its_address(name: str, files: Files) -> None:
    registry = files.load(WIDE[name] if name in WIDE else OVERLAYS[name][0])
    found = distrusted(registry)
    assert untrusted_models(registry).keys() == found
    modes = ("a base_url in one mode", "a base_url in the mode in which a cut stream goes on")
    by_mode = (*modes, "a base_url of a family", "a family")
    assert bool(found) is (name not in (*by_mode, "no address and no key")), found
