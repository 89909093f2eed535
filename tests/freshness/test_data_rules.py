"""Data files: what they may hold, and that nothing else can stand in them."""

from __future__ import annotations

import pytest

from cnllm import Registry, RegistryError
from cnllm.registry.flags import Flags, RegistryFile, Table
from cnllm.registry_files.check import check

from .support import NAME, write_data, write_own

pytestmark = pytest.mark.usefixtures("small_builtin")

MAY_MOVE = {"limits", "price", "input", "status", "reasoning", "sources"}
IN_A_FILE = {"schema", "models"}


def fault(text: str) -> RegistryError:
    """The error of loading a file of updates with this text; `registry check` reports it too."""
    path = write_data(text)
    with pytest.raises(RegistryError) as caught:
        Registry.load()
    assert caught.value.file == str(path)
    assert caught.value.hint
    assert [problem.file for problem in check()][:1] == [str(path)]
    return caught.value


@pytest.mark.share(3)
@pytest.mark.parametrize("flag", sorted({*Flags.__struct_fields__, *Table.__struct_fields__} - MAY_MOVE))
def test_no_other_flag_can_stand_in_a_data_file(flag: str) -> None:
    error = fault(f'[models."{NAME}"]\n{flag} = "x"\n')
    assert error.line == 2
    assert f"has no flag '{flag}'" in error.message
    assert error.hint == "bring the file before it back: cnllm registry rollback updates"


@pytest.mark.parametrize("section", sorted(set(RegistryFile.__struct_fields__) - IN_A_FILE))
def test_no_other_section_can_stand_in_a_data_file(section: str) -> None:
    assert f"has no flag '{section}'" in fault(f"[{section}]\n").message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("price.input = nan", "no model has such a value"),
        ("price.input = inf", "no model has such a value"),
        ("price.input = -inf", "no model has such a value"),
        ("price.input = -1", "no model has such a value"),
        ("price.input = 1e308", "no model has such a value"),
        ("price.tiers = []", "has no flag 'tiers'"),
        ("price.off_peak = {}", "has no flag 'off_peak'"),
        ('price.currency = "usd; rm"', "ISO 4217"),
        ("limits.context = 0", "no model has such a value"),
        ("limits.context = 99999999999", "no model has such a value"),
        ("limits.context = 1.5", "a whole number"),
        ('reasoning.off.set.base_url = "x"', "has no flag 'off'"),
        ('reasoning.mode = "maybe"', "never"),
        ('input = ["code"]', "text"),
        ('status.use = "https://evil.example/?x"', "status.use is not a name of a model"),
        ('sources.x = { url = "u", seen = 2026-11-20, how = "probe", backs = [] }', "docs"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(line: str, words: str) -> None:
    error = fault(f'[models."{NAME}"]\n{line}\n')
    assert words in error.message
    assert error.line == 2


@pytest.mark.parametrize(
    "name", ["glm", "a/../b", "a/..", "../a/b", "a/b?c", "a/b#c", "a/b c", "a/\\u202e", "a//b", "/a", "a/" + "b" * 300]
)
def test_a_name_that_is_no_models_is_refused(name: str) -> None:
    assert "models." in fault(f'[models."{name}"]\nlimits.context = 5\n').message


@pytest.mark.parametrize(
    "text", ["models = 5", "[models]\nx = 5", '[models."a/b"]\nlimits = 5', "release = 1", "x =", "\x00"]
)
def test_a_file_of_another_form_is_refused(text: str) -> None:
    assert fault(text).hint == "bring the file before it back: cnllm registry rollback updates"


def test_the_same_text_as_the_users_own_file_is_read_by_the_rules_of_that_one() -> None:
    """The cache knows the kind of a file: one that was valid as the user's is not for that reason a valid data file."""
    text = f'[models."{NAME}"]\ntitle = "Mine"\n'
    write_own(text)
    Registry.load()
    assert "has no flag 'title'" in fault(text).message


def test_files_that_a_program_names_stand_without_the_data_files() -> None:
    write_data(f'[models."{NAME}"]\nlimits.context = 5\n')
    own = write_own("")
    limits = Registry.load(own).resolve(NAME).flags.limits
    assert limits.context != 5


def test_a_watching_registry_takes_up_an_update() -> None:
    registry = Registry.load(watch=True)
    registry.resolve(NAME)
    write_data(f'[models."{NAME}"]\nlimits.context = 5\n')
    limits = registry.resolve(NAME).flags.limits
    assert limits.context == 5
