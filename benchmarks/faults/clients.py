"""One client in its own process: `python -m benchmarks.faults.clients NAME`.

Each line on stdin is a base URL, answered by one line of JSON: the exception, or what the result holds.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.worker import peak

WAIT = 2.0  # seconds, for every wait that can be set
MOST = 32_000_000  # bytes of a reply, where that can be set
KEY = "sk-bench-0123456789"
QUESTION = "How is the weather?"
PROMPT: list[Any] = [{"role": "user", "content": QUESTION}]
FUNCTIONS: list[dict[str, Any]] = [
    {
        "name": name,
        "description": "Looks it up.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        },
    }
    for name, properties in (
        ("search", {"q": {"type": "string"}, "days": {"type": "integer"}}),
        ("now", {"city": {"type": "string"}}),
    )
]
TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]

Result = dict[str, Any]
Ask = Callable[[str], Result]


def result(text: str, calls: list[str], unfinished: bool) -> Result:
    """Return a reply: `calls` are arguments to execute, as JSON; `unfinished`: a field says that it is not whole."""
    return {"text": len(text), "calls": calls, "unfinished": unfinished}


def cnllm() -> tuple[Ask, Any]:
    import cnllm

    limits = cnllm.Limits(max_reply_bytes=MOST, max_event_bytes=MOST)
    client = cnllm.Client(retry=cnllm.Retry(attempts=1), timeout=WAIT, limits=limits, api_key=KEY)

    def ask(url: str) -> Result:
        model = client.registry.resolve("openai-compatible/bench", base_url=url)
        with client.stream(model, PROMPT, tools=TOOLS) as stream:
            for _ in stream:
                pass
        reply = stream.reply
        calls = [json.dumps(call.arguments, ensure_ascii=False) for call in reply.tool_calls]
        return result(reply.text, calls, reply.finish in ("cut", "error"))

    return ask, cnllm.CnllmError


def openai() -> tuple[Ask, Any]:
    package: Any = importlib.import_module("openai")

    client = package.OpenAI(api_key=KEY, base_url="http://127.0.0.1:9/v1", timeout=WAIT, max_retries=0)

    def ask(url: str) -> Result:
        with client.with_options(base_url=url).chat.completions.stream(
            model="bench", messages=PROMPT, tools=TOOLS
        ) as stream:
            for _ in stream:
                pass
            choice = stream.get_final_completion().choices[0]
        calls = [call.function.arguments for call in choice.message.tool_calls or ()]
        return result(choice.message.content or "", calls, choice.finish_reason is None)

    return ask, package.OpenAIError


def litellm() -> tuple[Ask, Any]:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    package: Any = importlib.import_module("litellm")
    errors = tuple(kind for name, kind in vars(package.exceptions).items() if name.endswith(("Error", "Timeout")))

    def ask(url: str) -> Result:
        stream = package.completion(
            model="openai/bench",
            api_base=url,
            api_key=KEY,
            messages=PROMPT,
            tools=TOOLS,
            stream=True,
            timeout=WAIT,
            max_retries=0,
            num_retries=0,
        )
        built = package.stream_chunk_builder(list(stream), messages=PROMPT)
        if built is None:
            return result("", [], True)
        choice = built.choices[0]
        calls = [call.function.arguments for call in choice.message.tool_calls or ()]
        return result(choice.message.content or "", calls, choice.finish_reason is None)

    return ask, errors


def pydantic_ai() -> tuple[Ask, Any]:
    direct: Any = importlib.import_module("pydantic_ai.direct")
    package: Any = importlib.import_module("pydantic_ai")
    models: Any = importlib.import_module("pydantic_ai.models")
    chat: Any = importlib.import_module("pydantic_ai.models.openai")
    provider: Any = importlib.import_module("pydantic_ai.providers.openai")
    sdk: Any = importlib.import_module("openai")
    tools = [
        package.ToolDefinition(name=f["name"], description=f["description"], parameters_json_schema=f["parameters"])
        for f in FUNCTIONS
    ]

    def ask(url: str) -> Result:
        client = sdk.AsyncOpenAI(api_key=KEY, base_url=url, timeout=WAIT, max_retries=0)
        model = chat.OpenAIChatModel("bench", provider=provider.OpenAIProvider(openai_client=client))
        asked = models.ModelRequestParameters(function_tools=tools)
        request = [package.ModelRequest.user_text_prompt(QUESTION)]
        with direct.model_request_stream_sync(
            model, request, model_request_parameters=asked, model_settings={"timeout": WAIT}
        ) as stream:
            for _ in stream:
                pass
            response = stream.response
        calls = [call.args_as_json_str() for call in response.tool_calls]
        state = getattr(response, "state", "complete")
        return result(response.text or "", calls, response.finish_reason is None or state != "complete")

    own: Any = importlib.import_module("pydantic_ai.exceptions")
    return ask, (own.AgentRunError, own.UserError)


def any_llm() -> tuple[Ask, Any]:
    os.environ["ANY_LLM_UNIFIED_EXCEPTIONS"] = "1"  # otherwise they are those of the SDK beneath
    package: Any = importlib.import_module("any_llm")
    errors: Any = importlib.import_module("any_llm.exceptions")

    def ask(url: str) -> Result:
        chunks = package.completion(
            model="bench",
            provider="openai",
            api_base=url,
            api_key=KEY,
            messages=PROMPT,
            tools=TOOLS,
            stream=True,
            timeout=WAIT,
            client_args={"max_retries": 0, "timeout": WAIT},
        )
        text, finish = "", None
        calls: dict[int, str] = {}
        for chunk in chunks:
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
                for call in choice.delta.tool_calls or ():
                    said = call.function.arguments if call.function else None
                    calls[call.index] = calls.get(call.index, "") + (said or "")
        return result(text, list(calls.values()), finish is None)

    return ask, errors.AnyLLMError


CLIENTS: dict[str, Callable[[], tuple[Ask, Any]]] = {
    "cnllm": cnllm,
    "cnllm[fast]": cnllm,
    "openai": openai,
    "litellm": litellm,
    "pydantic-ai": pydantic_ai,
    "any-llm": any_llm,
}


def main() -> None:
    ask, own = CLIENTS[sys.argv[1]]()
    out, sys.stdout = sys.stdout, sys.stderr  # some print
    print("{}", file=out, flush=True)
    for line in sys.stdin:
        before = peak(forget=True)
        try:
            said = ask(line.strip())
        except own as error:
            said = {"error": type(error).__name__}
        except Exception as error:  # noqa: BLE001 (it is what is looked for)
            said = {"untyped": f"{type(error).__module__}.{type(error).__name__}"}
        with contextlib.suppress(OSError):
            said["grown"] = peak() - before
        print(json.dumps(said), file=out, flush=True)


if __name__ == "__main__":
    main()
