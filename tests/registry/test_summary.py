"""What listings and completion are told of comes from a cache, and is never old, damaged or another's."""

from __future__ import annotations

import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import small

import cnllm
from cnllm import Registry, RegistryError
from cnllm.config import paths
from cnllm.model_facts import summary

from .support import BUILTIN, HOME, Files

pytestmark = pytest.mark.usefixtures("small_builtin")

PLAIN = f'{HOME}limits.output = 1\n[models."home/x"]\n[aliases]\nmine = "home/x"\n'


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNLLM_CACHE_DIR", str(tmp_path / "own-cache"))


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[Registry]:
    """The registries that had to be loaded for want of an entry."""
    seen: list[Registry] = []
    real = Registry.load

    def load() -> Registry:
        seen.append(real())
        return seen[-1]

    monkeypatch.setattr(summary, "_load_registry", load)
    return seen


def entries(kind: str = "") -> list[Path]:
    return sorted(paths.cache_dir().glob(f"{kind or '[mn]*'}-*"))


def use(monkeypatch: pytest.MonkeyPatch, *files: Path) -> None:
    monkeypatch.setenv("CNLLM_PROVIDERS", os.pathsep.join(map(str, files)))


def output() -> int | None:
    found: int | None = summary.listing().row("home/x")["output"]
    return found


@pytest.mark.long
def test_what_is_kept_is_what_the_registry_says(
    files: Files, monkeypatch: pytest.MonkeyPatch, loaded: list[Registry]
) -> None:
    small.use(monkeypatch, BUILTIN)
    costly = 'price = { input = 2, output = 0.1, off_peak = { hours = "night", since = 2026-01-02, input = 1 } }\n'
    use(monkeypatch, files.write(PLAIN.replace("[aliases]", f'{costly}title = "家\\u0007"\n[aliases]')))
    registry = Registry.load()
    short = summary.short_names(registry.aliases)
    expected = [summary.row(model, short.get(model.name, [])) for model in map(registry.resolve, registry.names())]
    for _ in range(2):
        found = summary.listing()
        assert json.dumps([found.row(name) for name in found.models]) == json.dumps(expected)
        assert found.kinds == list(expected[0]["capabilities"])
        names = summary.names()  # a completion knows the catalogue, too
        assert (found.providers, found.aliases, found.models) == (
            registry.providers,
            registry.aliases,
            registry.names(),
        )
        assert (names.providers, names.aliases, names.models) == (
            sorted([*registry.providers, *registry.catalogue_providers()]),
            registry.aliases,
            registry.names(catalogue=True),
        )
        assert names.complete("glm") == registry.complete("glm")
        assert names.complete("home/") == ["home/x"]
    assert len(loaded) == 2  # one for the names, one for all


@pytest.mark.parametrize("keep_times", [False, True])
def test_an_edited_file_is_told_anew_even_with_its_old_times_and_size(
    files: Files, monkeypatch: pytest.MonkeyPatch, keep_times: bool
) -> None:
    path = files.write(PLAIN)
    use(monkeypatch, path)
    assert output() == 1
    times = path.stat()
    for value in (2, 3, 1):
        files.write(PLAIN.replace("output = 1", f"output = {value}"), path.name)
        if keep_times:
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert output() == value


