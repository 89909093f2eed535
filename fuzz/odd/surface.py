"""Every public function, class and method, each of its parameters with every odd value."""

from __future__ import annotations

import asyncio
import inspect
import os
import tempfile
import typing
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import cnllm
from cnllm import cassette, engine, sentences, store, tools, transports
from cnllm import registry as registry_module
from cnllm.config import keys
from cnllm.transports import fast
from cnllm.types import policy

from .judge import Input
from .values import VALUES

__all__ = ["public", "registry", "surface"]

MODULES: tuple[ModuleType, ...] = (
    cnllm,
    engine,
    tools,
    store,
    cassette,
    sentences,
    registry_module,
    keys,
    policy,
    transports,
    fast,
)
_LEFT_OUT = {
    "Client.close",
    "AsyncClient.close",
    "AsyncClient.aclose",
    "Plan.model",
}


@cache
def registry() -> cnllm.Registry:
    """Return the built-in registry alone."""
    return cnllm.Registry.load(_overlay())


@cache
def folder() -> Path:
    """Return a place for files, which every run has for itself."""
    return Path(tempfile.mkdtemp(prefix="cnllm-odd-"))


@cache
def _overlay() -> Path:
    file = folder() / "empty.toml"
    file.write_text("schema = 1\n")
    return file


@cache
def model() -> cnllm.Model:
    """Return a model at an address where nobody listens."""
    return registry().resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1")


@cache
def wire_model(protocol: str) -> cnllm.Model:
    """Return a model of which nothing is known, over one of the wires."""
    return registry().resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1", protocol=protocol)


@cache
def client() -> cnllm.Client:
    return cnllm.Client(registry(), simulate=True)


@cache
def plan() -> cnllm.Plan:
    return engine.build_request(model(), "hi")


@cache
def reply() -> cnllm.Reply:
    return client().call("glm-4.7", "hi")


@cache
def stored() -> store.Store:
    return store.Store.open(folder() / "store.db")


def weather(city: str, days: int = 1) -> str:
    """The weather."""
    return f"{city}: fair, {days}"


@cache
def tool() -> cnllm.Tool:
    return cnllm.tool(weather)


def call() -> cnllm.ToolCall:
    return cnllm.ToolCall("call_0", "weather", {"city": "x"}, '{"city":"x"}')


class _Answers:
    """A transport that answers at once."""

    def send(self, plan: Any) -> tuple[int, dict[str, str], Iterator[bytes]]:
        return 200, {}, iter([b'{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}'])


def player_file() -> Path:
    file = folder() / "tape.jsonl"
    file.touch()
    return file


GOOD: dict[str, Callable[[], Any]] = {
    "model": model,
    "messages": lambda: "hi",
    "text": lambda: "hi",
    "chunk": lambda: b"data: {}\n\n",
    "content": lambda: b"{}",
    "status": lambda: 200,
    "headers": dict,
    "protocol": lambda: "openai-chat",
    "provider": lambda: "deepseek",
    "name": lambda: "glm-4.7",
    "prefix": lambda: "glm",
    "role": lambda: "user",
    "data": lambda: {"role": "user", "content": "x"},
    "body": lambda: {"model": "m", "messages": [{"role": "user", "content": "x"}]},
    "reply": reply,
    "event": lambda: cnllm.TextDelta("x"),
    "kind": lambda: cnllm.TextDelta,
    "texts": lambda: ["x"],
    "message": lambda: "a message",
    "items": lambda: [tool()],
    "tool": tool,
    "call": call,
    "arguments": lambda: {"city": "x"},
    "value": lambda: {"a": 1},
    "function": lambda: weather,
    "inner": _Answers,
    "path": player_file,
    "names": lambda: ["NOT_SET_TOKEN"],
    "limit": lambda: 3,
    "words": lambda: ["x"],
    "which": lambda: None,
    "plan": plan,
    "flag": lambda: "base_url",
    "mode": frozenset,
    "by": lambda: "zai/glm-4.7",
    "note": lambda: cnllm.Note("tier", "b", "c", "d"),
    "run": lambda: None,
    "env": lambda: "A_TOKEN",
    "origin": lambda: "https://a",
    "most": lambda: 5,
    "usage": cnllm.Usage,
    "finish": lambda: "stop",
    "amount": lambda: Decimal(1),
    "currency": lambda: "USD",
    "index": lambda: 0,
    "id": lambda: "x",
    "part": lambda: cnllm.Text("x"),
    "events": lambda: iter(()),
    "documents": list,
    "stream": lambda: False,
    "api_key": lambda: None,
    "cap": lambda: 60.0,
    "targets": lambda: ["glm-4.6"],
}
OWN: dict[str, Callable[[], Any]] = {
    **{f"Message.{role}(content)": lambda: "hi" for role in ("system", "user", "assistant", "tool")},
    "keys.set_key(name)": lambda: "ODD_TOKEN",
    "keys.set_key(value)": lambda: "sk-odd-0123456789",
    "keys.key_source(name)": lambda: "ODD_TOKEN",
    "Store.open(path)": lambda: folder() / "store.db",
    "ReplyTooLarge(limit)": lambda: "max_reply_bytes",
    "Client(retry)": lambda: policy.Retry(attempts=1),
    "encode_error(message)": lambda: "no",
    "Recorder(path)": lambda: folder() / "recorded.jsonl",
    "tools.check(tool)": tool,
}
_WORDS = {
    "tool(function)": ("parameter",),
    "Limits.of(limits)": ("limits",),
    "Timeouts.of(timeouts)": ("timeout",),
    "tools.as_tools(items)": ("tools[0]",),
    "Registry.load(overlays)": ("path",),
    "decode_request(body)": ("messages",),
}
_OURS = {"Run", "AsyncRun", "Stream", "AsyncStream"}


