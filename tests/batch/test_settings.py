"""A wrong argument of a batch is refused by name, before anything is sent or written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import cnllm
from cnllm import Plan, Registry
from cnllm.errors import KeyMissing
from cnllm.registry.flags import Price

WRONG: dict[str, list[Any]] = {
    "prompt": [3],
    "currency": [3],
    "format": [3],
    "encoding": [3],
    "assume_price": [3, (1, 2), Price(currency="USD", input=-1.0, output=1.0), Price(output=float("nan"))],
    "registry": [3],
    "strict": ["yes"],
    "order": ["yes"],
    "plot": ["yes"],
    "vendor_batch": ["yes"],
    "log_calls": ["yes"],
    "on_progress": [3],
    "rpm": ["5", True, 0, float("nan")],
    "tpm": ["5", True, -1],
    "cache": [3],
    "api_keys": ["sk-0123456789", 3, [3]],
    "concurrency": [0, 1.5, "all"],
    "max_cost": [-1, "much"],
    "attempts": [0, "3"],
    "unsure": ["perhaps"],
    "changed": ["perhaps"],
    "group_by": ["id"],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_named(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out.jsonl"
    for value in WRONG[name]:
        with pytest.raises((TypeError, ValueError), match=rf"^{name.removesuffix('s')}"):
            cnllm.batch.run(["Hi"], "glm-4.7", out=out, simulate=True, **{name: value})
        assert not out.exists(), value


def test_in_an_event_loop_the_other_function_is_named(tmp_path: Path) -> None:
    async def program() -> None:
        cnllm.batch.run(["Hi"], "glm-4.7", out=tmp_path / "out.jsonl", simulate=True)

    with pytest.raises(cnllm.CnllmError, match="an event loop runs") as caught:
        asyncio.run(program())
    assert "run_async" in str(caught.value.hint)


def test_a_comparison_refuses_a_price_with_which_no_cap_holds() -> None:
    price = Price(currency="USD", input=-1.0, output=1.0)
    with pytest.raises(ValueError, match=r"^assume_price\.input=-1\.0"):
        cnllm.compare("glm-4.7", tasks=1, simulate=True, assume_price=price)


def test_a_key_in_place_of_a_list_of_keys_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(TypeError) as caught:
        cnllm.batch.run(["Hi"], "glm-4.7", out=tmp_path / "out.jsonl", api_keys="sk-0123456789")
    assert "0123456789" not in str(caught.value)


def test_a_transport_of_the_caller_needs_a_key_unless_it_says_that_it_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Plain:
        sent = 0

        async def send(self, plan: Plan) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
            self.sent += 1
            return 500, {}, body()

    class Keyless(Plain):
        needs_key = False

    async def body() -> AsyncIterator[bytes]:
        yield b"no"

    monkeypatch.delenv("HOME_TEST_KEY", raising=False)
    path = tmp_path / "o.toml"
    path.write_text(
        '[providers.home]\nprotocol = "openai-chat"\nbase_url = "https://home.example.com/v1"\n'
        'keys = ["HOME_TEST_KEY"]\nidempotency = "X-Idempotency-Key"\n[models."home/m"]\n'
    )
    plain, keyless = Plain(), Keyless()
    options: dict[str, Any] = {"registry": Registry.load(path), "attempts": 1}
    with pytest.raises(KeyMissing, match="HOME_TEST_KEY"):
        cnllm.batch.run(["Hi"], "home/m", out=tmp_path / "a.jsonl", transport=plain, **options)
    report = cnllm.batch.run(["Hi"], "home/m", out=tmp_path / "b.jsonl", transport=keyless, **options)
    assert (plain.sent, keyless.sent, report.failed) == (0, 1, 1)


def test_a_run_of_a_program_is_logged_where_the_setting_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CNLLM_DATA_DIR", str(tmp_path / "data"))
    for setting, logged in (("off", False), ("on", True)):
        monkeypatch.setenv("CNLLM_LOG_CALLS", setting)
        cnllm.batch.run(["Hi"], "glm-4.7", out=tmp_path / f"{setting}.jsonl", simulate=True)
        assert (tmp_path / "data").exists() is logged