def test_what_files_are_in_force_and_in_which_order_counts(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = files.write(PLAIN), files.write('[providers.home]\nlimits.output = 2\n[aliases]\nmine = "home/y"\n')
    for chosen, expected in (((one,), 1), ((one, two), 2), ((two, one), 1), ((one,), 1)):
        use(monkeypatch, *chosen)
        assert output() == expected
        assert summary.names().aliases["mine"] == ("home/y" if chosen == (one, two) else "home/x")
    use(monkeypatch)
    assert summary.names().complete("home/") == summary.names().complete("mine") == []
    monkeypatch.delenv("CNLLM_PROVIDERS")
    assert "home" not in summary.listing().providers
    paths.config_dir().mkdir(parents=True)
    own = paths.config_dir() / "providers.toml"
    own.write_text(PLAIN)
    assert (output(), summary.names().complete("home/")) == (1, ["home/x"])
    own.write_text(f'prefer = ["home"]\n{PLAIN}[models."home/y"]\n')
    assert summary.names().complete("home/") == ["home/x", "home/y"]
    own.unlink()
    assert summary.names().complete("home/") == []


def test_two_files_are_not_taken_for_one_that_holds_both(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = PLAIN, '[models."home/y"]\n'
    use(monkeypatch, files.write(first), files.write(second))
    assert summary.names().complete("home/") == ["home/x", "home/y"]
    use(monkeypatch, files.write(first + second), files.write(""))
    assert summary.names().complete("home/") == ["home/x", "home/y"]
    use(monkeypatch, files.write(first + second))
    assert summary.names().complete("home/") == ["home/x", "home/y"]
    assert len(entries("names")) == 3


def test_another_version_reads_none_of_it(monkeypatch: pytest.MonkeyPatch, loaded: list[Registry]) -> None:
    summary.names()
    summary.names()
    assert len(loaded) == 1
    monkeypatch.setattr("cnllm.model_facts.summary.VERSION", "9.9.9")
    summary.names()
    assert len(loaded) == 2
    monkeypatch.setattr(summary, "_CODE", summary._CODE[1:])  # as if a module had been edited
    summary.names()
    assert len(loaded) == 3
    monkeypatch.setattr(summary, "_CODE", ("no-such-file.py",))  # code that has no time is never kept
    summary.names()
    summary.names()
    assert len(loaded) == 5


def test_a_damaged_entry_is_as_good_as_none(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, files.write(PLAIN))
    assert (output(), summary.names().complete("home/")) == (1, ["home/x"])
    chance = random.Random(1)
    whole = {entry: entry.read_bytes() for entry in entries()}
    assert len(whole) == 2
    for damage in (
        lambda blob: b"",
        lambda blob: blob[:20],
        lambda blob: blob[:-1],
        lambda blob: blob[32:],
        lambda blob: blob.replace(b"home/x", b"home/y"),
        lambda blob: chance.randbytes(len(blob)),
    ):
        for entry, blob in whole.items():
            entry.write_bytes(damage(blob))
        assert (output(), summary.names().complete("home/")) == (1, ["home/x"])
        assert {entry: entry.read_bytes() for entry in entries()} == whole
    names, models = entries("names")[0], entries("models")[0]
    names.write_bytes(models.read_bytes())
    assert summary.names().complete("home/") == ["home/x"]


def test_without_a_cache_folder_all_is_told(
    files: Files, monkeypatch: pytest.MonkeyPatch, loaded: list[Registry]
) -> None:
    monkeypatch.setenv("CNLLM_CACHE_DIR", str(files.write("", "file") / "cache"))
    use(monkeypatch, files.write(PLAIN))
    for _ in range(2):
        assert (output(), summary.names().complete("home/")) == (1, ["home/x"])
    assert len(loaded) == 4


def test_a_faulty_file_is_refused_every_time(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files.write(PLAIN)
    use(monkeypatch, path)
    assert output() == 1
    files.write("foo = 1\n" + PLAIN, path.name)
    for tell in (summary.names, summary.listing, summary.names, summary.listing):
        with pytest.raises(RegistryError, match="has no flag 'foo'"):
            tell()
    path.unlink()
    with pytest.raises(RegistryError, match="cannot be read"):
        summary.names()


@pytest.mark.parametrize("early", [True, False])
def test_a_file_that_is_edited_meanwhile_leaves_nothing_under_a_wrong_name(
    files: Files, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    path, other = files.write(PLAIN), PLAIN.replace("home/x", "home/y")
    use(monkeypatch, path)
    real = Registry.load

    def edited() -> Registry:
        if early:
            files.write(other, path.name)
        registry = real()
        files.write(other, path.name)
        return registry

    monkeypatch.setattr(summary, "_load_registry", edited)
    assert summary.names().complete("home/") == ["home/y" if early else "home/x"]
    monkeypatch.setattr(summary, "_load_registry", real)
    assert summary.names().complete("home/") == ["home/y"]
    files.write(PLAIN, path.name)
    assert summary.names().complete("home/") == ["home/x"]


def test_a_model_that_cannot_be_told_of_stands_in_the_way_of_no_other(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, files.write(PLAIN))
    real = Registry.resolve

    def resolve(self: Registry, name: str, *, protocol: str | None = None, base_url: str | None = None) -> cnllm.Model:
        if name == "home/x":
            raise RegistryError("it is broken")
        return real(self, name, protocol=protocol, base_url=base_url)

    monkeypatch.setattr(Registry, "resolve", resolve)
    for _ in range(2):
        found = summary.listing()
        assert found.row("zai/glm-4.7")["provider"] == "zai"
        with pytest.raises(RegistryError, match="it is broken"):
            found.row("home/x")
    assert entries("models") == []


def test_many_at_once_are_told_the_same(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, files.write(PLAIN))
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: output(), range(4))) == {1}
    assert len(entries("models")) == len(list(paths.cache_dir().iterdir())) - len(entries("registry")) == 1
