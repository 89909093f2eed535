"""The requests to a batch interface go where the key may go, and no message shows the password in their address."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import cnllm
from cnllm import CnllmError, Registry

KEY = "sk-ant-0123456789abcdef"
PASSWORD = "PASSWORD-99x"


class Silent:
    """A transport that keeps what it sends. Its answers are no JSON."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def send(self, plan: Any) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
        self.sent.append(plan)

        async def body() -> AsyncIterator[bytes]:
            yield b"nothing"

        return 200, {}, body()


def run(folder: Path, overlay: str, model: str) -> tuple[CnllmError, list[Any]]:
    """Run a batch of one row. Return its error, and the requests that were sent."""
    path, transport = folder / "overlay.toml", Silent()
    path.write_text(overlay, encoding="utf-8")
    with pytest.raises(CnllmError) as caught:
        cnllm.batch.run(
            ["hi"],
            model,
            out=folder / "out.jsonl",
            registry=Registry.load(path),
            vendor_batch=True,
            transport=transport,
            max_tokens=5,
        )
    return caught.value, transport.sent


@pytest.mark.parametrize("flag", ["submit.path", "job.path", "job.cancel", "list.path", "results.path"])
@pytest.mark.parametrize("path", [".evil.example/x", "@evil.example/x", ":8443/x"])
def test_a_path_of_a_file_changes_no_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str, path: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    error, sent = run(tmp_path, f'[providers.anthropic.batch]\n{flag} = "{path}"\n', "anthropic/claude-haiku-4-5")
    assert not sent
    assert re.search(rf"overlay\.toml:2: batch\.{flag} of anthropic/claude-haiku-4-5", str(error))


def test_a_password_in_the_address_goes_into_a_header_and_no_message(tmp_path: Path) -> None:
    overlay = (
        f'[providers.mine]\nprotocol = "anthropic-messages"\nbase_url = "http://me:{PASSWORD}@127.0.0.1:9/x"\n'
        'batch.available = true\n[models."mine/m"]\nlimits = { context = 8192, output = 1000 }\n'
    )
    error, sent = run(tmp_path, overlay, "mine/m")
    assert sent
    assert all(plan.url.startswith("http://127.0.0.1:9/x/v1/messages/batches") for plan in sent)
    assert all(plan.headers["authorization"].startswith("Basic ") for plan in sent)
    assert PASSWORD not in f"{error!r} {error} {error.hint}"
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("out*") if file.is_file())
    assert PASSWORD.encode() not in written
