"""What the clients for SDKs do where no model answers in full, and what they tell the program."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from google import genai
from google.genai import errors, types

import cnllm
from cnllm import Retry
from cnllm.errors import CnllmError
from cnllm.gateway.tokens import ProcessKeys
from cnllm.sdk.transport import required_families

from .support import KEY, AsyncEndpoint, AsyncSim, Endpoint, Sim, chunk, no_network, over, registry, simulated

HI: Any = [{"role": "user", "content": "Hi"}]
FAST = Retry(attempts=3, base=0)


@pytest.mark.parametrize("models", [3, {"gpt-*": 3}, {3: "glm-4.7"}])
def test_wrong_names_of_models_are_named(models: Any) -> None:
    for make in (cnllm.sdk.http_client, cnllm.sdk.async_http_client):
        with pytest.raises(TypeError, match="models"):
            make(simulate=True, models=models)


def gemini(http_client: Any) -> genai.Client:
    return genai.Client(api_key=KEY, http_options=types.HttpOptions(httpx_client=http_client))


def calls(http_client: Any, *, stream: bool) -> dict[str, Callable[[], Any]]:
    """One call of each SDK and protocol, read to its end."""
    sdk, claude = (
        openai.OpenAI(http_client=http_client, api_key=KEY),
        anthropic.Anthropic(http_client=http_client, api_key=KEY),
    )
    if not stream:
        return {
            "chat": lambda: sdk.chat.completions.create(model="glm-4.7", messages=HI),
            "responses": lambda: sdk.responses.create(model="glm-4.7", input="Hi"),
            "messages": lambda: claude.messages.create(model="glm-4.7", max_tokens=99, messages=HI),
            "gemini": lambda: gemini(http_client).models.generate_content(model="glm-4.7", contents="Hi"),
        }
    return {
        "chat": lambda: list(sdk.chat.completions.create(model="glm-4.7", messages=HI, stream=True)),
        "responses": lambda: list(sdk.responses.create(model="glm-4.7", input="Hi", stream=True)),
        "messages": lambda: list(claude.messages.create(model="glm-4.7", max_tokens=99, messages=HI, stream=True)),
        "gemini": lambda: list(gemini(http_client).models.generate_content_stream(model="glm-4.7", contents="Hi")),
    }


STATUS = (openai.APIStatusError, anthropic.APIStatusError, errors.APIError)


def status_of(error: Any) -> int:
    return int(getattr(error, "status_code", None) or error.code)


def test_errors_are_the_sdks_own_and_retries_are_not_multiplied() -> None:
    body = b'{"error": {"message": "Something is odd."}}'
    for status, raised, attempts in ((429, 429, 3), (400, 400, 1), (401, 502, 1), (500, None, 3)):
        for stream in (False, True):
            endpoint = Endpoint(body, status=status, headers={"retry-after": "0"})
            for name, call in calls(over(endpoint, retry=FAST), stream=stream).items():
                endpoint.plans.clear()
                with pytest.raises(STATUS) as caught:
                    call()
                assert len(endpoint.plans) == attempts, (name, status)
                assert raised is None or status_of(caught.value) == raised, (name, status)
                assert status_of(caught.value) < 600
                assert "Something is odd." in str(caught.value)
                assert "sk-of-the-provider" not in str(caught.value)
    endpoint = Endpoint(body, status=429, headers={"retry-after": "7"})
    with pytest.raises(openai.RateLimitError) as limited:
        openai.OpenAI(http_client=over(endpoint, retry=Retry(cap=1)), api_key=KEY).responses.create(
            model="glm-4.7", input="Hi"
        )
    assert limited.value.response.headers["retry-after"] == "7"
    assert limited.value.response.headers["x-should-retry"] == "false"
    assert len(endpoint.plans) == 1


def test_an_sdk_may_repeat_what_cnllm_is_told_not_to_repeat() -> None:
    endpoint = Endpoint(b'{"error": {"message": "busy"}}', status=503, headers={"retry-after": "0"})
    sdk = openai.OpenAI(http_client=over(endpoint, retry=Retry(attempts=1)), api_key=KEY, max_retries=2)
    with pytest.raises(openai.InternalServerError) as caught:
        sdk.chat.completions.create(model="glm-4.7", messages=HI)
    assert len(endpoint.plans) == 3
    assert "x-should-retry" not in caught.value.response.headers


def test_a_cut_stream_is_an_error_everywhere() -> None:
    endpoint = Endpoint(chunk("Hel"), chunk("lo"))
    http_client = over(endpoint)
    for name, call in calls(http_client, stream=True).items():
        with pytest.raises((openai.APIError, *STATUS)) as caught:
            call()
        assert "before the reply was complete" in str(caught.value), name
        assert ".reply" not in str(caught.value)
    # A program that overlooks the failure in the stream is stopped by the end of the stream.
    for family in (httpx2, httpx):
        body = {"model": "glm-4.7", "messages": HI, "stream": True}
        family_client = over(endpoint, family=family.__name__)
        with family_client.stream("POST", "http://any/v1/chat/completions", json=body) as response:
            assert response.status_code == 200
            with pytest.raises(family.RemoteProtocolError):
                response.read()

    async def run() -> None:
        sdk = openai.AsyncOpenAI(http_client=over(AsyncEndpoint(chunk("Hel"))), api_key=KEY)
        with pytest.raises(openai.APIError, match="before the reply"):
            async for _ in await sdk.chat.completions.create(model="glm-4.7", messages=HI, stream=True):
                pass

    asyncio.run(run())


def test_leaving_a_stream_ends_the_call() -> None:
    endpoint = Endpoint(*[chunk("a")] * 50)
    http_client = over(endpoint)
    stream: Any = openai.OpenAI(http_client=http_client, api_key=KEY).chat.completions.create(
        model="glm-4.7", messages=HI, stream=True
    )
    next(stream)
    stream.close()
    assert endpoint.closed == 1
    claude = anthropic.Anthropic(http_client=http_client, api_key=KEY)
    with claude.messages.stream(model="openrouter/z-ai/glm-5.2", max_tokens=99, messages=HI) as message:
        next(iter(message))
    assert endpoint.closed == 2

    async def run() -> None:
        waits = asyncio.Event()
        endpoint = AsyncEndpoint(chunk("a"), waits)
        sdk = openai.AsyncOpenAI(http_client=over(endpoint), api_key=KEY)

        async def read(started: asyncio.Event, streams: list[Any]) -> None:
            streams.append(await sdk.chat.completions.create(model="glm-4.7", messages=HI, stream=True))
            async for piece in streams[0]:
                if piece.choices and piece.choices[0].delta.content:
                    started.set()

        for count, leave in enumerate(("cancel", "close"), 1):
            started, streams = asyncio.Event(), list[Any]()
            task = asyncio.create_task(read(started, streams))
            await started.wait()
            if leave == "cancel":
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:  # from another task, while the first one waits for the model
                await streams[0].close()
                with pytest.raises(openai.APIConnectionError):
                    await task
            assert endpoint.closed == count, leave
        waiting = AsyncEndpoint(waits)  # before the first piece
        sdk = openai.AsyncOpenAI(http_client=over(waiting), api_key=KEY)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sdk.chat.completions.create(model="glm-4.7", messages=HI), 0.05)
        assert waiting.closed == 1

    asyncio.run(run())


def test_a_stream_may_be_closed_from_another_thread() -> None:
    released, begun = threading.Event(), threading.Event()
    endpoint = Endpoint(chunk("a"), released, chunk("b"), chunk("", "stop"))
    stream: Any = openai.OpenAI(http_client=over(endpoint), api_key=KEY).chat.completions.create(
        model="glm-4.7", messages=HI, stream=True
    )

    def read() -> str:
        text = ""
        with pytest.raises(openai.APIError):  # noqa: PT012
            for piece in stream:
                text += piece.choices[0].delta.content or ""
                if text:
                    begun.set()
        return text

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        assert begun.wait(20)
        stream.close()
        released.set()
        assert reading.result(20) == "a"
    assert endpoint.closed == 1


def test_timeouts_of_the_sdk_replace_those_of_cnllm() -> None:
    endpoint = Endpoint(chunk("a"), chunk("", "stop"), b"data: [DONE]\n\n")
    http_client = over(endpoint, timeout=33)
    sdk = openai.OpenAI(http_client=http_client, api_key=KEY)
    list(sdk.chat.completions.create(model="glm-4.7", messages=HI, stream=True))
    list(sdk.with_options(timeout=7).chat.completions.create(model="glm-4.7", messages=HI, stream=True))
    timeout = httpx2.Timeout(9, connect=2)
    list(sdk.chat.completions.create(model="glm-4.7", messages=HI, stream=True, timeout=timeout))
    options = types.HttpOptions(httpx_client=http_client, timeout=4000)
    list(genai.Client(api_key=KEY, http_options=options).models.generate_content_stream(model="glm-4.7", contents="a"))
    found = [(plan.timeouts.connect, plan.timeouts.first_byte, plan.timeouts.idle) for plan in endpoint.plans]
    assert found == [(10, 33, 33), (7, 7, 7), (2, 9, 9), (4, 4, 4)]


def test_only_the_key_of_the_provider_goes_out() -> None:
    for name, call in calls(over(endpoint := Endpoint(b"{}", status=400)), stream=False).items():
        with pytest.raises(STATUS):
            call()
        plan = endpoint.plans[-1]
        assert KEY not in repr((plan.headers, plan.content)), name
        assert "sk-of-the-provider" in repr(plan.headers)
    missing = cnllm.sdk.http_client(registry(), transport=Endpoint())
    with pytest.raises(openai.InternalServerError, match="ZAI_API_KEY") as caught:
        openai.OpenAI(http_client=missing, api_key=KEY).chat.completions.create(model="glm-4.7", messages=HI)
    assert KEY not in str(caught.value)


def test_any_base_url_is_fine_and_what_is_not_served_says_so() -> None:
    with no_network():
        http_client = simulated()
        for base in ("https://api.example.com/v1", "https://x.example/api/paas/v4", "http://localhost:1", None):
            sdk = openai.OpenAI(http_client=http_client, api_key=KEY, base_url=base)
            assert sdk.chat.completions.create(model="glm-4.7", messages=HI).choices
            assert sdk.models.retrieve("zai/glm-4.7").id == "zai/glm-4.7"
        azure = openai.AzureOpenAI(
            http_client=http_client, api_key=KEY, azure_endpoint="https://a.example", api_version="2024-10-21"
        )
        assert azure.chat.completions.create(model="glm-4.7", messages=HI).choices
        sdk = openai.OpenAI(http_client=http_client, api_key=KEY)
        for call in (
            lambda: sdk.embeddings.create(model="glm-4.7", input="a"),
            lambda: sdk.images.generate(prompt="a"),
            lambda: sdk.audio.speech.create(input="a", model="b", voice="c"),
            lambda: sdk.files.create(file=b"a", purpose="batch"),
            lambda: sdk.completions.create(model="glm-4.7", prompt="a"),
            lambda: sdk.models.delete("glm-4.7"),
            lambda: sdk.chat.completions.messages.list("chatcmpl-1"),
        ):
            with pytest.raises(openai.NotFoundError, match="does not serve"):
                call()
        assert http_client.post("http://any/v1/threads/t/messages", json={"content": "Hi"}).status_code == 404


def test_bad_requests_name_the_place_and_call_no_model() -> None:
    sim = Sim()
    http_client = simulated(sim)
    sdk = openai.OpenAI(http_client=http_client, api_key=KEY)
    wrong: Any = [{"role": "user", "content": 7}]
    with pytest.raises(openai.BadRequestError, match="messages"):
        sdk.chat.completions.create(model="glm-4.7", messages=wrong)
    with pytest.raises(openai.NotFoundError, match="no model is called") as caught:
        sdk.chat.completions.create(model="no-such-model", messages=HI)
    assert caught.value.code == "model_not_found"
    with pytest.raises(anthropic.BadRequestError):
        anthropic.Anthropic(http_client=http_client, api_key=KEY).messages.create(
            model="glm-4.7", max_tokens=9, messages=[]
        )
    odd: Any = {"tools": [{"type": "function"}]}, {"tool_choice": 7}, {"tools": "all"}
    for options in odd:
        with pytest.raises(openai.BadRequestError, match="tool"):
            sdk.chat.completions.create(model="glm-4.7", messages=HI, **options)
    assert http_client.post("http://any/v1/responses", content=b"{").status_code == 400
    assert sim.plans == []


BROKEN: Any = {"type": "object", "properties": 7}  # no JSON Schema
NOT_A_NUMBER = float("nan")


def wrong_calls(chat: Any, claude: Any, models: Any) -> list[tuple[str, type[Exception], Callable[[], Any]]]:
    """Calls with an argument that cnllm's engine refuses, each with words of the error and its class."""
    form: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": BROKEN}}
    text: Any = {"format": {"type": "json_schema", "name": "a", "schema": BROKEN}}
    declared: Any = [{"type": "function", "function": {"name": "f", "parameters": 7}}]
    output: Any = {"format": {"type": "json_schema", "schema": BROKEN}}
    of_openai, of_claude = {"model": "glm-4.7", "messages": HI}, {"model": "glm-4.7", "messages": HI, "max_tokens": 9}
    refused, refused_too = openai.BadRequestError, anthropic.BadRequestError
    json_form = {"response_mime_type": "application/json", "response_json_schema": BROKEN}
    streams = [lambda **more: more, lambda **more: {**more, "stream": True}]
    return [
        *[
            row
            for kind in streams
            for row in (
                (
                    "schema",
                    refused,
                    lambda k=kind: chat.chat.completions.create(**k(**of_openai), response_format=form),
                ),
                ("parameters", refused, lambda k=kind: chat.chat.completions.create(**k(**of_openai), tools=declared)),
                (
                    "timeout",
                    refused,
                    lambda k=kind: chat.chat.completions.create(**k(**of_openai), timeout=NOT_A_NUMBER),
                ),
                ("schema", refused, lambda k=kind: chat.responses.create(**k(model="glm-4.7", input="Hi"), text=text)),
                ("schema", refused_too, lambda k=kind: claude.messages.create(**k(**of_claude), output_config=output)),
                ("timeout", refused_too, lambda k=kind: claude.messages.create(**k(**of_claude), timeout=NOT_A_NUMBER)),
            )
        ],
        *[
            ("schema", errors.ClientError, lambda m=method: m(model="glm-4.7", contents="Hi", config=json_form))
            for method in (models.generate_content, models.generate_content_stream)
        ],
    ]


