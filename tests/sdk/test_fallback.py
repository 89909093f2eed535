"""An SDK whose client has other models, or whose model is the name of several."""

from pathlib import Path
from typing import Any

import openai
import pytest
from client.peer import refused, reply
from client.routes import ANSWER, healthy, two

from cnllm import Retry
from cnllm.sdk import http_client


@pytest.mark.parametrize(("model", "fallback"), [("one/m", ["two/m"]), ("best", None)])
def test_the_reply_names_the_model_that_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, fallback: list[str] | None
) -> None:
    monkeypatch.setenv("ONE_KEY", "sk-one-0123456789")
    monkeypatch.setenv("TWO_KEY", "sk-two-9876543210")
    route = '[gateway.routes.best]\ntargets = ["one/m", "two/m"]\n'
    with two(tmp_path, [[refused(401, "no")]], [[reply(ANSWER)], healthy()], more=route) as (registry, _, _):
        options: Any = {} if fallback is None else {"fallback": fallback}
        with openai.OpenAI(
            api_key="any text", http_client=http_client(registry=registry, retry=Retry(attempts=1), **options)
        ) as sdk:
            whole = sdk.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}])
            assert (whole.choices[0].message.content, whole.model) == (ANSWER, "two/m")
            chunks = list(
                sdk.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}], stream=True)
            )
            assert {chunk.model for chunk in chunks} == {"two/m"}
            assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ANSWER
