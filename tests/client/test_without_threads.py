"""A process that can start no more threads, because it has too many or is about to end, still sends its requests."""

import subprocess
import sys

import pytest
from cases import each

from .peer import Peer, answer, call_delta, delta, reply, stream, whole

START = """
import asyncio, sys, threading
import cnllm

def tell(city: str) -> str:
    "Tell the weather."
    return f"sunny in {city}"

async def tell_later(city: str) -> str:
    "Tell the weather."
    return f"sunny in {city}"

model = cnllm.Registry.load().resolve("openai-compatible/m", base_url=sys.argv[1])
threading.stack_size(1 << 45)  # more than there is: no thread can start
try:
    threading.Thread(target=print).start()
except (RuntimeError, MemoryError):
    pass
else:
    sys.exit(77)
options = {"api_key": "sk-0123456789abcdef", "retry": cnllm.Retry(attempts=1)}
"""
CALL = """
with cnllm.Client(**options) as client:
    print(client.call(model, "hi").text)
"""
ASYNC_CALL = """
async def main():
    async with cnllm.AsyncClient(**options) as client:
        try:
            return (await client.call(model, "hi")).text
        finally:
            threading.stack_size(0)  # asyncio itself needs a thread at its end

print(asyncio.run(main()))
"""
RUN = """
with cnllm.Client(**options) as client:
    print(client.run(model, "hi", tools=[{tool}]).reply.text)
"""
RUN_STREAM = """
with cnllm.Client(**options) as client, client.run_stream(model, "hi", tools=[{tool}]) as run:
    print("".join(event.text for event in run if type(event) is cnllm.TextDelta))
"""
ASYNC_RUN = """
async def main():
    async with cnllm.AsyncClient(**options) as client:
        try:
            return (await client.run(model, "hi", tools=[{tool}])).reply.text
        finally:
            threading.stack_size(0)

print(asyncio.run(main()))
"""
MCP = """
with cnllm.Client(**options) as client:
    try:
        client.run(model, "hi", tools=[cnllm.mcp([sys.executable, "-c", "pass"])])
    except cnllm.McpError as error:
        print(error)
"""
ARGUMENTS = '{"city": "Oslo"}'


def said(program: str, peer: Peer) -> str:
    """Run a program that knows the peer by a name, and return what it prints."""
    url = peer.url.replace("127.0.0.1", "localhost")
    command = [sys.executable, "-c", START + program, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 77:
        pytest.skip("threads of any size start here")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_name_of_a_host_is_resolved() -> None:
    for program in (CALL, ASYNC_CALL):
        with Peer([reply()]) as peer:
            assert said(program, peer) == "The sky is blue."


@each("tool", ["tell", "tell_later"])
@each("program", [RUN, RUN_STREAM, ASYNC_RUN])
def test_a_run_executes_its_tools(program: str, tool: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": tool, "arguments": ARGUMENTS}}
    if program is not RUN_STREAM:
        scripts = [answer(200, whole(None, finish="tool_calls", tool_calls=[call])), reply()]
    else:
        asked = call_delta(0, ARGUMENTS, id="c1", name=tool), delta(finish="tool_calls")
        scripts = [stream(*asked), stream(delta("The sky is blue."), delta(finish="stop"))]
    with Peer(*([script] for script in scripts)) as peer:
        assert said(program.format(tool=tool), peer) == "The sky is blue."
    assert "sunny in Oslo" in peer.received[1].body.decode()


def test_a_server_of_tools_is_an_error_that_says_so() -> None:
    pytest.importorskip("mcp")
    with Peer([reply()]) as peer:
        assert "was not started" in said(MCP, peer)
    assert peer.received == []
