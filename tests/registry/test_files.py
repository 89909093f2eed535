"""Which files are read, and what a broken one says: file, line, and the nearest right word."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from cases import each

from cnllm import Registry, RegistryError
from cnllm.config import paths
from cnllm.registry.read import builtin_path
from cnllm.registry_files.check import check

from .support import BUILTIN, HOME, Files, told


def output(registry: Registry) -> int | None:
    limits = registry.resolve("home/x").flags.limits
    return limits.output


def limit(value: int) -> str:
    return f"{HOME}limits.output = {value}\n"


# ── which files ──────────────────────────────────────────────────────────────
def test_without_overlays_the_built_in_file_is_all(files: Files) -> None:
    assert Registry.load().files == [str(builtin_path())] == [str(BUILTIN)]


def test_the_file_in_the_config_folder_is_the_users(files: Files) -> None:
    paths.config_dir().mkdir(parents=True)
    own = paths.config_dir() / "providers.toml"
    own.write_text(limit(1))
    assert Registry.load().files == [str(BUILTIN), str(own)]
    assert output(Registry.load()) == 1


def test_cnllm_providers_lists_files_instead_and_the_later_wins(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    paths.config_dir().mkdir(parents=True)
    (paths.config_dir() / "providers.toml").write_text(limit(1))
    two, three = files.write(limit(2)), files.write(limit(3))
    monkeypatch.setenv("CNLLM_PROVIDERS", f"{two}{os.pathsep}{os.pathsep}{three}")
    assert Registry.load().files == [str(BUILTIN), str(two), str(three)]
    assert output(Registry.load()) == 3
    monkeypatch.setenv("CNLLM_PROVIDERS", f"{three}{os.pathsep}{two}")
    assert output(Registry.load()) == 2


def test_an_empty_list_is_no_overlay_at_all(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    paths.config_dir().mkdir(parents=True)
    (paths.config_dir() / "providers.toml").write_text(limit(1))
    monkeypatch.setenv("CNLLM_PROVIDERS", "")
    assert Registry.load().files == [str(BUILTIN)]


def test_paths_given_to_load_stand_instead_of_the_users(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNLLM_PROVIDERS", str(files.write(limit(1))))
    two, three = files.write(limit(2)), files.write(limit(3))
    assert Registry.load(two, str(three)).files == [str(BUILTIN), str(two), str(three)]
    assert output(Registry.load(two, three)) == 3


def test_the_repr_has_the_number_of_providers_and_the_files(files: Files) -> None:
    registry = files.load(HOME)
    assert repr(registry) == f"<Registry {len(registry.providers)} providers: {', '.join(registry.files)}>"


def test_a_file_may_have_windows_line_ends_and_no_last_one(files: Files) -> None:
    path = files.write(limit(4).replace("\n", "\r\n").rstrip().encode())
    model = Registry.load(path).resolve("home/x")
    assert model.flags.limits.output == 4
    assert model.where("limits.output") == f"{path}:7"


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "schema = 1\n", "[models]\n", "[providers.zai]\n"])
def test_a_file_may_say_nothing(files: Files, text: str) -> None:
    for _ in range(2):
        assert files.load(text).resolve("glm-4.7").name == "zai/glm-4.7"


# ── broken files ─────────────────────────────────────────────────────────────
def test_a_missing_overlay_is_named(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = str(files.folder / "nobody.toml")
    with pytest.raises(RegistryError, match="cannot be read: No such file") as caught:
        Registry.load(missing)
    assert (told(caught.value).file, caught.value.line) == (missing, None)
    monkeypatch.setenv("CNLLM_PROVIDERS", missing)
    with pytest.raises(RegistryError) as caught:
        Registry.load()
    assert caught.value.file == missing
    (problem,) = check([missing])
    assert (problem.file, problem.line, problem.severity) == (missing, None, "error")


def test_a_folder_is_no_registry_file(files: Files) -> None:
    with pytest.raises(RegistryError, match="cannot be read") as caught:
        Registry.load(files.folder)
    assert caught.value.file == str(files.folder)


BROKEN: list[tuple[str | bytes, int | None, str]] = [
    (b"# one\n# two \xff\n", 2, "is not UTF-8"),
    (b"\xff\xfea\x00", 1, "is not UTF-8"),
    ("# one\nschema = \n", 2, "not TOML"),
    ("schema = 1\nschema = 2\n", 2, "not TOML"),
    ("\n\n[providers.zai\n", 3, "not TOML"),
    ('[aliases]\na = "b\n', 2, "not TOML"),
    ('prefer = ["zai"\n', 1, "not TOML"),
    ("[providers.home]\nlimits = 2026-13-45\n", 2, "not TOML"),
    ("\r\n\r\nschema = \r\n", 3, "not TOML"),
    ("prefer = " + "[" * 3000 + "]" * 3000, None, "cannot be read"),
    ("prefer == " + "[" * 3000 + "]" * 3000, 1, "not TOML"),  # the corrected line cannot be read either
    ("[" * 200_000, 1, "not TOML"),  # the advice would take minutes
    (f"[models.'zai/x']\nlimits.output = {'9' * 5000}\n", None, "cannot be read"),
    (f"[models.'zai/x']\nlimits.output = {'9' * 50}\n", 2, "cannot be stored"),
]


def test_what_is_not_toml_is_told_with_its_line(files: Files) -> None:
    for number, (text, line, said) in enumerate(BROKEN):
        error = files.refused(text)
        assert said in str(error), BROKEN[number]
        assert error.line == line, BROKEN[number]
        assert error.hint
    written = [str(files.write(text, f"checked{number}.toml")) for number, (text, _, _) in enumerate(BROKEN)]
    found = check(written)  # in one go: it takes most of a second
    assert [(p.file, p.line) for p in found] == [
        (file, line) for file, (_, line, _) in zip(written, BROKEN, strict=True)
    ]
    assert all(said in problem.message for problem, (_, _, said) in zip(found, BROKEN, strict=True))


RENAMED = {
    "messages.runs = 'join'": "consecutive_roles",
    "stream.proof = 'done'": "terminator",
    "usage.apart = ['cached']": "excluded_from_totals",
    "tools.names_max = 64": "name_max_length",
    "tools.ids = '[a-z]'": "call_id_pattern",
    "reasoning.keep.set.a = 1": "replay_patch",
    "reasoning.scale.low = 1": "effort_budgets",
    "reasoning.foreign = 'text'": "if_foreign",
    "params.top_p.outside = 'drop'": "otherwise",
    "errors = [{ is = 'rate', kind = 'rate' }]": "kind",
    "when.tools.tools.ids = '[a-z]'": "call_id_pattern",
    "unset = ['reasoning.keep']": "replay_patch",
}


def test_the_name_that_a_flag_had_is_refused_and_the_new_one_named(files: Files) -> None:
    for text, name in RENAMED.items():
        error = files.refused(f"[providers.home]\n{text}\n")
        assert str(error).endswith(f". Did you mean '{name}'?"), text
        assert error.line == 2


WRONG = [
    (
        "[providers.zai]\nleaks = [{ open = ['<a>'], close = ['</a>'], format = ['arg-pairs'] }]\n",
        2,
        "arg-pairs need parts = [key, value]",
        "",
    ),
    ("[providers.zai]\ntool_choise.allowed = ['auto']\n", 2, "has no flag 'tool_choise'", "tool_choice"),
    ("provider = {}\n", 1, "the file has no flag 'provider'", "providers"),
    ("[models.'zai/x']\n\nreasoning = { mod = 'never' }\n", 3, "has no flag 'mod'", "mode"),
    ("[providers.zai.resoning.on]\nset.a = 1\n", 1, "has no flag 'resoning'", "reasoning"),
    ("[providers.zai.on.openai-chat]\nlimit.output = 1\n", 2, "has no flag 'limit'", "limits"),
    ("[providers.zai.families.glm]\nlimit.output = 1\n", 2, "has no flag 'limit'", "limits"),
    ("[providers.zai.when.stream]\nlimit.output = 1\n", 2, "has no flag 'limit'", "limits"),
    ("[providers.zai.when.stream]\nunset = ['limits']\n", 2, "has no flag 'unset'", ""),
    ("[providers.zai]\nerrors = [{ kind = 'rate', stat = [1] }]\n", 2, "has no flag 'stat'", "status"),
    ("[providers.zai]\nparams.temperature = { mim = 1 }\n", 2, "has no flag 'mim'", "min"),
    ("[providers.zai]\nunset = ['reasonin.off']\n", 2, "there is no flag 'reasonin.off'", "reasoning"),
    ("[providers.zai]\nunset = ['when.stream.body', 'reasoning.of']\n", 2, "there is no flag 'reasoning.of'", "off"),
    ("[providers.zai]\nreasoning.replay = 'tool-turn'\n", 2, "it is one of unknown, never, tool-turns", "tool-turns"),
    ("[providers.zai]\ntool_choice.allowed = ['auto', 'nam']\n", 2, "it is one of auto, none, required", "named"),
    ("[providers.zai]\nwhen.streaming.limits.output = 1\n", 2, "knows no condition 'streaming'", "stream"),
    ("[providers.zai.when.'stream+toolz']\nlimits.output = 1\n", 1, "knows no condition 'toolz'", "tools"),
    ("[providers.zai]\nwhen.''.limits.output = 1\n", 2, "knows no condition ''", ""),
    (
        "[providers.zai]\nwhen.'stream+tools'.limits.output = 1\nwhen.'tools+stream'.limits.output = 1\n",
        3,
        "says 'stream+tools' twice",
        "",
    ),
    ("[providers.zai]\nwhen = 'stream'\n", 2, "must be a table, not a text", ""),
    ("[providers.zai]\nwhen.stream = 1\n", 2, "must be a table, not a number", ""),
    ("[providers]\nzai = true\n", 2, "must be a table, not true or false", ""),
    ("providers = []\n", 1, "providers = []", ""),
    ("[models.'zai/x']\nlimits.output = '12'\n", 2, "a whole number is expected, not a text", ""),
    ("[models.'zai/x']\nlimits.output = 1.5\n", 2, "limits.output = 1.5", ""),
    ("[providers.zai.recovery]\n\nsteps = -1\n", 3, "recovery.steps = -1; a number of at least 0 is expected", ""),
    ("[providers.zai]\nrates.requests = 0\n", 2, "rates.requests = 0; a number of at least 1 is expected", ""),
    ("[defaults]\nrecovery.cycle = 0\n", 2, "a number of at least 1 is expected", ""),
    ("[models.'zai/x']\nlimits.output = true\n", 2, "a whole number is expected, not true or false", ""),
    ("[models.'zai/x']\nstatus.since = 'soon'\n", 2, "status.since = 'soon'", ""),
    ("[models.'zai/x']\nextends = ['zai/glm-4.7']\n", 2, "a text is expected, not a list", ""),
    ("[models.'zai/x']\ntitle = 2026-01-01T00:00:00Z\nkeys = 'A'\n", 3, "keys = 'A'", ""),
    ("[aliases]\nx = 1\n", 2, "a text is expected, not a number", ""),
    ("prefer = 'zai'\n", 1, "prefer = 'zai'", ""),
    ("[families.x]\nmatch = 'x-*'\n", 2, "match = 'x-*'", ""),
    ("[providers.zai]\nerrors = [{ status = [1] }]\n", 2, "lacks 'kind'", ""),
    ("[providers.zai.sources.a]\nurl = 'u'\nhow = 'docs'\nbacks = []\n", 1, "lacks 'seen'", ""),
    (
        "[providers.zai.sources]\na = { url = 'u', seen = 2026-01-01, how = 'guess', backs = [] }\n",
        2,
        "one of docs",
        "",
    ),
]


@pytest.mark.parametrize(("text", "line", "said", "meant"), WRONG, ids=lambda value: None)
def test_what_no_flag_can_say_is_refused_with_its_line_and_the_nearest_word(
    files: Files, text: str, line: int, said: str, meant: str
) -> None:
    error = files.refused(text)
    assert error.line == line
    assert said in str(error)
    if meant:
        assert f"Did you mean '{meant}'?" in str(error)
    assert error.hint is not None
    assert error.hint == "`cnllm registry check` lists every fault" or error.hint.startswith("write: ")
    if meant and error.hint.startswith("write: "):
        assert meant in error.hint


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_faulty_one_of_several_files_is_named(files: Files, place: int) -> None:
    texts = [limit(1), limit(2), limit(3)]
    texts[place] += "\nfoo = 1\n"
    written = [files.write(text) for text in texts]
    with pytest.raises(RegistryError, match="has no flag 'foo'") as caught:
        Registry.load(*written)
    assert (caught.value.file, caught.value.line) == (str(written[place]), 9)


def test_loading_tells_the_first_fault_and_how_many_more(files: Files) -> None:
    error = files.refused("[providers.zai]\nfoo = 1\nlimits.output = 'x'\nbar = 1\n")
    assert error.line == 2
    assert "has no flag 'foo'" in str(error)
    assert str(error).endswith("(and 2 more)")


@each(
    "tags, fits",
    [
        ("['<a>', '</a>']", True),
        ("['<a>', '</a>', '[b]', '[/b]']", True),
        ("['<a>']", False),
        ("['<a>', '</a>', '<b>']", False),
        ("['<a>', '']", False),
        ("['', '</a>']", True),
        ("['<a>', '</a>', '', '']", False),
    ],
)
@each("place", ["", "when.stream."])
def test_tags_are_pairs(files: Files, place: str, tags: str, fits: bool) -> None:
    text = f"{HOME}[models.'home/x']\n{place}reasoning.tags = {tags}\n"
    if fits:
        files.load(text)
        return
    error = files.refused(text)
    assert error.line == text[: text.index("reasoning.tags")].count("\n") + 1
    assert f"{place}reasoning.tags must be pairs of an opening and a closing tag" in str(error)


# ── check ────────────────────────────────────────────────────────────────────
@pytest.mark.usefixtures("small_builtin")
def test_check_lists_every_fault_of_every_file_in_order(files: Files) -> None:
    one = str(files.write("[providers.zai]\nfoo = 1\nlimits.output = 'x'\nbar = 1\n"))
    two = str(files.write("[aliases]\nx = 1\n"))
    three = str(files.write("nothing"))
    found = check([three, one, str(files.folder / "nobody"), two])
    assert [(p.file, p.line) for p in found if "cannot" in p.message or "TOML" in p.message] == [
        (three, 1),
        (str(files.folder / "nobody"), None),
    ]
    rest = [p for p in found if p.file in (one, two)]
    assert [(p.file, p.line) for p in rest] == [(one, 2), (one, 3), (one, 4), (two, 2)]
    assert all(str(p).startswith(f"{p.file}:{p.line}: ") for p in rest)


NAMES = [
    ("[models.'nobody/x']\n", 1, "no provider is called 'nobody'", ""),
    ("[models.'zay/x']\n", 1, "no provider is called 'zay'", "zai"),
    ("[aliases]\nx = 'zai/glm-4.77'\n", 2, "alias 'x' names no model", "zai/glm-4.7"),
    ("prefer = ['zai', 'zhipu']\n", 1, "prefer: no provider is called 'zhipu'", "zhipuai"),
    ("[providers.zai]\nprotocol = 'openai-chatt'\n", 2, "no protocol is called 'openai-chatt'", "openai-chat"),
    ("[providers.zai.on.openai-chatt]\nlimits.output = 1\n", 1, "no protocol is called 'openai-chatt'", "openai-chat"),
    ("[providers.zai.families.glmm]\nlimits.output = 1\n", 1, "no family is called 'glmm'", "glm"),
    ("[models.'zai/x']\nstatus = { is = 'retired', use = 'zai/glm-4.77' }\n", 2, "no model is called", "zai/glm-4.7"),
    ("[models.'zai/x']\nstatus.is = 'retired'\n", 2, "is retired and names no successor", ""),
    ("[models.'home/x']\nreasoning.mode = 'toggle'\n" + HOME, 1, "nothing says how to switch it", ""),
    ("[models.'zai/x']\nextends = 'zai/y'\n", 2, "extends zai/y, which is not there", ""),
    ("[models.'zai/x']\nextends = 'zai/x'\n", 2, "extends itself: zai/x → zai/x", ""),
    ("[providers.x]\nextends = 'y'\n[providers.y]\nextends = 'x'\n", 4, "extends itself: x → y → x", ""),
    ("[providers.x]\nextends = 'y'\n", 2, "extends y, which is not there", ""),
    ("[providers.x]\nbase_url = 'http://h'\n[models.'x/y']\n", 1, "providers.x names no protocol", ""),
    (
        "[providers.zai.sources]\na = { url = 'u', seen = 2026-01-01, how = 'docs', backs = ['limits'] }\n",
        2,
        "backs 'limits', which is not there",
        "",
    ),
]


@each("first", range(4))
def test_check_finds_names_that_name_nothing(files: Files, first: int) -> None:
    """Four files are checked in one go, which takes most of a second."""
    cases = NAMES[first::4]
    written = [str(files.write(text)) for text, *_ in cases]
    problems = check(written)
    assert not any(re.search(r"\.toml:\d", problem.message) for problem in problems)
    for path, (_, line, said, meant) in zip(written, cases, strict=True):
        found = [problem for problem in problems if said in problem.message and problem.file == path]
        assert (path, line) in [(problem.file, problem.line) for problem in found], (said, problems)
        if meant:
            assert all(f"Did you mean '{meant}'?" in problem.message for problem in found), found


@pytest.mark.usefixtures("small_builtin")
def test_check_says_each_fault_once(files: Files) -> None:
    found = check([str(files.write("[providers.x]\nextends = 'x'\n[models.'x/1']\n[models.'x/2']\n"))])
    assert len(found) == len({str(problem) for problem in found}) == 1


@pytest.mark.usefixtures("small_builtin")
def test_check_without_paths_takes_the_files_in_force(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files.write("foo = 1\n")
    monkeypatch.setenv("CNLLM_PROVIDERS", str(path))
    assert [(problem.file, problem.line) for problem in check()] == [(str(path), 1)]
    assert check([]) == []


def test_a_good_overlay_has_no_faults(files: Files) -> None:
    text = (
        f'{HOME}[models."home/x"]\nlimits = {{ context = 10, output = 5 }}\nunset = ["price", "when.stream.body"]\n'
        f'reasoning = {{ mode = "toggle", on.set.think = true }}\nwhen.stream.reasoning.tags = ["<a>", "</a>"]\n'
        '[aliases]\nmine = "home/x"\n'
    )
    assert check([str(files.write("prefer = ['home']\n" + text))]) == []


def test_the_path_of_an_overlay_is_shown_as_it_was_given(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write("foo = 1\n", "sub/mine.toml")
    monkeypatch.chdir(files.folder)
    with pytest.raises(RegistryError) as caught:
        Registry.load(Path("sub/mine.toml"))
    assert str(caught.value).startswith("sub/mine.toml:1: ")
