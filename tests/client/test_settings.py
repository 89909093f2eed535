"""Settings come from variables of the environment. One table declares, reads and documents them all."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples import share
from hypothesis import HealthCheck, given
from hypothesis import settings as effort
from hypothesis import strategies as st

import cnllm
from cnllm import Client, CnllmError, Registry
from cnllm.config import settings as variables
from cnllm.config.settings import SETTINGS
from cnllm.gateway.asgi import Gateway
from cnllm.transports.sockets import IDLE_CONNECTIONS

from .support import overlay

PACKAGE = Path(cnllm.__file__).parent
PAGE = PACKAGE.parent / "docs" / "reference" / "settings.md"
VARIABLES = {f"CNLLM_{name.upper()}": name for name in SETTINGS}
SECRETS = [name for name in VARIABLES if name.endswith("_KEY")]
READERS = ("read_setting", "read_secret", "parse_setting")
WAITS = ["connect", "first_byte", "idle", "progress"]
NO_SETTINGS = {
    "_CNLLM_COMPLETE": "the shell's completion sets it",
    "CNLLM_LAUNCH_KEY": "`cnllm launch` sets it for the client that it starts",
    "CNLLM_FILE": "it ends a file in a shell script",
}
NO_FOLDER = ("~nobody-has-this-name/x",)
NO_COUNT = ("abc", "0", "-1", "1.5")
WRONG: dict[str, tuple[str, ...]] = {
    **dict.fromkeys([name for name in VARIABLES if name.endswith("TIMEOUT")], ("abc", "0", "-1", "nan", "1,5", "1 s")),
    **dict.fromkeys(
        ["CNLLM_ATTEMPTS", "CNLLM_IDLE_CONNECTIONS", "CNLLM_MAX_REPLY_BYTES", "CNLLM_MAX_EVENT_BYTES"], NO_COUNT
    ),
    **dict.fromkeys([*(name for name in VARIABLES if name.endswith("_DIR")), "CNLLM_RAW_LOG"], NO_FOLDER),
    "CNLLM_TRANSPORT": ("quick", "FAST "),
    "CNLLM_LOG": ("loud", "yes"),
    "CNLLM_LOG_CALLS": ("loud", "2"),
}


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("CNLLM_"):
            monkeypatch.delenv(name)


def test_what_nothing_sets_is_the_default() -> None:
    assert variables.call_settings() == (cnllm.Timeouts(), cnllm.Retry(), cnllm.Limits())
    assert [variables.read_setting(name) for name in SETTINGS] == [None] * len(SETTINGS)


@effort(deadline=None, max_examples=share(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(["", *[f"{name}_" for name in WAITS]]), st.floats(0.001, 10_000), max_size=5),
    st.none() | st.integers(1, 10**6),
    st.booleans(),
)
def test_a_client_waits_and_repeats_as_the_variables_say(
    monkeypatch: pytest.MonkeyPatch, waits: dict[str, float], attempts: int | None, lower: bool
) -> None:
    values = {f"CNLLM_{name}TIMEOUT".upper(): repr(value) for name, value in waits.items()}
    if attempts is not None:
        values["CNLLM_ATTEMPTS"] = f" {attempts}"
    with monkeypatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name.lower() if lower else name, value)
        timeouts, retry, limits = variables.call_settings()
    expected = cnllm.Timeouts() if "" not in waits else cnllm.Timeouts.of(waits[""])
    assert [getattr(timeouts, name) for name in WAITS] == [
        waits.get(f"{name}_", getattr(expected, name)) for name in WAITS
    ]
    assert (retry, limits) == (cnllm.Retry(attempts=attempts or 3), cnllm.Limits())


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_an_error_names_the_variable_its_fault_and_a_value_that_is_right(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(CnllmError, match=re.escape(f"{name}={value}")) as caught:
        variables.check_settings()
    example = re.search(rf"for example {name}=(\S+)$", caught.value.hint or "")
    assert example, caught.value.hint
    monkeypatch.setenv(name, example[1])
    variables.check_settings()
    assert variables.read_setting(VARIABLES[name]) is not None


def test_every_setting_that_can_be_wrong_is_tried_above() -> None:
    free = {"CNLLM_PROVIDERS", "CNLLM_MODEL", *SECRETS}
    assert set(WRONG) | free == set(VARIABLES)


@pytest.mark.parametrize("name", VARIABLES)
def test_a_blank_variable_is_not_set(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", " "):
        monkeypatch.setenv(name, value)
        variables.check_settings()
        if name != "CNLLM_PROVIDERS":  # there it means no file
            assert variables.read_setting(VARIABLES[name]) is None


def test_a_wrong_value_stops_only_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNLLM_LOG", "loud")
    monkeypatch.setenv("CNLLM_IDLE_TIMEOUT", "7")
    with Client(simulate=True) as client:
        assert client.call("glm-4.7", "hi").text
    assert variables.call_settings()[0].idle == 7
    monkeypatch.setenv("CNLLM_TIMEOUT", "soon")
    with pytest.raises(CnllmError, match="CNLLM_TIMEOUT=soon"):
        Client(simulate=True)
    with pytest.raises(CnllmError, match="CNLLM_TIMEOUT=soon"):  # before a request, whose answer would show it
        Gateway(simulate=True, keys=())


def test_keys_are_in_no_error_log_or_repr(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, f"canary-of-{name}-1234567890")
    assert variables.read_secret("serve_key") == "canary-of-CNLLM_SERVE_KEY-1234567890"
    monkeypatch.setenv("CNLLM_ATTEMPTS", "none")
    monkeypatch.setenv("CNLLM_TIMEOUT", "sk-canary0123456789abcdef")
    with pytest.raises(CnllmError) as caught:
        variables.check_settings()
    seen = [caught.value, caught.value.__cause__, caught.value.__context__, caplog.text]
    assert "canary" not in " ".join(map(repr, [*seen, *map(str, seen), caught.value.hint]))


def test_each_client_sees_the_variables_of_its_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for value in ("5", "6", None, "5"):
        monkeypatch.delenv("CNLLM_TIMEOUT", raising=False)
        if value is not None:
            monkeypatch.setenv("CNLLM_TIMEOUT", value)
        seen.append(variables.call_settings()[0].idle)
    assert seen == [5, 6, 300, 5]


def test_threads_that_read_while_variables_change_see_whole_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNLLM_IDLE_TIMEOUT", "1")  # so that it is restored
    end, faults = threading.Event(), []

    def read() -> None:
        while not end.is_set():
            try:
                if variables.call_settings()[0].idle not in (1.0, 2.0, 300.0):
                    faults.append("another value")
            except Exception as error:  # noqa: BLE001 - any is a fault
                faults.append(repr(error))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(200):
        os.environ.pop("CNLLM_IDLE_TIMEOUT", None)
        os.environ.pop("CNLLM_OF_NOBODY", None)
        os.environ["CNLLM_OF_NOBODY"] = str(number)
        os.environ["CNLLM_IDLE_TIMEOUT"] = str(1 + number % 2)
    end.set()
    for thread in threads:
        thread.join()
    monkeypatch.delenv("CNLLM_OF_NOBODY", raising=False)
    assert faults == []
    assert variables.call_settings()[0].idle == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_reads_its_own_variables() -> None:
    code = (
        "import os\nfrom cnllm.config.settings import call_settings\n"
        "before = call_settings()[0].idle\npid = os.fork()\n"
        "if pid == 0:\n    os.environ['CNLLM_TIMEOUT'] = '9'\n    os._exit(int(call_settings()[0].idle))\n"
        "print(before, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), call_settings()[0].idle)"
    )
    for value, parent in ((None, "300.0"), ("4", "4.0")):
        env = {**os.environ, **({} if value is None else {"CNLLM_TIMEOUT": value})}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [parent, "9", parent]


def test_a_name_that_resembles_a_setting_is_pointed_out_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CNLLM_TIMOUT", "a-secret")
    monkeypatch.setenv("CNLLM_LAUNCH_KEY", "a-secret")
    monkeypatch.setenv("CNLLM_OF_MY_OWN", "a-secret")
    for value in ("5", "6"):
        monkeypatch.setenv("CNLLM_IDLE_TIMEOUT", value)
        variables.call_settings()
    assert [record.getMessage() for record in caplog.records] == [
        "CNLLM_TIMOUT is not a setting of cnllm: did you mean CNLLM_TIMEOUT?"
    ]


# ── what is declared is what is read, and what is documented ─────────────────


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.toml")]):
        yield str(path.relative_to(PACKAGE)), path.read_text(encoding="utf-8")


def test_every_variable_of_the_source_is_a_setting() -> None:
    named = {name for _, text in sources() for name in re.findall(r"\b_?CNLLM_[A-Z_]*[A-Z]\b", text)}
    assert named - set(NO_SETTINGS) <= set(VARIABLES)
    assert set(NO_SETTINGS) <= named, "strike out what is gone"


def test_every_setting_is_read_by_its_name_and_nothing_else_is() -> None:
    read: set[str] = {"timeout", "attempts", *cnllm.Limits.__struct_fields__}  # `call_settings` reads these
    read |= {f"{name}_timeout" for name in WAITS} | {"config_dir", "data_dir", "cache_dir"}  # names that are built
    for module, text in sources():
        if not module.endswith(".py") or not any(f"{word}(" in text for word in READERS):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                if called in READERS and isinstance(node.args[0], ast.Constant):
                    read.add(str(node.args[0].value))
    assert read == set(SETTINGS)


def test_only_the_settings_read_variables_of_cnllm() -> None:
    """No module that reads the environment has a name of ours as a text."""
    for module, text in sources():
        if not module.endswith(".py") or module == "config/settings.py" or "os.environ" not in text:
            continue
        tree = ast.parse(text)
        documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in documented]
        assert [text for text in texts if isinstance(text, str) and text.startswith("CNLLM_")] == [], module


def test_the_manual_says_what_counts_if_nothing_is_set() -> None:
    limits = cnllm.Limits()
    defaults = {name: setting.default for name, setting in SETTINGS.items() if setting.default is not None}
    assert defaults == {
        "attempts": cnllm.Retry().attempts,
        "max_reply_bytes": limits.max_reply_bytes,
        "max_event_bytes": limits.max_event_bytes,
        "idle_connections": IDLE_CONNECTIONS,
    }
    for name in WAITS:
        assert SETTINGS[f"{name}_timeout"].purpose.endswith(f"{getattr(cnllm.Timeouts(), name):g} if nothing is set")


def test_the_manual_has_every_setting_with_its_values() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, field in VARIABLES.items():
        assert f"| `{name}` | {SETTINGS[field].values} |" in page
        assert SETTINGS[field].purpose


def test_a_parameter_that_any_model_of_a_file_has_is_an_option_of_a_call(tmp_path: Path) -> None:
    path = overlay(tmp_path, "http://127.0.0.1:9/v1", "params.warmth = { max = 5 }")
    with path.open("a") as file:
        file.write('[providers.other]\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1"\nkeys = []\n')
    warm: dict[str, Any] = {"warmth": 9}
    misspelt: dict[str, Any] = {"warmness": 9}
    with Client(Registry.load(path)) as client:
        assert client.plan("home/m", "hi", params={"seed": 1}, **warm).body.items() >= {"warmth": 5, "seed": 1}.items()
        plan = client.plan("other/m", "hi", **warm)
        assert plan.body["warmth"] == 9
        assert [note.flag for note in plan.notes if note.said.startswith("warmth")] == ["params"]
        with pytest.raises(TypeError, match="warmness"):
            client.plan("other/m", "hi", **misspelt)
