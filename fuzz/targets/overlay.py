"""A registry file of anybody's: it is taken, or refused with file and words, and never crashes what reads it."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

import cnllm
from cnllm import CnllmError, Registry, RegistryError

from ..given import given, pack
from ..models import registry
from ..spent import bounded


@cache
def _place() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="cnllm-fuzz-"))
    os.environ["CNLLM_CACHE_DIR"] = str(folder / "cache")  # nothing hostile is to stay in the user's
    return folder


def check(data: bytes) -> None:
    """Raise `RegistryError` with the file's name, or return a registry whose models resolve, or say why they do not."""
    case = given(data)
    path = _place() / "overlay.toml"
    path.write_bytes(case.payload)
    with bounded(len(case.payload) * 10):
        try:
            found = Registry.load(path)
        except RegistryError as error:
            assert error.file == str(path), error
            assert error.line is None or 1 <= error.line <= case.payload.count(b"\n") + 1, error
            assert error.hint, error
            return
    built_in = set(registry().names())
    mine = [name for name in found.names() if name not in built_in][:3]
    mine += [f"{provider}/anything" for provider in found.providers if provider not in registry().providers][:2]
    for name in [*mine, *list(found.aliases)[-2:], "deepseek/deepseek-chat"]:
        for protocol in (None, "anthropic-messages"):
            try:
                model = found.resolve(name, protocol=protocol)
            except CnllmError:
                continue
            if case.how % 8 == 1:  # which finds every line of the built-in file, too
                model.explain()
            _used(model)


def _used(model: cnllm.Model) -> None:
    """Build a request and read a reply, as that file wants them."""
    tools = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
    for stream in (False, True):
        try:
            plan = cnllm.engine.build_request(
                model, "hi", stream=stream, tools=tools, temperature=0.5, max_tokens=10, reasoning="low"
            )
        except CnllmError:
            return
        body = b'{"choices":[{"index":0,"message":{"content":"hi","reasoning":"x"},"finish_reason":"stop"}],"usage":{}}'
        frame = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
        for status, content in ((200, body), (200, frame), (400, b'{"error":{"message":"no","code":1}}')):
            try:
                cnllm.engine.parse_response(plan.model, status, {}, content, plan=plan)
            except (cnllm.EndpointError, cnllm.StreamCut):
                continue


_FILE = """\
schema = 1
prefer = ["home"]

[defaults.params]
seed = false

[providers.home]
title = "Home"
protocol = "openai-chat"
base_url = "http://127.0.0.1:8000/v1"
keys = ["HOME_TOKEN"]
extends = "deepseek"

[providers.home.reasoning]
mode = "toggle"
fields = ["reasoning", "a.0.b"]
tags = ["<t>", "</t>"]

[providers.home.on.anthropic-messages]
base_url = "http://127.0.0.1:8000"

[providers.home.when."reasoning+tools"]
tool_choice = { allowed = ["auto"] }

[models."home/m"]
limits = { context = 1000, output = 100 }
price = { input = 1.0, output = 2.0, currency = "USD" }
status = { state = "current" }
unset = ["params.seed"]

[models."home/m".params]
temperature = { at = "a.b", min = 0, max = 1 }
top_p = false

[models."home/m".call]
reasoning = "low"
max_tokens = 5

[[models."home/m".leaks]]
open = ["<x>"]
close = ["</x>"]
format = ["json"]

[[models."home/m".errors]]
status = [400]
text = "a+b"
kind = "bad-request"

[aliases]
m = "home/m"

[tiers]
fast = ["home/m", "deepseek/deepseek-chat"]
"""


def seeds() -> list[bytes]:
    """Return a file with most of what a file may hold, its parts, and parts of the built-in one."""
    from cnllm.registry.read import builtin_path

    tables = builtin_path().read_bytes().split(b"\n\n")
    taken = [b"\n\n".join(tables[at : at + 3]) for at in range(0, len(tables), max(1, len(tables) // 60))]
    parts = [part.encode() for part in _FILE.split("\n\n")]
    return [pack(body) for body in (_FILE.encode(), *parts, *(t for t in taken if len(t) < 3500), b"", b"a = [" * 300)]
