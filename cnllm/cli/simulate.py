"""`cnllm simulate`: every endpoint of the registry, made up on this machine."""

from __future__ import annotations

import threading

import click

from cnllm.cli import errors, options, render, streams

__all__ = ["simulate"]

EXAMPLES = options.examples(
    "cnllm simulate --port 8642",
    "cnllm call --model zai/glm-4.7 --base-url http://127.0.0.1:8642/zai --key-env SOME_KEY 'Say hi'",
)


@click.command(cls=options.Command, epilog=EXAMPLES)
@click.option(
    "--port", metavar="N", type=click.IntRange(0, 65535), default=0, help="Where to listen; 0: any free port."
)
@click.option(
    "--pace",
    metavar="S",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Seconds between the pieces of a stream.",
)
def simulate(port: int, pace: float) -> None:
    """Serve made-up answers on this machine, without key or network.

    Every provider of the registry is at /PROVIDER and answers in its own dialect, refusals included. The
    address is printed once it can be called. Ctrl-C ends it.
    """
    from cnllm.registry import Registry
    from cnllm.simulator.server import running

    registry = Registry.load()
    try:
        with running(registry, port=port, pace=pace) as server:
            render.emit(server.url)
            streams.say(f"simulated: {server.url}/PROVIDER answers for every provider; Ctrl-C ends it")
            threading.Event().wait()
    except OSError as error:
        raise errors.Wrong(f"cannot listen on port {port}: {error.strerror}", "choose another: --port N") from error