def assert_refused(error: Any, words: str) -> None:
    """The error is the answer of an endpoint: status 400 in the form of the protocol."""
    assert status_of(error) == 400
    assert words in str(error)
    body = error.details if isinstance(error, errors.APIError) else error.response.json()
    assert body["error"]["message"]


def test_arguments_that_cnllm_refuses_are_errors_of_the_sdk() -> None:
    sim = Sim()
    http_client = simulated(sim)
    chat = openai.OpenAI(http_client=http_client, api_key=KEY)
    claude = anthropic.Anthropic(http_client=http_client, api_key=KEY)
    for words, kind, call in wrong_calls(chat, claude, gemini(http_client).models):
        with pytest.raises(kind) as caught:
            list(call())
        assert_refused(caught.value, words)
    assert sim.plans == []


def test_arguments_that_cnllm_refuses_are_errors_of_the_asynchronous_sdk() -> None:
    async def run() -> None:
        sim = AsyncSim()
        http_client = simulated(sim)
        chat = openai.AsyncOpenAI(http_client=http_client, api_key=KEY)
        claude = anthropic.AsyncAnthropic(http_client=http_client, api_key=KEY)
        google = genai.Client(api_key=KEY, http_options=types.HttpOptions(httpx_async_client=http_client))
        for words, kind, call in wrong_calls(chat, claude, google.aio.models):
            with pytest.raises(kind) as caught:
                async for _ in await call():
                    pass
            assert_refused(caught.value, words)
        assert sim.plans == []

    asyncio.run(run())


