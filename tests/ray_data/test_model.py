"""`cnllm.ray.Model` before any worker starts: its options, and what of it travels."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import cnllm
import cnllm.ray
from cnllm import CnllmError, Cost, KeyMissing, Message, Registry, Reply
from cnllm.batch.output import outcome_of_reply
from cnllm.batch.shared.sender import result_of
from cnllm.ray.model import _add_columns
from cnllm.types.json_form import encode_json

KEY = "sk-ray-0123456789abcdef"


def test_a_model_is_a_class_that_any_pickle_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZAI_API_KEY", KEY)
    made: Any = cnllm.ray.Model("glm-4.7", system="Be brief.", max_tokens=10)
    assert type(made) is not type(Registry), "pickle takes it by its settings"
    assert issubclass(type(made), type), "map_batches runs classes in actors"
    data = pickle.dumps(made)
    assert KEY.encode() not in data
    again = pickle.loads(data)
    assert again.settings.batch.options == {"system": "Be brief.", "max_tokens": 10}
    assert again.settings.run == made.settings.run, "the copies share one cap"
    assert cnllm.ray.Model("glm-4.7").settings.run != made.settings.run


def test_overlays_travel(tmp_path: Path) -> None:
    path = tmp_path / "overlay.toml"
    path.write_text('[models."zai/glm-4.7"]\nlimits = { context = 4711 }\n')
    made = cnllm.ray.Model("glm-4.7", registry=Registry.load(path))
    path.unlink()
    settings = pickle.loads(pickle.dumps(made)).settings
    assert settings.model(settings.registry()).flags.limits.context == 4711


@pytest.mark.parametrize(
    "name", ["id_column", "prefix", "state", "key_env", "base_url", "protocol", "fallback", "prompt", "rpm", "currency"]
)
def test_a_wrong_option_is_named(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name}.* is list"):
        cnllm.ray.Model("glm-4.7", **{name: [[]]})  # type: ignore[arg-type]
    assert cnllm.ray.Model("glm-4.7", **{name: None})  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"api_key": KEY}, {"api_keys": (KEY,)}])
def test_keys_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"cnllm keys set") as caught:
        cnllm.ray.Model("glm-4.7", **options)
    assert KEY not in str(caught.value)


def test_secrets_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "overlay.toml"
    path.write_text(f'[providers.zai]\nheaders = {{ authorization = "Bearer {KEY}" }}\n')
    makes: tuple[Callable[[], Any], ...] = (
        lambda: cnllm.ray.Model("glm-4.7", extra_headers={"authorization": f"Bearer {KEY}"}),
        lambda: cnllm.ray.Model("glm-4.7", base_url=f"https://user:{KEY}@example.org/v1"),
        lambda: cnllm.ray.Model("glm-4.7", key_env=KEY),
        lambda: cnllm.ray.Model("glm-4.7", registry=Registry.load(path)),
    )
    for make in makes:
        with pytest.raises((CnllmError, ValueError)) as caught:
            make()
        assert KEY not in str(caught.value)


@pytest.mark.parametrize("options", [{"out": "x"}, {"transport": object()}, {"reasonning": "off"}, {"plot": True}])
def test_wrong_options_are_named_before_anything_is_sent(options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        cnllm.ray.Model("glm-4.7", **options)


def test_errors_pass_between_processes() -> None:
    error = KeyMissing("no key", env=["A", "B"], hint="export A=…")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is KeyMissing
    assert (str(again), again.env, again.hint) == ("no key", ["A", "B"], "export A=…")
    refused = cnllm.RateLimited("too many", status=429, code="1302", retry_after=2.5, retryable=True)
    assert vars(pickle.loads(pickle.dumps(refused))) == vars(refused)


def test_a_cost_that_is_a_lower_bound_says_so() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"prompt": ["exact", "bounded", "unbounded", "unknown"]})
    costs = [
        Cost(Decimal("0.5"), "CNY"),
        Cost(Decimal("0.5"), "CNY", missing=("cached",), at_most=Decimal("0.75")),
        Cost(Decimal("0.5"), "CNY", missing=("web_search",)),
        None,
    ]
    results = [result_of(outcome_of_reply(_reply(cost))) for cost in costs]
    found = _add_columns(table, json.loads(encode_json(results)), "")["cost"].to_pylist()
    assert [cost and (cost["amount"], cost["complete"], cost["at_most"]) for cost in found] == [
        (Decimal("0.5"), True, Decimal("0.5")),
        (Decimal("0.5"), False, Decimal("0.75")),
        (Decimal("0.5"), False, None),
        None,
    ]


def _reply(cost: Cost | None) -> Reply[Any]:
    return Reply(
        text="yes",
        reasoning="",
        tool_calls=[],
        finish="stop",
        raw_finish="stop",
        usage=cnllm.Usage(1, 1),
        cost=cost,
        model="m",
        id="r",
        notes=[],
        message=Message.assistant("yes"),
        incomplete=[],
        raw=None,
    )
