"""One streamed call as a program of its own, by every peer: what a user's first script pays. BASE is the stub."""

CLICK = "import click\n@click.command()\ndef main():\n    click.echo('hello')\nmain()\n"
PROVIDER = """[providers.bench]
title = "Bench"
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
keys = ["BENCH_KEY"]
"""
MODEL = """[models."bench/model-{number}"]
limits = {{ context = 131072, output = 8192 }}
price = {{ currency = "USD", input = 0.5, output = 2 }}
"""
BY_HAND = """import json, os, httpx
body = {"model": "x", "messages": [{"role": "user", "content": "hi"}], "stream": True}
headers = {"authorization": "Bearer " + os.environ["BENCH_KEY"]}
with httpx.stream("POST", "BASE/chat/completions", json=body, headers=headers) as answer:
    for line in answer.iter_lines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                print(choice["delta"].get("content") or "", end="", flush=True)
"""
BY_STDLIB = """import http.client, json, os, urllib.parse
url = urllib.parse.urlsplit("BASE/chat/completions")
body = {"model": "x", "messages": [{"role": "user", "content": "hi"}], "stream": True}
headers = {"authorization": "Bearer " + os.environ["BENCH_KEY"], "content-type": "application/json"}
connection = http.client.HTTPConnection(url.netloc)
connection.request("POST", url.path, json.dumps(body), headers)
for line in connection.getresponse():
    if line.startswith(b"data: {"):
        for choice in json.loads(line[6:])["choices"]:
            print(choice["delta"].get("content") or "", end="", flush=True)
"""
BY_OPENAI = """import os, openai
client = openai.OpenAI(api_key=os.environ["BENCH_KEY"], base_url="BASE")
body = {"model": "x", "messages": [{"role": "user", "content": "hi"}], "stream": True}
for chunk in client.chat.completions.create(**body):
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)
"""
BY_LITELLM = """import os, litellm
body = {"model": "deepseek/x", "messages": [{"role": "user", "content": "hi"}], "stream": True}
for chunk in litellm.completion(**body, api_base="BASE", api_key=os.environ["BENCH_KEY"]):
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)
"""
BY_ANY_LLM = """import os, any_llm
client = any_llm.AnyLLM.create("deepseek", api_key=os.environ["BENCH_KEY"], api_base="BASE")
for chunk in client.completion(model="x", messages=[{"role": "user", "content": "hi"}], stream=True):
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)
"""
BY_PYDANTIC_AI = """import os
from pydantic_ai.direct import model_request_stream_sync
from pydantic_ai.messages import ModelRequest, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
model = OpenAIChatModel("x", provider=OpenAIProvider(base_url="BASE", api_key=os.environ["BENCH_KEY"]))
with model_request_stream_sync(model, [ModelRequest.user_text_prompt("hi")]) as events:
    for event in events:
        if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
            print(event.part.content, end="", flush=True)
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            print(event.delta.content_delta, end="", flush=True)
"""