def public() -> Iterator[tuple[str, Any]]:
    """Yield every public function and class with its name, each once."""
    seen: set[int] = set()
    for module in MODULES:
        names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
        for name in names:
            value = getattr(module, name)
            if typing.get_origin(value) is not None or typing.is_typeddict(value):
                continue  # a type for annotations
            if callable(value) and id(value) not in seen and not isinstance(value, ModuleType):
                seen.add(id(value))
                short = module.__name__.rpartition(".")[2]
                yield (f"{short}.{name}" if module in (keys, tools) else name), value


def instances() -> dict[str, Callable[[], Any]]:
    """Return an object of every class that has methods of its own."""
    return {
        "Client": client,
        "AsyncClient": lambda: cnllm.AsyncClient(registry(), simulate=True),
        "Registry": registry,
        "Model": model,
        "Message": lambda: cnllm.Message("user", (cnllm.Text("x"),)),
        "Reply": reply,
        "Note": GOOD["note"],
        "Plan": plan,
        "StreamParser": lambda: engine.StreamParser(model()),
        "StreamWriter": lambda: engine.StreamWriter("openai-chat", id="a", model="m"),
        "Sentences": sentences.Sentences,
        "BySentence": sentences.BySentence,
        "Store": stored,
        "Tool": tool,
        "tools.Tool": tool,
        "Recorder": lambda: cassette.Recorder(_Answers(), folder() / "recorded.jsonl"),
        "Player": lambda: cassette.Player(player_file()),
        "Stream": lambda: client().stream("glm-4.7", "hi"),
        "Run": lambda: client().run_stream("glm-4.7", "hi"),
        "Limits": policy.Limits,
        "Timeouts": policy.Timeouts,
    }


def surface(values: dict[str, Callable[[], Any]] = VALUES) -> Iterator[Input]:
    """Yield every parameter of every public function, constructor and method with every odd value."""
    made = instances()
    for name, function in public():
        if function in (cnllm.Event, cnllm.Part) or getattr(function, "_is_protocol", False):
            continue
        yield from _of(name, function, values)
        if not inspect.isclass(function):
            continue
        for method, raw in inspect.getmembers_static(function):
            label = f"{name}.{method}"
            if method.startswith("_") or label in _LEFT_OUT or method in ("with_traceback", "add_note"):
                continue
            if isinstance(raw, staticmethod | classmethod):
                yield from _of(label, getattr(function, method), values)
            elif inspect.isfunction(raw) and name in made:
                yield from _of(label, None, values, owner=made[name], method=method)


def _of(
    label: str,
    function: Any,
    values: dict[str, Callable[[], Any]],
    *,
    owner: Callable[[], Any] | None = None,
    method: str = "",
) -> Iterator[Input]:
    target = getattr(owner(), method) if owner is not None else function
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return
    required = [
        p for p in parameters.values() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if not parameters:
        return
    for parameter in parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue  # the options have a table of their own
        words: tuple[str, ...] = (parameter.name, *_WORDS.get(f"{label}({parameter.name})", ()))
        if label in _OURS:  # what only a client makes: the first argument is named, whichever of them is wrong
            words = tuple(parameters)
        for odd, make in values.items():
            if parameter.name in ("on_step", "approve", "on_event") and callable(make()):
                continue  # what a caller's own function raises is the caller's
            yield Input(
                f"{label}({parameter.name}={odd})",
                words,
                partial(_called, label, function, owner, method, required, parameter, make),
            )


def _called(
    label: str,
    function: Any,
    owner: Callable[[], Any] | None,
    method: str,
    required: list[inspect.Parameter],
    odd: inspect.Parameter,
    make: Callable[[], Any],
) -> None:
    target = getattr(owner(), method) if owner is not None else function
    args: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in [*required, *([] if odd in required else [odd])]:
        value = make() if parameter is odd else _good(label, parameter.name)
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            args.append(value)
        else:
            named[parameter.name] = value
    if label in ("call", "run", "stream", "fit", "sanitize"):
        os.environ["CNLLM_ATTEMPTS"] = "1"
    result = target(*args, **named)
    if inspect.iscoroutine(result):
        asyncio.run(result)
    _used(label, result)


def _good(label: str, name: str) -> Any:
    make = OWN.get(f"{label}({name})") or GOOD.get(name)
    return make() if make is not None else "x"


def _used(label: str, result: Any) -> None:
    """Read a lazy result to its end, and use an object that was made."""
    if label in ("stream", "Client.stream", "Client.run_stream"):
        with result as events:
            list(events)
    elif label == "AsyncClient.stream":
        asyncio.run(_read(result))
    elif inspect.isgenerator(result) or label == "Store.records":
        list(result)
    elif label in ("Client", "AsyncClient"):
        repr(result)
        result.plan(model(), "hi")
    elif label in ("Timeouts", "Limits", "Retry"):
        key = {"Timeouts": "timeout", "Limits": "limits", "Retry": "retry"}[label]
        cnllm.Client(registry(), simulate=True, **{key: result}).call(model(), "hi")
    elif label == "Message":
        assert result.text is not None
        assert result.reasoning is not None
        assert result.tool_calls is not None
        result.to_dict()
        engine.build_request(model(), [result])
    elif label == "Registry.resolve":
        engine.build_request(result, "hi")
        client().call(result, "hi")


async def _read(stream: Any) -> None:
    async with stream as events:
        async for _ in events:
            pass