def test_numbers_of_a_query_have_any_length() -> None:
    http_client = simulated()
    for header, query in (
        ("x-goog-api-key", "pageSize"),
        ("x-goog-api-key", "pageToken"),
        ("anthropic-version", "limit"),
    ):
        answer = http_client.get(f"http://any/v1beta/models?{query}={'9' * 5000}", headers={header: "1"})
        assert answer.status_code == 200


def test_notes_are_in_the_headers_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="cnllm.sdk")
    for stream in (False, True):
        caplog.clear()
        response = openai.OpenAI(http_client=simulated(), api_key=KEY).chat.completions.with_raw_response.create(
            model="glm-4.7", messages=HI, temperature=1.9, stream=stream
        )
        assert response.headers["x-cnllm-model"] == "zai/glm-4.7"
        assert response.headers["x-cnllm-notes"] == "2; codes=param-clamped,simulated"
        list(response.parse()) if stream else response.parse()
        lines = [record.getMessage() for record in caplog.records if record.name == "cnllm.sdk"]
        assert len(lines) == 2
        assert "zai/glm-4.7: params.temperature: temperature=1.9 → 1 (providers.toml:" in lines[0]
        assert response.headers["x-request-id"] in lines[0]


def test_the_family_is_that_of_the_installed_sdks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(cnllm.sdk.http_client(registry(), simulate=True), httpx2.Client)
    assert isinstance(cnllm.sdk.async_http_client(registry(), simulate=True), httpx2.AsyncClient)
    assert isinstance(cnllm.sdk.http_client(registry(), simulate=True, family="httpx"), httpx.Client)
    wrong: Any = "requests"
    with pytest.raises(ValueError, match="httpx2"):
        cnllm.sdk.http_client(registry(), family=wrong)
    requirements: dict[str, list[str]] = {}

    def requires(name: str) -> list[str]:
        if name not in requirements:
            raise PackageNotFoundError(name)
        return requirements[name]

    def chosen(**packages: str) -> Any:
        requirements.clear()
        requirements.update({name.replace("_", "-"): [text, "anyio"] for name, text in packages.items()})
        required_families.cache_clear()
        return type(cnllm.sdk.http_client(registry(), simulate=True))

    monkeypatch.setattr("cnllm.sdk.transport.metadata.requires", requires)
    try:
        assert chosen(openai="httpx[http2]<1,>=0.23") is httpx.Client
        assert chosen(openai="httpx<1", groq="httpx2>=2") is httpx.Client  # openai is imported, groq is not
        assert chosen(openai="httpx<1", anthropic="httpx2<3,>=2.0") is httpx2.Client
        assert chosen(google_genai="httpx>=0.28", openai="httpx2; extra == 'new'") is httpx.Client
        assert chosen(google_genai="httpx2>=2") is httpx2.Client
        assert chosen() is httpx2.Client
    finally:
        required_families.cache_clear()


