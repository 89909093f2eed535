"""The options of a batch stand in three places: its signature, the struct that a run reads, and the command line."""

from __future__ import annotations

import asyncio
import inspect
import typing
from pathlib import Path

import pytest

import cnllm.batch
from cnllm.batch.settings import BatchOptions, BatchSettings
from cnllm.cli.commands.batch import batch as command
from cnllm.types.call_options import RunOptions

from .stub import stub
from .support import run

OWN = set(BatchOptions.__annotations__) - set(RunOptions.__annotations__)
PYTHON_ONLY = {"registry", "api_keys", "transport", "on_progress"}  # objects; keys stand in variables: --key-env
PYTHON_ONLY |= {"log_calls"}  # the command logs as `cnllm logs` says, and not with --no-log
COMMAND_ONLY = {"source", "models", "ray", "dry_run", "as_json", "no_plot", "key_env", "base_url", "protocol"}
COMMAND_ONLY |= {"parameters", "tool", "mcp", "mcp_env", "out", "debug", "no_log", "help_all"}


def test_the_struct_has_every_option_of_the_signature() -> None:
    fields = set(BatchSettings.__struct_fields__)
    assert fields - {"requests", "models", "out", "options", "max_steps", "tag"} == OWN


def test_the_command_has_every_option_that_a_command_can_have() -> None:
    names = {parameter.name for parameter in command.params}
    assert (OWN - PYTHON_ONLY - {"plot"}) - names == set(), "options of Python without one of the command"
    calls = {name for name in names if name.removeprefix("param_") in RunOptions.__annotations__}
    assert names - OWN - calls == COMMAND_ONLY, "options of the command without one of Python"


def test_both_functions_have_the_same_signature() -> None:
    sync, other = (inspect.signature(function) for function in (cnllm.batch.run, cnllm.batch.run_async))
    assert list(sync.parameters) == list(other.parameters) == ["requests", "model", "out", "options"]


@pytest.mark.parametrize("name", ["prompts", "max_costs", "concurency"])
def test_an_option_that_nobody_knows_is_named(tmp_path: Path, name: str) -> None:
    options: dict[str, typing.Any] = {name: 1}
    with pytest.raises(TypeError, match=name):
        cnllm.batch.run(["Hi"], "glm-4.7", out=tmp_path / "out.jsonl", simulate=True, **options)


@pytest.mark.parametrize("name", ["max_cost", "rpm", "tpm"])
def test_a_bound_that_would_hold_nothing_is_refused(tmp_path: Path, name: str) -> None:
    options: dict[str, typing.Any] = {name: float("nan")}
    with pytest.raises(ValueError, match=f"{name}=nan"):
        cnllm.batch.run(["Hi"], "glm-4.7", out=tmp_path / "out.jsonl", simulate=True, **options)
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("changed", "Redo", "one of stop, keep, redo"),
        ("unsure", "no", "one of ask, skip"),
        ("group_by", "suffix", "one of prefix"),
        ("attempts", 0, "a whole number from 1"),
        ("concurrency", "fast", "'auto' or a number from 1"),
    ],
)
def test_a_setting_with_another_word_is_refused(tmp_path: Path, name: str, value: typing.Any, expected: str) -> None:
    with pytest.raises(ValueError, match=f"{name}={value!r}; {expected}"):
        cnllm.batch.run(["Hi"], "glm-4.7", out=tmp_path / "out.jsonl", simulate=True, **{name: value})
    assert not (tmp_path / "out.jsonl").exists()


def test_the_output_is_a_path() -> None:
    with pytest.raises(TypeError, match="out is int; a path"):
        cnllm.batch.run(["Hi"], "glm-4.7", out=3, simulate=True)  # type: ignore[arg-type]


def test_a_setting_that_is_none_was_not_given(tmp_path: Path) -> None:
    options: dict[str, typing.Any] = dict.fromkeys(OWN - {"registry"}) | {"simulate": True}
    assert cnllm.batch.run(["Hi"], "glm-4.7", out=tmp_path / "out.jsonl", **options).done == 1


def test_an_interface_of_jobs_without_a_step_is_named_and_one_of_calls_needs_none(tmp_path: Path) -> None:
    def flags(batch: str) -> str:
        return f'batch = {{ available = true, {batch} }}\nunset = ["batch.submit"]'

    with stub() as server:
        report = run(server, tmp_path, ["Hi"], flags=flags('input = "calls", path = "/batch"'), vendor_batch=True)
        assert (report.done, report.by_vendor) == (1, 0)
        with pytest.raises(cnllm.CnllmError, match="batch of home/m lacks submit"):
            run(server, tmp_path, ["Hi"], flags=flags('input = "file"'), vendor_batch=True)
        assert len(server.log) == 1


def test_in_a_running_event_loop_the_other_function_is_named(tmp_path: Path) -> None:
    async def call() -> None:
        cnllm.batch.run(["Hi"], "glm-4.7", out=tmp_path / "out.jsonl", simulate=True)

    with pytest.raises(cnllm.CnllmError, match="an event loop runs in this thread") as caught:
        asyncio.run(call())
    assert caught.value.hint == "use: await cnllm.batch.run_async(…)"
    assert not list(tmp_path.iterdir())
