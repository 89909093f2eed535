"""Registry files with an odd value for every flag, and settings of the environment with odd ones."""

from __future__ import annotations

import os
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import msgspec
from msgspec import Struct

import cnllm
from cnllm import engine
from cnllm.config import keys
from cnllm.config.settings import check_settings
from cnllm.registry.documents import Document
from cnllm.registry.flags import Flags

from .judge import Input
from .surface import folder

__all__ = ["documents", "environment"]

TOML = (
    "true",
    "0",
    "-1",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "99999999999999999999999999",
    "9223372036854775807",
    '""',
    '"odd"',
    '"a.b.c"',
    '".x/"',
    '"@127.0.0.1:1/"',
    '"\\u0000"',
    '"a b"',
    '"{model}{key}"',
    '"http://xn--a/"',
    '"http://[::1"',
    '"http://a:x/"',
    '"//b/c"',
    "[]",
    '[""]',
    '["a", "b"]',
    "[1, 2]",
    "[[]]",
    "[{}]",
    "{}",
    "{ a = 1 }",
    '{ a = { b = "c" } }',
    '{ set = { a = 1 }, drop = ["a"] }',
    "1979-05-27",
    "1979-05-27T07:32:00Z",
    "07:32:00",
)
VARIABLES = [
    "CNLLM_TIMEOUT",
    "CNLLM_CONNECT_TIMEOUT",
    "CNLLM_FIRST_BYTE_TIMEOUT",
    "CNLLM_IDLE_TIMEOUT",
    "CNLLM_PROGRESS_TIMEOUT",
    "CNLLM_ATTEMPTS",
    "CNLLM_MAX_REPLY_BYTES",
    "CNLLM_MAX_EVENT_BYTES",
    "CNLLM_TRANSPORT",
    "CNLLM_PROVIDERS",
    "CNLLM_CONFIG_DIR",
    "CNLLM_DATA_DIR",
    "CNLLM_CACHE_DIR",
]
SETTINGS = (
    *(
        "0",
        "-1",
        "nan",
        "inf",
        "1e400",
        "1" * 5000,
        " 5 ",
        "5.",
        "0x10",
        "true",
        "none",
        "[]",
        "½",
        "١",
        "1_000",
        "\udcff",
    ),
    *("/dev/null", "/proc/self/mem", "relative", "~nobody-at-all", "a" * 5000, ":", ";", "/root/\x01", "http://x"),
)


def flags(cls: type[Struct] = Flags, before: str = "") -> Iterator[str]:
    """Yield the dotted name of every flag."""
    for field in msgspec.structs.fields(cls):
        name = f"{before}{field.encode_name}"
        yield name
        for kind in _kinds(field.type):
            if isinstance(kind, type) and issubclass(kind, Struct) and name.count(".") < 3:
                yield from flags(kind, f"{name}.")


def _kinds(kind: Any) -> list[Any]:
    if typing.get_origin(kind) is typing.Annotated:
        return _kinds(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [one for arg in typing.get_args(kind) for one in _kinds(arg)]
    return [kind]


def documents() -> Iterator[Input]:
    """Yield every flag with every odd value, at a provider and at a model."""
    for flag in flags():
        for odd in TOML:
            yield Input(f"overlay {flag} = {odd}", ("no argument is wrong here",), partial(_loaded, flag, odd))
    for section in ("schema", "prefer", "aliases", "tiers", "protocols", "families", "providers", "models", "defaults"):
        for odd in TOML:
            yield Input(f"overlay {section} = {odd}", ("no argument is wrong here",), partial(_section, section, odd))


HEAD = """\
[providers.home]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
keys = []
"""


def _loaded(flag: str, odd: str) -> None:
    top = flag.partition(".")[0]
    head = "\n".join(line for line in HEAD.splitlines() if line.partition(" ")[0] != top)
    for text in (f"{head}\n{flag} = {odd}\n", f'{HEAD}\n[models."home/m"]\n{flag} = {odd}\n'):
        _read(text)


def _section(section: str, odd: str) -> None:
    _read(f"{section} = {odd}\n")


@cache
def _document() -> Any:
    from cnllm.registry.read import builtin_path, read

    return read(builtin_path(), builtin=True)


def _registry(text: str) -> cnllm.Registry:
    """Return the registry of the built-in file and one more, checked as by `Registry.load`, without its cache."""
    from cnllm.registry.check import require_valid
    from cnllm.registry.documents import parse

    path = folder() / "overlay.toml"
    document = Document(path, str(path), text.encode(), parse(text.encode(), str(path)), builtin=False)
    require_valid(document)
    return cnllm.Registry([_document(), document])


def _read(text: str) -> None:
    try:
        found = _registry(text)
    except cnllm.RegistryError as error:
        assert error.file, error
        assert error.line, error
        return
    found.names(), found.providers, found.aliases, found.tiers
    for name in ("home/m", "deepseek/deepseek-chat"):
        try:
            model = found.resolve(name)
        except cnllm.CnllmError:
            continue
        try:
            plan = engine.build_request(
                model,
                "hi",
                stream=True,
                tools=[{"name": "f"}],
                temperature=0.5,
                max_tokens=10,
                reasoning="low",
                stop=["a"],
            )
        except cnllm.CnllmError:
            continue
        assert plan.url.startswith(("http://127.0.0.1:9/", "https://api.deepseek.com/")) or any(
            w in text for w in ("base_url =", "path =", "protocol =")
        ), plan.url
        for status, content in (
            (200, BODY),
            (400, b'{"error":{"message":"no","code":1}}'),
            (200, b"data: " + BODY + b"\n\n"),
        ):
            try:
                engine.parse_response(plan.model, status, {}, content, plan=plan)
            except (cnllm.EndpointError, cnllm.StreamCut):
                continue


BODY = (
    b'{"choices":[{"index":0,"message":{"content":"hi","reasoning":"x"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":5}}'
)


def environment() -> Iterator[Input]:
    """Yield every variable with every odd value."""
    for variable in VARIABLES:
        for value in SETTINGS:
            yield Input(f"{variable}={value[:20]!r}", (variable,), partial(_set, variable, value))


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _set(variable: str, value: str) -> None:
    with _variable(variable, value):
        check_settings()
        if variable in ("CNLLM_PROVIDERS", "CNLLM_CONFIG_DIR", "CNLLM_CACHE_DIR"):
            cnllm.Registry.load().names()
        if variable == "CNLLM_CONFIG_DIR":
            keys.find_key(["ODD_TOKEN"])
            keys.key_names()
        if variable == "CNLLM_DATA_DIR":
            from cnllm.store import Store

            Store.open().close()
        if variable == "CNLLM_TRANSPORT":
            from cnllm.transports import default_async_transport, default_transport

            default_transport(), default_async_transport()
