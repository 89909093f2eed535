"""The program as such: help, what it imports, completion, failures of its own."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cnllm import Registry, UnknownModel
from cnllm.cli import app

from .support import Machine

HEAVY = ("prompt_toolkit", "httpx", "pydantic", "pydantic_settings", "jsonschema", "rich", "platformdirs", "asyncio")
OURS = ("cnllm.client", "cnllm.engine")


def commands() -> list[tuple[tuple[str, ...], click.Command]]:
    found: list[tuple[tuple[str, ...], click.Command]] = []

    def walk(path: tuple[str, ...], command: click.Command) -> None:
        found.append((path, command))
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                walk((*path, name), inner)

    walk((), app.root)
    return found


def test_help_lists_every_command(machine: Machine) -> None:
    done = machine.run("--help")
    assert (done.status, done.err) == (0, "")
    assert all(name in done.out for name in ("call", "models", "registry", "keys", "simulate", "completion"))
    assert "cnllm call --model glm-4.7 --simulate" in done.out
    assert machine.run("-h") == done


def test_the_listing_says_what_each_command_says_of_itself() -> None:
    for path, command in commands():
        if len(path) == 1:
            assert app.COMMANDS[path[0]][1] == (command.help or "").splitlines()[0]


@pytest.mark.parametrize("path", [path for path, _ in commands()], ids=" ".join)
def test_every_command_has_help_with_an_example(machine: Machine, path: tuple[str, ...]) -> None:
    done = machine.run(*path, "--help")
    assert (done.status, done.err) == (0, "")
    if path not in {("models",), ("registry",), ("keys",), ("logs",)}:
        assert "Example" in done.out
    for line in done.out.splitlines():
        if line.startswith("    cnllm "):
            assert line.split()[1].startswith('"') or line.split()[1] in (*app.COMMANDS, "COMMAND")


@pytest.mark.parametrize("name", ["call", "chat", "batch", "serve"])
def test_help_explains_the_usual_options_and_names_all(machine: Machine, name: str) -> None:
    (command,) = (command for path, command in commands() if path == (name,))
    short, everything = machine.run(name, "--help"), machine.run(name, "--help-all")
    assert (short.status, short.err, everything.status, everything.err) == (0, "", 0, "")
    explained = re.findall(r"^  (-.*)$", short.out.partition("Usual options:\n")[2].partition("\n\n")[0], re.MULTILINE)
    assert 12 <= len(explained) <= 13, explained  # ten, and those for help
    assert len(short.out.splitlines()) < 65
    rows = re.findall(r"^  (-.*)$", everything.out, re.MULTILINE)
    for option in (param for param in command.params if isinstance(param, click.Option)):
        spelling = option.opts[-1] if option.opts[-1] not in ("--image", "--raw-log") else option.opts[-2]
        assert len([row for row in rows if re.search(rf"^(?:-\w, )?{spelling}(?: |$)", row)]) == 1, spelling
        assert re.search(rf"(?<![\w-]){spelling}(?![\w-])", short.out) or spelling == "--debug", spelling
        assert option.name is not None
        is_parameter = option.name.startswith("param_")
        section = everything.out.partition(f"  {spelling} ")[0].rpartition(":\n")[0].rpartition("\n")[2]
        assert not is_parameter or section == "Parameters of the model"
        assert is_parameter or section != "Parameters of the model" or option.opts[0] == "-p"
    for old in ("--image", "--raw-log"):
        assert old not in short.out + everything.out


def test_tools_that_are_offered_and_tools_that_run_name_each_other(machine: Machine) -> None:
    help_all = " ".join(machine.run("call", "--help-all").out.split())
    runs, _, offers = help_all.partition("-T, --tool NAME")[2].partition("--tools FILE")
    assert "--tools" in runs
    assert "--tool " in offers.partition("--tool-choice C")[0]


def test_help_fits_a_terminal_of_80_columns_and_its_examples_are_whole_commands(machine: Machine) -> None:
    for path, command in commands():
        shown = machine.run(*path, "--help").out
        assert not [line for line in shown.splitlines() if len(line) > 80], path
        lines = (command.epilog or "").replace("\b\n", "").partition("xamples:\n")[2]
        for line in lines.replace(" \\\n", " ").splitlines():
            shlex.split(line)  # raises where a quote is open


def test_no_example_in_the_help_names_a_retired_model() -> None:
    registry = Registry.load()
    named = 0
    for path, command in commands():
        for name in re.findall(r"(?:-m|--model) ([\w./-]+)", command.epilog or ""):
            try:
                status = registry.resolve(name).flags.status
            except UnknownModel:  # a name of the user's own
                continue
            assert status is None or status.is_ != "retired", (path, name)
            named += 1
    assert named > 5


@pytest.mark.parametrize(
    "args",
    [["--help"], ["call", "--help"], ["chat", "--help"], ["models", "--help"], ["--version"], ["completion", "zsh"]],
)
def test_J1_help_imports_nothing_heavy(machine: Machine, args: list[str]) -> None:
    code = (
        f"import sys; from cnllm.cli import main; status = main({args!r}); "
        f"found = [m for m in sys.modules if m.split('.')[0] in {HEAVY} or m in {OURS}]; "
        "print(found, file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=machine.env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_importing_cnllm_imports_next_to_nothing() -> None:
    code = "import sys; sys.path += {!r}; before = set(sys.modules); import cnllm; print(*set(sys.modules) - before)"
    command = [sys.executable, "-S", "-c", code.format(sys.path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert set(out.split()) == {"__future__", "cnllm", "cnllm._version"}


def test_the_root_imports_no_command(machine: Machine) -> None:
    code = "import sys; from cnllm.cli import main; main(['--help']); print(list(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], env=machine.env, capture_output=True, text=True, check=True)
    loaded = out.stdout.splitlines()[-1]
    assert "cnllm.cli.commands.call" not in loaded
    assert "msgspec" not in loaded


COMPLETES = {"_CNLLM_COMPLETE": "bash_complete", "COMP_WORDS": "cnllm call --model glm", "COMP_CWORD": "3"}
LISTS = {
    "msgspec",
    "pathlib",
    "logging",
    "tempfile",
    "hashlib",
    "platformdirs",
    "cnllm.registry.flags",
    "cnllm.config.redact",
}
LISTS |= {
    "cnllm.registry.documents",
    "cnllm.registry.read",
    "cnllm.registry.registry",
    "cnllm.model_facts.capabilities",
    "cnllm.cli.output.answer",
}
CALLS = {"httpx", "anyio", "asyncio", "ssl", "pydantic", "pydantic_settings", "jsonschema", "rich", "platformdirs"}
CALLS |= {"tomllib", "logging", "tempfile", "html", "queue", "email", "cnllm.store", "sqlite3", "cnllm.cassette"}
SIMULATES = ["call", "--model", "glm-4.7", "--simulate", "--no-log", "Hi"]


@pytest.mark.parametrize(
    ("args", "env", "without"),
    [
        (["models", "list"], {}, LISTS),
        (["models", "list", "glm", "--json"], {}, LISTS),
        (["models", "list", "--can", "tools", "--max-price", "3"], {}, LISTS),
        ([], COMPLETES, LISTS),
        ([], COMPLETES | {"COMP_WORDS": "cnllm models list --provider z", "COMP_CWORD": "4"}, LISTS),
        (["call", "--help"], {}, LISTS),
        (SIMULATES, {}, CALLS),
    ],
)
def test_what_a_command_has_no_use_for_is_not_imported(
    machine: Machine, args: list[str], env: dict[str, str], without: set[str]
) -> None:
    code = (
        f"import sys, atexit; sys.argv[1:] = {args!r}; before = set(sys.modules); "
        "atexit.register(lambda: print(sorted(set(sys.modules) - before), file=sys.stderr)); "
        "from cnllm.cli import program; sys.exit(program())"
    )
    for _ in range(2):  # what the first one works out is kept for the second
        done = subprocess.run(
            [sys.executable, "-S", "-c", f"import sys; sys.path += {sys.path!r}; {code}"],
            env={**machine.env, **env},
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout
    loaded = set(ast.literal_eval(done.stderr.splitlines()[-1]))
    assert "cnllm.cli.app" in loaded
    assert loaded & without == set()


@pytest.mark.parametrize(("how", "own"), [("program()", True), ("main(['--version'])", False)])
def test_only_the_program_tunes_the_collector_of_its_process(machine: Machine, how: str, own: bool) -> None:
    code = (
        "import gc, sys; old, frozen = gc.get_threshold(), gc.get_freeze_count(); sys.argv = ['cnllm', '--version']\n"
        f"from cnllm.cli import main, program; {how}\n"
        "print(gc.get_threshold() != old, gc.get_freeze_count() > frozen, gc.isenabled(), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=machine.env, capture_output=True, text=True, check=True)
    assert done.stderr == f"{own} {own} True\n"


def test_the_version_is_printed_with_the_name(machine: Machine) -> None:
    done = machine.run("--version")
    assert done.out.startswith("cnllm ")


def test_no_arguments_show_the_help(machine: Machine) -> None:
    done = machine.run()
    assert "Commands:" in done.out + done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["cal"], ["there is no command cal", "did you mean call?"]),
        (["call", "--modle", "x"], ["--modle", "--model"]),
        (["call", "text"], ["no key", "cnllm keys set", "--simulate"]),
        (["call", "text", "--base-url", "http://127.0.0.1:1/v1"], ["--model", "openai-compatible/ID"]),
        (["call", "--model", "m", "two", "texts"], ["texts", "--help"]),
        (["call", "--model", "m", "--timeout", "0", "x"], ["--timeout"]),
        (["call", "--model", "m", "--timeout", "soon", "x"], ["--timeout"]),
        (["models", "lsit"], ["lsit"]),
        (["completion", "tcsh"], ["tcsh", "zsh"]),
        (["simulate", "--port", "x"], ["--port"]),
    ],
)
def test_wrong_usage_is_two_lines_and_2(machine: Machine, args: list[str], words: list[str]) -> None:
    machine.run(*args).fails(2, *words)


def test_a_traceback_only_with_debug(machine: Machine) -> None:
    assert "Traceback" not in machine.run("call", "--model", "no-such-model", "x").err
    assert "Traceback" in machine.run("call", "--model", "no-such-model", "--debug", "x").err
    done = machine.run("--debug", "call", "--model", "no-such-model", "x")
    assert "Traceback" in done.err
    assert done.status == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_prints_a_script_and_its_help_says_where_to(machine: Machine, shell: str) -> None:
    done = machine.run("completion", shell)
    assert done.status == 0
    assert "_CNLLM_COMPLETE" in done.out
    assert f"cnllm completion {shell}" in machine.run("completion", "--help").out


def completed(machine: Machine, *words: str) -> list[str]:
    env = {
        "_CNLLM_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("cnllm", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = machine.run(env=env)
    assert (done.status, done.err) == (0, "")
    return [line.partition(",")[2] for line in done.out.splitlines() if line]


def test_completion_knows_commands_models_levels_and_keys(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1")
    assert completed(machine, "mod") == ["models"]
    assert completed(machine, "call", "--model", "home") == ["home/m"]
    assert completed(machine, "models", "show", "home") == ["home/m"]
    assert completed(machine, "call", "--reasoning", "m") == ["minimal", "medium", "max"]
    assert completed(machine, "keys", "set", "hom") == ["home"]


def test_completion_keeps_quiet_about_a_broken_registry(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1", flags="[")
    assert completed(machine, "call", "--model", "home") == []


def test_every_file_is_small_and_says_what_it_is() -> None:
    for file in Path(app.__file__).parent.rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        assert ast.get_docstring(ast.parse(source)), file
        assert len(source.splitlines()) <= 450, file