def test_the_openai_sdk_takes_a_client_of_httpx_too() -> None:
    sdk = openai.OpenAI(http_client=simulated(family="httpx"), api_key=KEY)
    assert sdk.chat.completions.create(model="glm-4.7", messages=HI).choices
    assert len(list(sdk.chat.completions.create(model="glm-4.7", messages=HI, stream=True))) > 3
    with pytest.raises(openai.NotFoundError):
        sdk.embeddings.create(model="glm-4.7", input="a")

    async def run() -> None:
        waiting = openai.AsyncOpenAI(http_client=simulated(AsyncSim(), family="httpx"), api_key=KEY)
        stream = await waiting.chat.completions.create(model="glm-4.7", messages=HI, stream=True)
        assert len([piece async for piece in stream]) > 3

    asyncio.run(run())


def test_threads_and_forked_children_share_a_client() -> None:
    http_client = simulated()
    sdk = openai.OpenAI(http_client=http_client, api_key=KEY)

    def ask(number: int) -> str:
        return str(sdk.responses.create(model="glm-4.7", input=f"No. {number}").output_text)

    with ThreadPoolExecutor(8) as pool:
        assert all(f"No. {n}" in text for n, text in enumerate(pool.map(ask, range(40))))
    if not hasattr(os, "fork"):
        return
    script = """
import os, cnllm, openai
sdk = openai.OpenAI(http_client=cnllm.sdk.http_client(simulate=True), api_key="x")
first = sdk.responses.create(model="glm-4.7", input="Hi")
child = os.fork()
second = sdk.responses.create(model="glm-4.7", input="And?", previous_response_id=first.id)
assert "Simulated" in second.output_text
if child == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_tokens_without_cryptography_are_signed_by_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = ProcessKeys(b"k" * 32)
    token = keys.seal("a", b"payload" * 500)
    assert token.startswith("cnllm1.")
    assert keys.open("a", token) == b"payload" * 500
    for other, forged in (("b", token), ("a", token[:-4] + "AAAA"), ("a", "cnllm1."), ("a", "cnllm1.é"), ("a", "x")):
        assert keys.open(other, forged) is None
    assert ProcessKeys(b"l" * 32).open("a", token) is None

    def missing(*_: Any) -> Any:
        raise CnllmError("sealed tokens need the package cryptography")

    monkeypatch.setattr("cnllm.gateway.tokens.Keyring.load", missing)
    sim = Sim()
    claude = anthropic.Anthropic(http_client=simulated(sim), api_key=KEY)
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    message = claude.messages.create(model="kimi-k2.6", max_tokens=2000, messages=HI, thinking=thinking)
    block: Any = message.content[0]
    assert block.signature.startswith("cnllm1.")
    assert not list(tmp_path.rglob("serve.keys"))


def test_closing_the_client_closes_what_it_opened() -> None:
    http_client = simulated()
    sdk = openai.OpenAI(http_client=http_client, api_key=KEY)
    first = sdk.responses.create(model="glm-4.7", input="Hi")
    sdk.close()
    assert http_client.is_closed
    again = openai.OpenAI(http_client=simulated(), api_key=KEY)  # the memory is the process's
    assert again.responses.retrieve(first.id).id == first.id
