"""A wrong argument of a batch is refused by name, before anything is sent or written."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import cnllm
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
