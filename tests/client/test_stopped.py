"""A program that was stopped for longer than a timeout (Ctrl-Z, a paused container) reads what came meanwhile."""

import importlib.util
import signal
import subprocess
import sys
import threading
import time

import pytest

from .peer import DONE, Peer, Wait, delta, head, piece

IDLE = 0.4
PROGRAM = f"""
import asyncio, sys
import cnllm

async def main():
    model = cnllm.Registry.load().resolve("openai-compatible/m", base_url=sys.argv[1])
    options = {{"api_key": "sk-0123456789abcdef", "retry": cnllm.Retry(attempts=1)}}
    async with cnllm.AsyncClient(**options) as client:
        timeout = cnllm.Timeouts(idle={IDLE}, progress=60)
        async with client.stream(model, "hi", timeout=timeout) as stream:
            async for event in stream:
                if type(event) is cnllm.TextDelta:
                    print(event.text, flush=True)
        print(stream.reply.finish)

if sys.argv[2] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="programs cannot be stopped here")
def test_what_came_meanwhile_is_read() -> None:
    for loop in ("asyncio", "uvloop"):
        if importlib.util.find_spec(loop) is not None:
            read_after_a_stop(loop)


def read_after_a_stop(loop: str) -> None:
    stopped = threading.Event()
    rest = piece(delta(" sky")) + piece(delta(finish="stop")) + piece(DONE) + b"0\r\n\r\n"
    with Peer([head(**{"transfer-encoding": "chunked"}) + piece(delta("The")), Wait(stopped), rest]) as peer:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, peer.url, loop], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "The\n"
        process.send_signal(signal.SIGSTOP)
        stopped.set()
        time.sleep(3 * IDLE)  # the time for which it is stopped
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=30)
    assert (out, process.returncode) == (" sky\nstop\n", 0), (loop, err)
