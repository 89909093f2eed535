"""What the tests of batches share: a model at a stub, files of rows, and what a run wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cnllm
from cnllm import Registry
from cnllm.batch.report import BatchReport

from .stub import Stub

KEY = "sk-batch-0123456789abcdef"
PRICE = 'price = { currency = "CNY", input = 2.0, output = 8.0 }\nlimits = { context = 8192, output = 1000 }'


def registry(server: Stub, folder: Path, flags: str = "") -> Registry:
    """A registry with `home/m`, which the stub serves."""
    path = folder / "overlay.toml"
    path.write_text(
        f'[providers.home]\ntitle = "A stub"\nprotocol = "openai-chat"\nbase_url = "{server.url}"\n'
        f'keys = ["HOME_TEST_KEY"]\n[models."home/m"]\n{flags}\n'
    )
    return Registry.load(path)


def rows(folder: Path, values: Iterable[Any], name: str = "in.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def prompts(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"id": f"r{n}", "prompt": f"p{n}"} for n in range(start, start + count)]


def run(server: Stub, folder: Path, requests: Any, *, flags: str = "", **settings: Any) -> BatchReport:
    """One run against the stub. `out` is out.jsonl of the folder."""
    settings.setdefault("api_keys", (KEY,))
    settings.setdefault("registry", registry(server, folder, flags))
    model = settings.pop("model", "home/m")
    return cnllm.batch.run(requests, model, out=folder / "out.jsonl", **settings)


def lines(folder: Path, name: str = "out.jsonl") -> list[dict[str, Any]]:
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def texts(folder: Path) -> dict[Any, str | None]:
    """The text of each row, None where it failed; every row must be there once."""
    found = lines(folder)
    assert len({line["id"] for line in found}) == len(found)
    return {line["id"]: None if line["error"] else line["reply"]["text"] for line in found}
