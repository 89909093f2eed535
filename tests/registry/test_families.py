"""Names of families and default models: data that must stay true, and what a wrong name suggests."""

from __future__ import annotations

import pytest

from cnllm import Registry, UnknownModel

from .support import HOME, Files, builtin

PEOPLE_SAY = {
    *("claude", "sonnet", "opus", "haiku", "deepseek", "qwen", "kimi", "doubao", "llama3", "gemini", "gpt", "glm"),
    *("grok", "mistral", "minimax", "hunyuan", "ernie", "mimo", "step", "longcat", "ling", "spark", "yi", "internlm"),
    *("moonshot", "zhipu", "chatgpt", "豆包", "通义千问"),
}


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry([builtin()])


def test_each_family_is_a_current_model_with_an_address_and_a_note(registry: Registry) -> None:
    families = registry.family_aliases
    assert set(families) >= PEOPLE_SAY
    listed = set(registry.names())
    ids = {name.partition("/")[2].casefold() for name in listed}
    for alias, target in families.items():
        assert target in listed
        assert alias.casefold() not in ids  # a model's own name goes first, so this alias would never be used
        assert alias not in registry.aliases
        for spelling in (alias, alias.upper(), f"{target.partition('/')[0]}/{alias}"):
            model = registry.resolve(spelling)
            assert model.name == target
            note = model.notes[0]
            assert (note.code, note.said, note.did) == ("family-alias", alias, target)
            assert note.where.startswith("providers.toml:")
        assert model.flags.status is None or model.flags.status.is_ not in ("retired", "preview")
        assert model.flags.base_url
        assert registry.resolve(target).notes == ()


def test_a_family_is_known_at_any_provider_that_serves_its_model(registry: Registry) -> None:
    listed, tried = set(registry.names()), 0
    for alias, target in registry.family_aliases.items():
        id = target.partition("/")[2]
        for provider in registry.providers:
            name = f"{provider}/{id}"
            if name in listed and name != target and f"{provider}/{alias}" not in listed:
                model = registry.resolve(f"{provider}/{alias}")
                assert model.name == name
                assert [(note.code, note.did) for note in model.notes] == [("family-alias", name)]
                tried += 1
    assert tried > 5
    assert registry.resolve("openai/claude").name == "openai/claude"  # any other id is sent as it is


def test_every_key_of_the_built_in_file_leads_to_a_default_model(registry: Registry) -> None:
    defaults = [registry.resolve(name) for name in registry.default_models]
    assert [model.name for model in defaults] == registry.default_models
    assert all(model.flags.status is None or model.flags.status.is_ is None for model in defaults)
    assert all(model.flags.base_url for model in defaults)
    reached = {key for model in defaults for key in model.flags.keys or ()}
    models = [model for model in map(registry.resolve, registry.names()) if model.flags.base_url]
    # a key that opens only retired models leads nowhere
    served = [model for model in models if model.flags.status is None or model.flags.status.is_ != "retired"]
    known = {key: model.name for model in served for key in model.flags.keys or ()}
    assert {key: name for key, name in known.items() if key not in reached} == {}


def test_another_endpoint_keeps_its_own_ids(registry: Registry) -> None:
    for name in ("ollama/llama3", "openrouter/claude", "openai-compatible/qwen"):
        model = registry.resolve(name)
        assert (model.name, model.notes[0].code if model.notes else "unknown-model") == (name, "unknown-model")


def test_a_users_own_names_go_first(files: Files) -> None:
    own = files.load(HOME + '[models."home/claude"]\n[models."home/m2"]\n[family_aliases]\nsonnet = "home/m2"\n')
    assert own.resolve("claude").name == "home/claude"
    assert own.resolve("Sonnet").name == "home/m2"
    assert files.load(HOME, '[models."home/m"]\n[aliases]\nqwen = "home/m"\n').resolve("qwen").name == "home/m"
    assert files.load('prefer = ["zhipuai"]\n').resolve("glm").provider == "zhipuai"


def test_a_wrong_name_suggests_what_contains_it_then_what_is_spelt_alike(registry: Registry) -> None:
    for name, first in {
        "sonnet-5": "anthropic/claude-sonnet-5",
        "gpt5": "gpt-5",
        "opus5.5": "anthropic/claude-opus-5-5",
        "claude-sonet": "claude-sonnet",
        "gml-4.7": "glm-4.7",
        "kimi-k33": "kimi-k3",
        "foo/glm-4.7": "zai/glm-4.7",
        "deepseak/deepseek-flash": "deepseek/deepseek-flash",
        "glm 5.3 flash": "glm-5.3-flash",
        "claude-99-nothing-like-it": "claude",
    }.items():
        with pytest.raises(UnknownModel) as caught:
            registry.resolve(name)
        close = caught.value.close
        assert close[0] == first
        assert caught.value.hint is not None
        assert caught.value.hint.startswith(f"did you mean {first}")
        assert caught.value.hint.count("?") == 1
        assert caught.value.hint.endswith("?")  # one hint
        for suggestion in close:
            status = registry.resolve(suggestion).flags.status
            assert status is None or status.is_ != "retired"


def test_of_an_id_that_several_serve_the_current_one_is_meant(files: Files) -> None:
    old = 'status = { is = "retired", use = "home/x1" }\n'
    tables = f'[providers.away]\nextends = "home"\n[models."home/x1"]\n[models."away/x1"]\n{old}'
    assert files.load(HOME, tables).resolve("x1").name == "home/x1"
