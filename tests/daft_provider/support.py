"""What the tests of the Daft provider share: frames of questions, and the answers of a query.

The folder is not called `daft`: Python would import it in place of the real one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("daft.functions")

import daft
from batch.stub import Stub
from daft.functions import prompt

import cnllm
from cnllm.config import paths
from cnllm.registry.trusted_files import trust
from cnllm.simulator.server import running

KEY = "sk-daft-0123456789abcdef"
PRICE = 'price = { currency = "CNY", input = 2.0, output = 8.0 }'


def write_own(text: str) -> None:
    """Write the user's own registry file, and trust it with keys."""
    folder = paths.config_dir()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "providers.toml").write_text(text)
    trust(folder / "providers.toml")


def serve_models(server: Stub, flags: str = "") -> None:
    """Let the user's own registry file hold `home/m`, which the stub serves."""
    write_own(
        f'[providers.home]\ntitle = "A stub"\nprotocol = "openai-chat"\nbase_url = "{server.url}"\n'
        f'keys = ["HOME_TEST_KEY"]\n[models."home/m"]\n{flags}\n'
    )


@contextmanager
def simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a simulator answer for glm-4.7, over a real socket."""
    monkeypatch.setenv("ZAI_API_KEY", KEY)
    with running(cnllm.Registry.load()) as server:
        write_own(f'[providers.zai]\nbase_url = "{server.url}/zai"\n')
        yield


def session(**options: Any) -> Any:
    """Return a session of Daft with the provider."""
    made = daft.Session()
    made.attach_provider(cnllm.daft.provider(**options))
    return made


def collect(questions: Sequence[Any], **options: Any) -> Any:
    """Return the frame with the column `answer`, computed."""
    options.setdefault("model", "home/m")
    frame = daft.from_pydict({"question": list(questions)})
    with session():
        return frame.with_column("answer", prompt(daft.col("question"), provider="cnllm", **options)).collect()


def answers(questions: Sequence[Any], **options: Any) -> list[Any]:
    """Return the answers of the questions, in their order."""
    found: list[Any] = collect(questions, **options).to_pydict()["answer"]
    return found


def counters(frame: Any) -> dict[str, float]:
    """Return the numbers that Daft has counted for the prompts of a frame."""
    stats = frame.metrics.to_pydict()["stats"]
    return {name: entry["value"] for node in stats for name, entry in node}
