"""A client may put its key where none belongs: into the path, a name or a tag. No log has it then, either."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from cnllm.gateway.asgi import Gateway
from cnllm.gateway.server import running
from cnllm.store.call_log import CallLog

GIVEN = "the-key-of-the-operator"
SHAPED = "sk-cnllm-nMieSNGzHM70oW9j-3t-1yHcJHabcdefg"  # unknown here: a key of another gateway
TURNS: list[Any] = [{"role": "user", "content": "Hi"}]


def test_a_key_in_the_wrong_place_is_in_no_log(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.DEBUG)
    calls = CallLog(str(tmp_path / "calls.db"))
    seen: list[httpx.Response] = []
    chat: Any = {"model": "zai/glm-4.7", "messages": TURNS}
    with running(Gateway(simulate=True, keys=[GIVEN], call_log=calls)) as url, httpx.Client(base_url=url) as http:
        for key, headers in ((GIVEN, {"x-api-key": GIVEN}), (SHAPED, {"x-api-key": GIVEN}), (SHAPED, {})):
            seen += [
                http.get(f"/v1/models/{key}", headers=headers),
                http.get(f"/v1/responses/{key}", headers=headers),
                http.post(f"/{key}/v1/chat/completions", headers=headers, json=chat),
                http.post("/v1/chat/completions", headers=headers, json={**chat, "model": key}),
                http.post("/v1/chat/completions", headers=headers, json={**chat, "tool_choice": key}),
                http.post(f"/v1beta/models/{key}:generateContent", headers=headers, json={"contents": []}),
            ]
        tagged = http.post("/v1/chat/completions", headers={"x-api-key": GIVEN, "x-cnllm-tag": GIVEN}, json=chat)
        assert tagged.status_code == 200
        own = http.get(f"/v1/requests/{tagged.headers['x-request-id']}", headers={"x-api-key": GIVEN})
        assert own.json()["tag"] == "[redacted]"
    assert {answer.status_code for answer in seen} == {400, 401, 404}
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("cnllm")]
    assert len(lines) >= len(seen)
    assert [line for line in lines if "/v1/models/[redacted]" in line]
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for key in (GIVEN, SHAPED):
        assert not [line for line in lines if key in line]
        assert key.encode() not in stored
