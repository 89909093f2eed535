"""Whatever a caller passes: success, a `CnllmError`, or a `TypeError` or `ValueError` that names the argument.

`fuzz/odd` holds the whole table, of more than a hundred thousand inputs; here is a share of it, always the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from inspect import isfunction, signature
from typing import Any, cast

import pytest

import cnllm
from cnllm import engine, tools
from fuzz.odd.judge import Input, fault
from fuzz.odd.surface import public
from fuzz.odd.table import alone, inputs, share
from fuzz.odd.values import VALUES

OF = 100


@cache
def table() -> tuple[Input, ...]:
    return tuple(inputs())


@cache
def few() -> tuple[Input, ...]:
    return tuple(share(OF, table()))


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before, here = dict(os.environ), os.getcwd()
    alone()
    yield
    os.environ.clear()
    os.environ.update(before)
    os.chdir(here)


def test_a_share_of_the_table() -> None:
    faults = [(one.name, wrong) for one in few() if (wrong := fault(one)) is not None]
    assert not faults, "\n".join(f"{name}: {wrong}" for name, wrong in faults[:40])


def test_the_table_holds_every_public_name() -> None:
    called = {one.name.partition("(")[0].partition(".")[0] for one in table()}
    names = {name.partition(".")[0] for name, _ in public()}
    functions = {name.partition(".")[0] for name, one in public() if isfunction(one) and signature(one).parameters}
    assert not functions - called, functions - called
    assert {"Message", "Client", "AsyncClient", "Registry", "Tool", "StreamParser", "Store", "Recorder"} <= called
    assert len(names) > 60
    assert len(VALUES) >= 90


@pytest.mark.parametrize(
    "planted",
    [
        lambda: None.flags,  # type: ignore[attr-defined]
        lambda: dict[str, int]()["x"],
        lambda: [][0],
        lambda: int("x"),
        lambda: len(5),  # type: ignore[arg-type]
        lambda: {[]: 1},
        lambda: (_ for _ in ()).throw(RecursionError("deep")),
        lambda: (_ for _ in ()).throw(OverflowError("model is too large")),
        lambda: (_ for _ in ()).throw(TypeError("model: 'int' object has no attribute 'flags'")),
        lambda: "\ud800".encode(),
    ],
)
def test_the_judge_sees_a_planted_fault(planted: object) -> None:
    assert fault(Input("planted", ("model",), planted)) is not None  # type: ignore[arg-type]


def test_a_planted_attribute_error_fails_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(call: object) -> str:
        return call.no_such_thing  # type: ignore[attr-defined, no-any-return]

    chosen = [one for one in few() if one.name.startswith(("Registry.resolve(name", "build_request("))]
    monkeypatch.setattr("cnllm.registry.registry._text", lambda name, value: value.casefold())
    monkeypatch.setattr("cnllm.engine.encode.build._build", lambda *args: broken(args[0].model))
    seen = [one.name for one in chosen if fault(one)]
    assert any(name.startswith("Registry.resolve(name") for name in seen), seen
    assert any(name.startswith("build_request(") for name in seen), seen


WRONG: dict[str, Callable[[], object]] = {
    "model is None": lambda: cnllm.call(None, "x"),  # type: ignore[call-overload]
    "messages is int": lambda: cnllm.call("glm-4.7", 5),  # type: ignore[call-overload]
    "messages[1] is NoneType": lambda: cnllm.fit("glm-4.7", ["x", None]),  # type: ignore[list-item]
    "messages[0].parts[0].text": lambda: cnllm.fit("glm-4.7", [cnllm.Message("user", (cnllm.Text(object()),))]),  # type: ignore[arg-type]
    "data is NoneType": lambda: cnllm.Message.from_dict(None),  # type: ignore[arg-type]
    "parts[0]": lambda: cnllm.Message.from_dict({"role": "user", "parts": [5]}),
    "parts is int": lambda: cnllm.Message("user", 5),  # type: ignore[arg-type]
    "parameter": lambda: cnllm.tool(dict),
    "function is int": lambda: cnllm.tool(5),  # type: ignore[call-overload]
    "extra_body['a'][1]": lambda: cnllm.fit("glm-4.7", "x", extra_body={"a": [1, object()]}),
    "extra_body is nested": lambda: cnllm.fit("glm-4.7", "x", extra_body=_itself()),
    "extra_headers['x-team'] is NoneType; a string": lambda: cnllm.fit("glm-4.7", "x", extra_headers={"x-team": None}),  # type: ignore[dict-item]
    "extra_headers['x-tags'] is list; a string": lambda: cnllm.fit("glm-4.7", "x", extra_headers={"x-tags": ["a"]}),  # type: ignore[dict-item]
    "temperature=nan": lambda: cnllm.fit("glm-4.7", "x", temperature=float("nan")),
    "api_key is int": lambda: cnllm.Client(api_key=12345678),  # type: ignore[arg-type]
    "timeout=-1": lambda: cnllm.Client(timeout=-1),
    "timeout is str": lambda: cnllm.Client(timeout="10"),  # type: ignore[arg-type]
    "max_reply_bytes=-1": lambda: cnllm.Limits(max_reply_bytes=-1),
    "recovery has no key 'stps'; its keys are steps,": lambda: cnllm.fit("glm-4.7", "x", recovery={"stps": 1}),
    "fallback has no key 'model'; its keys are targets,": lambda: cnllm.Client(fallback={"model": ["glm-4.7"]}),
    "fallback has no targets": lambda: cnllm.Client(fallback={"most": 2}),
    "model is NoneType; a name or a cnllm.Model": lambda: cnllm.batch.run(["x"], None, out="out.jsonl"),  # type: ignore[arg-type]
    "models is list; a dict of names": lambda: cnllm.gateway.app(keys=(), models=["glm-4.7"]),  # type: ignore[arg-type]
    "models['fast'] is int; a string": lambda: cnllm.gateway.app(keys=(), models={"fast": 3}),  # type: ignore[dict-item]
    "attempts=0": lambda: cnllm.Retry(attempts=0),
    "registry is str": lambda: cnllm.Client("glm-4.7"),  # type: ignore[arg-type]
    "transport is int": lambda: cnllm.Client(transport=5),  # type: ignore[arg-type]
    "env is int": lambda: cnllm.Registry.load().resolve("glm-4.7").distrusts(5, "https://example.com"),  # type: ignore[arg-type]
    "name is list": lambda: cnllm.Registry.load().resolve(["glm-4.7"]),  # type: ignore[arg-type]
    "overlays: a path is int": lambda: cnllm.Registry.load(5),  # type: ignore[arg-type]
    "chunk is str": lambda: engine.StreamParser(cnllm.Registry.load().resolve("glm-4.7")).feed("x"),  # type: ignore[arg-type]
    "tool is str": lambda: tools.problem_with("x", None),  # type: ignore[arg-type]
    "on_step is int": lambda: cnllm.Client(simulate=True).run("glm-4.7", "x", on_step=5),  # type: ignore[call-overload]
}


def _itself() -> dict[str, object]:
    table: dict[str, object] = {}
    table["a"] = table
    return table


def test_errors_name_the_argument_and_its_place() -> None:
    for words, call in WRONG.items():
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        assert words in str(caught.value), (words, str(caught.value))
        assert "12345678" not in str(caught.value)


def test_subclasses_and_look_alikes_go_out_as_what_they_stand_for() -> None:
    class Word(str):
        """A string of another class."""

    plan = engine.build_request(
        cnllm.Registry.load().resolve("glm-4.7"),
        [cast(Any, {"role": Word("user"), "content": Word("hi")})],
        stop=[Word("a")],
        extra_body={"x": Word("y"), "z": (1, 2)},
    )
    assert plan.content.count(b'"hi"') == 1
    assert b'"x":"y"' in plan.content
    assert b'"z":[1,2]' in plan.content


@pytest.mark.parametrize(
    "base", ["http://xn--a/", "http://a b/", "http://a\\@b/", "http://[::1", "http://a:x/", "http://\u2100/"]
)
def test_an_address_that_is_none_is_refused_before_anything_is_sent(base: str) -> None:
    model = cnllm.Registry.load().resolve("openai-compatible/m", base_url=base)
    with pytest.raises(cnllm.CannotSend):
        cnllm.call(model, "x")


@pytest.mark.share(2)
@pytest.mark.parametrize("key", ["path", "stream_path"])
@pytest.mark.parametrize(
    "path", [".x/", "@127.0.0.1:1/x", ":1/x", "0/x", ".evil.example/x", "x", "/a b", "/a\\\\b", "/a\\u0000"]
)
def test_a_path_never_changes_host_or_port(key: str, path: str, tmp_path: object) -> None:
    file = f"{tmp_path}/overlay.toml"
    head = '[providers.home]\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9"\n'
    with open(file, "w") as out:
        out.write(f'{head}{key} = "{path}"\n')
    with pytest.raises(cnllm.RegistryError) as caught:
        cnllm.Registry.load(file).resolve("home/m")
    assert (caught.value.file, caught.value.line) == (file, 4)
    assert key in str(caught.value)
