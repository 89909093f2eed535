"""Define `cnllm simulate`: every endpoint of the registry, simulated on this machine."""

from __future__ import annotations

import os
import threading

import click

from cnllm.cli import option_types, options
from cnllm.cli.option_types import flag, repeated
from cnllm.cli.output import errors, stdio, stdout

__all__ = ["simulate"]


@click.command(cls=options.Command)
@option_types.port(metavar="N", help="Where to listen; 0: any free port.")
@option_types.number("--pace", metavar="S", default=0.0, help="Seconds between the pieces of a stream.")
@flag("--strict", help="Refuse everything that the flags deny, with a general error if needed.")
@click.option(
    "--unfaithful",
    metavar="FAULTS",
    default="",
    help="Answer as a host with faults: lost-calls=20, leaked-calls=20, ignored-schemas, repetition, truncation=40, "
    "forgotten-thoughts, slow=0.2; several with ;.",
)
@flag("--neutral", help="Hide providers and models in paths, names and errors.")
@repeated("--model", "models", metavar="M", help="With --neutral: serve M alone; may be repeated.")
def simulate(port: int, pace: float, *, strict: bool, neutral: bool, models: tuple[str, ...], unfaithful: str) -> None:
    """Serve made-up answers on this machine, without key or network.

    Every provider of the registry is at /PROVIDER and answers in its own dialect, errors and batches included.
    cnllm prints the address when the server is ready. Ctrl-C ends it.

    With --neutral the models are model-1, model-2, … at /v1/chat/completions, /v1/messages, /v1/responses and
    /v1beta/models/MODEL:generateContent.

    Examples:
      cnllm simulate --port 8642
      cnllm simulate --unfaithful 'lost-calls=20; slow=0.2'
      cnllm simulate --strict --neutral --model zai/glm-4.7
      cnllm call --model zai/glm-4.7 --base-url http://127.0.0.1:8642/zai --key-env SOME_KEY 'Say hi'
    """
    if models and not neutral:
        raise errors.UsageError("--model without --neutral", "add --neutral, or leave --model out")
    from cnllm.registry import Registry
    from cnllm.simulator.server import running
    from cnllm.simulator.unfaithful import read_host_faults

    with errors.correcting("--unfaithful: ", "cnllm simulate --help lists them"):
        read_host_faults(unfaithful)

    registry = Registry.load()
    names = [registry.resolve(model).name for model in models]
    try:
        with running(
            registry, port=port, pace=pace, strict=strict, neutral=neutral, models=names, unfaithful=unfaithful
        ) as server:
            stdout.print_line(server.url)
            if neutral:
                stdio.print_line(f"simulated: {server.url}/v1 answers for every model; Ctrl-C ends it")
            else:
                stdio.print_line(f"simulated: {server.url}/PROVIDER answers for every provider; Ctrl-C ends it")
            threading.Event().wait()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error  # without the address, which asyncio adds
        raise errors.UsageError(f"cannot listen on port {port}: {reason}", "choose another: --port N") from error
