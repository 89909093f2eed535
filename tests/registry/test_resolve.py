"""From a name to one model at one endpoint, or to an error that helps."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from builtin import modes

from cnllm import Registry, RegistryError, UnknownModel
from cnllm.registry.flags import LimitFlags

from .support import HOME, Files, at, builtin, told

PREFER = 'prefer = ["zhipuai"]\n'


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry([builtin()])


# ── names ────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("glm-4.7", "zai/glm-4.7"),
        ("GLM-4.7", "zai/glm-4.7"),
        ("zai/glm-4.7", "zai/glm-4.7"),
        ("zai/GLM-4.7", "zai/glm-4.7"),
        ("ZAI/glm-4.7", "zai/glm-4.7"),
        ("zhipuai/glm-4.7", "zhipuai/glm-4.7"),
        ("minimax-m3", "minimax/MiniMax-M3"),
        ("MINIMAX/minimax-m3", "minimax/MiniMax-M3"),
    ],
)
def test_a_name_is_found_in_any_case_and_spelt_as_the_endpoint_spells_it(
    registry: Registry, name: str, meant: str
) -> None:
    model = registry.resolve(name)
    assert (model.name, model.provider, model.id) == (meant, *meant.split("/", 1))
    assert model.notes == ()


@pytest.mark.parametrize("name", ["id", "provider", "name", "protocol", "flags", "memo", "family"])
def test_a_model_is_shared_and_cannot_be_changed(registry: Registry, name: str) -> None:
    model = registry.resolve("glm-4.7")
    with pytest.raises(AttributeError, match=rf"{name} cannot be set"):
        setattr(model, name, None)
    assert registry.resolve("glm-4.7") is model


def test_an_id_that_one_provider_serves_needs_no_alias(files: Files) -> None:
    registry = files.load(HOME, '[models."home/Only-Here"]\n')
    for name in ("Only-Here", "only-here", "home/only-here"):
        assert registry.resolve(name).name == "home/Only-Here"
    assert registry.resolve("only-here").notes == ()


def test_an_id_with_slashes_is_whole(files: Files) -> None:
    registry = files.load(HOME, '[models."home/org/sub/Thing"]\n')
    for name in ("home/org/sub/Thing", "org/sub/Thing", "org/sub/thing"):
        model = registry.resolve(name)
        assert (model.provider, model.id, model.notes) == ("home", "org/sub/Thing", ())
    model = registry.resolve("openrouter/some-org/some-model:free")
    assert (model.provider, model.id) == ("openrouter", "some-org/some-model:free")


def test_an_id_that_several_serve_lists_them_until_one_is_preferred(files: Files) -> None:
    served = '[models."home/x1"]\n[models."away/x1"]\n[models."zai/x1"]\n[providers.away]\nextends = "home"\n'
    with pytest.raises(UnknownModel) as caught:
        files.load(HOME, served).resolve("X1")
    assert sorted(caught.value.close) == ["away/x1", "home/x1", "zai/x1"]
    assert ", ".join(caught.value.close) in str(caught.value)
    registry = files.load('prefer = ["nobody", "zai", "home"]\n' + HOME, served)
    assert registry.resolve("X1").name == "zai/x1"
    assert registry.resolve("home/x1").name == "home/x1"


def test_prefer_turns_the_built_in_aliases_to_a_provider_that_serves_the_same(files: Files) -> None:
    registry = files.load(PREFER)
    assert registry.resolve("glm-4.7").name == "zhipuai/glm-4.7"
    assert registry.resolve("zai/glm-4.7").name == "zai/glm-4.7"
    assert registry.resolve("kimi-k3").name == "moonshotai/kimi-k3"


def test_prefer_leaves_an_alias_where_the_preferred_provider_has_retired_the_model(files: Files) -> None:
    retired = '[models."{}/glm-4.7".status]\nis = "retired"\n'
    both = 'prefer = ["home", "zhipuai"]\n' + HOME + retired.format("home")
    assert files.load(both).resolve("glm-4.7").name == "zhipuai/glm-4.7"
    assert files.load(both, retired.format("zhipuai")).resolve("glm-4.7").name == "zai/glm-4.7"
    again = '[models."home/glm-4.7".status]\nis = "current"\n'
    assert files.load(both, again).resolve("glm-4.7").name == "home/glm-4.7"
    everywhere = retired.format("zhipuai") + retired.format("zai")
    assert files.load(both, everywhere).resolve("glm-4.7").name == "home/glm-4.7", "there is no better one"


def test_the_later_prefer_holds(files: Files) -> None:
    assert files.load(PREFER, 'prefer = ["zai"]\n').resolve("glm-4.7").name == "zai/glm-4.7"
    assert files.load(PREFER, "prefer = []\n").resolve("glm-4.7").name == "zai/glm-4.7"


def test_an_alias_of_the_users_own_means_what_it_says(files: Files) -> None:
    registry = files.load(PREFER + '[aliases]\nwork = "zai/glm-4.7"\n"GLM-4.6" = "home/mine"\n' + HOME)
    assert registry.resolve("work").name == "zai/glm-4.7"
    assert registry.resolve("glm-4.6").name == "home/mine"
    assert registry.resolve("glm-4.7").name == "zhipuai/glm-4.7"
    assert files.load('[aliases]\n"glm-4.7" = "zhipuai/glm-4.7"\n').resolve("glm-4.7").name == "zhipuai/glm-4.7"


@pytest.mark.parametrize("target", ["nobody/glm-4.7", "glm-4.7"])
def test_an_alias_that_leads_nowhere_is_told_with_its_line(files: Files, target: str) -> None:
    registry = files.load(f'[aliases]\n# a comment\nWork = "{target}"\n')
    with pytest.raises(RegistryError) as caught:
        registry.resolve("work")
    assert told(caught.value).line == 3
    assert target in str(caught.value)


# ── what nobody described ────────────────────────────────────────────────────
def test_an_unknown_id_has_its_providers_facts_and_a_note(registry: Registry) -> None:
    known, model = registry.resolve("zai/glm-4.7"), registry.resolve("zai/glm-99-nobody-knows")
    assert (model.provider, model.id) == ("zai", "glm-99-nobody-knows")
    assert model.flags.base_url == known.flags.base_url
    assert model.flags.keys == known.flags.keys
    assert model.flags.limits == LimitFlags()
    assert model.flags.reasoning.mode == "unknown"
    assert model.flags.reasoning.tags == ["<think>", "</think>"]  # of its family
    (note,) = model.notes
    assert (note.code, note.said) == ("unknown-model", "zai/glm-99-nobody-knows")
    assert at(note.where)[1].startswith("protocol")


@pytest.mark.parametrize(
    ("name", "did"),
    [
        ("home/xyz-1", "only the provider's flags apply; whether it reasons is unknown"),
        ("home/glm-99", "only the flags of the provider and of the family glm apply; whether it reasons is unknown"),
        ("togetherai/gpt-oss-1t", "only the flags of the provider and of the family gpt-oss apply"),
        ("always/xyz-1", "only the provider's flags apply"),
    ],
)
def test_an_unknown_id_says_whose_facts_it_has(files: Files, name: str, did: str) -> None:
    registry = files.load(HOME, "[providers.always]\nextends = 'home'\nreasoning.mode = 'always'\n")
    model = registry.resolve(name)
    [note] = model.notes
    assert note.did.partition("; did you mean")[0] == did
    rules = model.flags.reasoning
    assert ("is unknown" in did) is (rules.mode in (None, "unknown"))


def test_a_model_that_is_named_and_no_more_is_known(files: Files) -> None:
    assert files.load(HOME, '[models."home/x"]\n').resolve("home/x").notes == ()
    assert files.load(HOME, "[models]\n'home/x' = {}\n").resolve("home/x").notes == ()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("glm-4.8", "glm-4.6"),
        ("gml-4.7", "glm-4.7"),
        ("deepseek-flahs", "deepseek-flash"),
        ("GPT4o", "gpt-4o"),
        ("zia/glm-4.7", "zai/glm-4.7"),
        ("kimi-k2.7-cod", "kimi-k2.7-code"),
    ],
)
def test_an_unknown_name_gives_those_near_it(registry: Registry, name: str, nearest: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        registry.resolve(name)
    error = caught.value
    assert name in str(error)
    assert nearest in error.close
    assert len(error.close) == len(set(error.close)) <= 5
    assert error.hint is not None
    assert error.close[0] in error.hint
    for near in error.close:
        registry.resolve(near)


@pytest.mark.parametrize("name", ["zz", "foo/bar", "a/b", "arab"])
def test_letters_within_a_word_of_another_name_are_no_likeness(files: Files, name: str) -> None:
    models = ("bee-buzz", "command-arabic-7b", "extra/bytes")
    registry = files.load(HOME, "".join(f'[models."home/{model}"]\n' for model in models))
    with pytest.raises(UnknownModel) as caught:
        registry.resolve(name)
    assert caught.value.close == (["home/command-arabic-7b"] if name == "arab" else [])


@pytest.mark.parametrize("name", ["", "/", "zai/", "/glm-4.7x", " ", "qqqqqqqqqqqq", "nobody/x", "模型", "a\x00b"])
def test_a_name_like_no_other_is_refused_with_a_way_on(registry: Registry, name: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        registry.resolve(name)
    assert caught.value.hint
    if "/" in name.strip("/"):
        assert "openai-compatible/" in caught.value.hint


def test_retired_ids_resolve_with_a_note_that_names_the_successor(registry: Registry) -> None:
    statuses = {name: registry.resolve(name).flags.status for name in registry.names()}
    retired = {name: status.use for name, status in statuses.items() if status and status.is_ == "retired"}
    assert {"deepseek/deepseek-chat", "deepseek/deepseek-reasoner"} <= set(retired)
    for name, successor in retired.items():
        (note,) = registry.resolve(name).notes
        assert note.code == "retired"
        assert successor is not None
        assert successor in note.did
        assert at(note.where)[1].startswith("status")
        registry.resolve(successor)


# ── another place, another wire ──────────────────────────────────────────────
def test_an_endpoint_no_one_described_works_with_a_base_url(registry: Registry) -> None:
    model = registry.resolve("openai-compatible/any/id", base_url="http://127.0.0.1:8000/v1")
    assert (model.provider, model.id, model.protocol) == ("openai-compatible", "any/id", "openai-chat")
    assert model.flags.base_url == "http://127.0.0.1:8000/v1"
    assert model.flags.keys == []
    assert model.where("base_url") == "the call"
    assert registry.resolve("openai-compatible/any/id").flags.base_url is None


def test_a_base_url_moves_any_model_in_every_mode(registry: Registry) -> None:
    here = "http://127.0.0.1:1/v1"
    moved = registry.resolve("deepseek/deepseek-flash", base_url=here)
    assert {moved.flags_for(mode).base_url for mode in modes()} == {here}
    plain = registry.resolve("deepseek/deepseek-flash")
    assert here not in {plain.flags_for(mode).base_url for mode in modes()}


@pytest.mark.parametrize("protocol", ["openai-chatt", "gemini-of-nobody", ""])
def test_a_wire_the_endpoint_does_not_speak_is_refused(registry: Registry, protocol: str) -> None:
    if protocol:
        with pytest.raises(UnknownModel) as caught:
            registry.resolve("zai/glm-4.7", protocol=protocol)
        assert "openai-chat" in (caught.value.hint or "")
    else:
        assert registry.resolve("zai/glm-4.7", protocol=protocol).protocol == "openai-chat"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('[providers.h]\nbase_url = "http://h"\n', 1, "names no protocol; it is one of .*openai-chat"),
        (
            '[providers.h]\nbase_url = "http://h"\nprotocol = "openai-chatt"\n',
            3,
            "no protocol is called 'openai-chatt'",
        ),
        (HOME + '[models."home/x"]\nprotocol = "nobodys"\n', 8, "no protocol is called 'nobodys'"),
    ],
)
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_an_endpoint_without_a_wire_is_told_with_its_line(
    files: Files, text: str, line: int, said: str, warm: bool
) -> None:
    registry = files.load(text)
    if warm:
        registry = files.load(text)
    with pytest.raises(RegistryError, match=said) as caught:
        registry.resolve("home/x" if "home/x" in text else "h/x")
    assert told(caught.value).line == line


def test_an_alias_of_no_provider_is_told_as_it_is_written(files: Files) -> None:
    with pytest.raises(RegistryError, match=r"alias 'm' names no model: 'glm-4\.77'\n"):
        files.load('[aliases]\nm = "glm-4.77"\n').resolve("m")


# ── the built-in file ────────────────────────────────────────────────────────
def test_resolving_reads_no_environment(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forbidden(dict[str, str]):
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError("the environment was read")

        def __getitem__(self, name: str) -> str:
            raise AssertionError("the environment was read")

        def __contains__(self, name: object) -> bool:
            raise AssertionError("the environment was read")

        def __iter__(self) -> Iterator[str]:
            raise AssertionError("the environment was read")

    fresh = Registry([builtin()])
    fresh.names(catalogue=True)  # the environment says where its cache is
    with monkeypatch.context() as patched:
        patched.setattr(os, "environ", Forbidden())
        for name in (*fresh.names(), "zai/unknown"):
            model = fresh.resolve(name)
            model.flags_for(next(iter(modes())))
        model.explain()


def test_every_model_resolves_in_every_mode(registry: Registry) -> None:
    every = list(modes())
    assert len(every) == 256
    for name in registry.names():
        model = registry.resolve(name)
        assert model.name == name
        assert all(model.flags_for(mode).protocol for mode in every)


def test_every_alias_means_a_described_model(registry: Registry) -> None:
    names = set(registry.names())
    for alias, target in registry.aliases.items():
        assert target in names
        assert registry.resolve(alias) is not None
        assert registry.resolve(alias.upper()).name == registry.resolve(alias).name == target


def test_every_id_of_the_built_in_file_has_one_meaning_or_tells_its_candidates(registry: Registry) -> None:
    for name in registry.names():
        id = name.partition("/")[2]
        try:
            found = registry.resolve(id)
        except UnknownModel as error:
            status = registry.resolve(name).flags.status
            retired = status is not None and status.is_ == "retired"
            assert (name in error.close) != retired  # noqa: PT017 - either outcome is right
        else:
            assert found.id.casefold() == id.casefold() or id in registry.aliases or "/" in id


def test_completion_knows_aliases_and_names(registry: Registry) -> None:
    assert "glm-4.7" in registry.complete("glm-4")
    assert "zai/glm-4.7" in registry.complete("zai/")
    assert registry.complete("nobody") == []
    assert set(registry.complete("")) == {
        *registry.aliases,
        *registry.family_aliases,
        *registry.names(catalogue=True),
    }


def test_the_same_question_has_the_same_answer(registry: Registry) -> None:
    assert registry.resolve("glm-4.7") is registry.resolve("glm-4.7")
    assert registry.resolve("glm-4.7") is not registry.resolve("glm-4.7", base_url="http://127.0.0.1:1")


def test_a_bare_name_at_an_address_of_the_callers_own_is_told_its_full_name(registry: Registry) -> None:
    with pytest.raises(UnknownModel) as caught:
        registry.resolve("deepseek-flsh", base_url="http://127.0.0.1:9/v1")
    assert "openai-compatible/deepseek-flsh" in str(caught.value.hint)


def test_neither_a_registry_nor_its_models_can_be_pickled_and_both_say_what_to_do(registry: Registry) -> None:
    model = registry.resolve("glm-4.7")
    assert copy.deepcopy(model) is model
    with pytest.raises(TypeError, match=r"send its name, and resolve"):
        pickle.dumps(model)
    with pytest.raises(TypeError, match=r"Registry\.load\(\)"):
        pickle.dumps(registry)
