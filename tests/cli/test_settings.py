"""Variables of the environment on the command line: a wrong value is named before anything starts."""

from __future__ import annotations

import pytest

from .support import Machine

WRONG = [
    ("CNLLM_TIMEOUT", "abc"),
    ("CNLLM_ATTEMPTS", "0"),
    ("CNLLM_TRANSPORT", "quick"),
    ("CNLLM_LOG", "loud"),
    ("CNLLM_RAW_LOG", "~nobody-has-this-name/x"),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_serve_and_batch_do_not_start_with_a_wrong_value(machine: Machine, name: str, value: str) -> None:
    rows, out = machine.home / "rows.txt", machine.home / "out.jsonl"
    rows.write_text("hi\n")
    batch = ["batch", str(rows), "-m", "glm-4.7", "-o", str(out), "--simulate"]
    for args in (["serve", "--simulate", "--no-key"], [*batch, "--dry-run"], batch):
        machine.run(*args, env={name: value}).fails(2, f"{name}={value}", f"for example {name}=")
    assert not out.exists()
    assert not (machine.data).exists()


def test_a_key_is_not_shown_with_a_wrong_value(machine: Machine) -> None:
    env = {"CNLLM_TIMEOUT": "soon", "CNLLM_SERVE_KEY": "canary-1", "CNLLM_ADMIN_KEY": "canary-2"}
    done = machine.run("--debug", "serve", "--simulate", env=env)
    assert (done.status, "CNLLM_TIMEOUT=soon" in done.err, "canary" in done.out + done.err) == (2, True, False)


@pytest.mark.parametrize("args", [["--help"], ["keys", "list"], ["models", "list", "glm"], ["logs", "off"]])
def test_a_command_that_waits_for_nothing_ignores_a_wrong_wait(machine: Machine, args: list[str]) -> None:
    assert machine.run(*args, env={"CNLLM_TIMEOUT": "soon"}).status == 0


def test_a_name_that_resembles_a_setting_is_pointed_out_in_one_line(machine: Machine) -> None:
    args = ["call", "--model", "glm-4.7", "--simulate", "hi"]
    done = machine.run(*args, env={"CNLLM_ATEMPTS": "3", "CNLLM_OF_MY_OWN": "1"}, process=True)
    assert done.status == 0
    assert [line for line in done.err.splitlines() if "CNLLM" in line] == [
        "CNLLM_ATEMPTS is not a setting of cnllm: did you mean CNLLM_ATTEMPTS?"
    ]


def test_a_file_sets_what_a_variable_sets(machine: Machine) -> None:
    machine.config.mkdir(parents=True)
    (machine.config / "default-model").write_text(" glm-4.7\n")
    machine.data.mkdir(parents=True)
    (machine.data / "logging").write_text("off\n")
    done = machine.run("call", "--simulate", "hi")
    assert done.status == 0
    assert "glm-4.7" in done.err
    assert not (machine.data / "conversations.db").exists()
    (machine.data / "logging").write_text("loud\n")
    assert "'loud': it must be one of on, no-exchanges, off" in machine.run("call", "--simulate", "hi").err
