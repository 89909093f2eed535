"""A model id stays in its place of the path, however it is written."""

import pytest

import cnllm
from cnllm import engine

OUT = [
    "a/../../../x", "..", "../x", "x/..", ".", "a/./b", "%2e%2e/x", "a%2f..%2fb", "%252e%252e/x", "a\\..\\b",
    "a%5c..%5cb", "/x", "x/", "a//b", "a\nb", "a\x00b", "a%0d%0ab", "..;/x", "\ud83d", "a/%2e./b", "\x85",
]  # fmt: skip
BASE = "http://127.0.0.1:1/v1beta"
IN = ["models/x", "a/b:1", "通义-千问", "a?b", "a#b", "a b", "x..y", "...", "a@b", "publishers/p/models/m@001"]


def test_an_id_cannot_leave_its_path() -> None:
    registry = cnllm.Registry.load()
    for stream in (False, True):
        for id in [*OUT, *IN]:
            try:
                model = registry.resolve(f"openai-compatible/{id}", base_url=BASE, protocol="gemini")
            except (cnllm.CnllmError, ValueError):
                assert id in OUT
                continue
            if id in OUT:
                with pytest.raises(cnllm.CannotSend):
                    engine.build_request(model, "hi", stream=stream)
                continue
            plan = engine.build_request(model, "hi", stream=stream)
            head, _, tail = plan.url.partition("/models/")
            assert head == BASE
            path, _, query = tail.partition(":streamGenerateContent" if stream else ":generateContent")
            assert "?" not in path
            assert "#" not in path
            assert query in ("", "?alt=sse")


def test_an_id_in_the_body_is_left_alone() -> None:
    model = cnllm.Registry.load().resolve("openai-compatible/a/../b", base_url="http://127.0.0.1:1/v1")
    plan = engine.build_request(model, "hi")
    assert plan.url == "http://127.0.0.1:1/v1/chat/completions"
    assert plan.body["model"] == "a/../b"
