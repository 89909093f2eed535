"""Define `cnllm launch`: a client of another vendor, run on any model."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from cnllm.cli import client_factory, options, turn_log
from cnllm.cli.option_types import flag
from cnllm.cli.output import errors, stdio, stdout
from cnllm.cli.output.suggestion import option_hint, suggest
from cnllm.config import paths
from cnllm.gateway.tokens import Keyring

if TYPE_CHECKING:
    from cnllm.launch.setup import KnownClient, Setup
    from cnllm.registry import Registry
    from cnllm.registry.model import Model

__all__ = ["launch"]

_IDENTITY = "launch"
_STORE = "sqlite:"


class _LaunchCommand(options.Command):
    """A command whose error for an unknown option says where the client's own options stand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            names = [name for param in self.get_params(ctx) for name in param.opts]
            hint = option_hint(ctx.command_path, error.option_name, names)
            raise errors.UsageError(
                f"cnllm launch has no option {error.option_name}",
                f"{hint} " * (hint is not None) + "options of the client stand after --",
            ) from error


@click.command(cls=_LaunchCommand)
@click.argument("client")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@options.model()
@flag("--simulate", help="Answer from the built-in simulator: no key, no network.")
@flag("--print", "as_script", help="Print a shell script that does the same, and run nothing.")
def launch(client: str, args: tuple[str, ...], model: str, *, simulate: bool, as_script: bool) -> None:
    """Run a coding agent, or any other client, on any model.

    Known are claude, codex, gemini, opencode, aider and llm; any other command gets the variables of vendors' SDKs.

    cnllm starts a gateway on a free port of this machine, with a new key, and the client with what it needs to find
    it. The gateway ends with the client. Your configuration of the client stays as it is. Arguments after -- are the
    client's own.

    Examples:
      cnllm launch claude --model glm-4.7
      cnllm launch claude --model glm-4.7 --simulate -- -p 'List the files of this folder'
      cnllm launch codex --model deepseek-flash --print
      cnllm launch ./my_agent.py --model kimi-k3
    """
    from cnllm.gateway.server import address_url, listen, run, running
    from cnllm.launch.setup import ANY, Values, build_setup, find_client, write_files
    from cnllm.registry import Registry
    from cnllm.registry.flags import LimitFlags

    name, entry = find_client(client)
    program = shutil.which(client)
    if program is None and not as_script:
        raise _not_installed(client, name, entry)
    registry = Registry.load()
    resolved = _resolve(registry, model, needs_key=not (simulate or as_script))
    limits = resolved.flags.limits if resolved is not None else LimitFlags()
    key = f"sk-cnllm-{secrets.token_urlsafe(24)}"
    folder = paths.data_dir() / "launch" / name
    with listen("127.0.0.1", 0) as listener:
        url = address_url(listener)
        values = Values(
            url=url,
            key=key,
            model=model,
            folder=str(folder),
            context=limits.context,
            output=limits.output,
        )
        setup = build_setup(entry, client, args, values, os.environ)
        if as_script:
            stdout.print_line(_script(setup, entry.models, model, key, listener.getsockname()[1], simulate=simulate))
            return
        assert program is not None
        from cnllm.gateway.asgi import Gateway
        from cnllm.launch.runner import GatewayServer, run_client
        from cnllm.store.call_log import CallLog

        gateway = Gateway(
            registry,
            simulate=simulate,
            models=dict.fromkeys(entry.models, model),
            keys=[key],
            store=_STORE,
            token_keys=Keyring.load(),
            identity=_IDENTITY,
            call_log=CallLog(logger="cnllm.gateway") if turn_log.logs_calls(None) else None,
        )
        write_files(folder, setup)
        source = "the simulator" if simulate else model
        title = client if name == ANY else entry.title
        stdio.print_line(f"{title}: {source} answers at {url}; the gateway's log is {folder / 'gateway.log'}")
        if entry.writes is not None:
            stdio.print_line(f"{entry.title} writes files of its own: {entry.writes}")
        environment = setup.environment(os.environ)
        server = GatewayServer(
            listener,
            lambda on_ready: run(gateway, lambda: listener, lambda _: on_ready()),
            lambda: running(gateway, listener=listener),
        )
        on_end = None
        if entry.resume is not None and all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
            on_end = _resume_advice(client, model, entry.resume, simulate=simulate)
        sys.exit(run_client(server, setup, program, environment, folder / "gateway.log", on_end))


def _resume_advice(client: str, model: str, resume: str, *, simulate: bool) -> Callable[[], None]:
    """Return what prints the command that goes on with a session: the one that a client prints has no gateway."""
    command = shlex.join(["cnllm", "launch", client, "--model", model, *(["--simulate"] if simulate else [])])

    def advise() -> None:
        stdio.print_line(f"cnllm: to go on with this session:\n  {command} -- {resume}")

    return advise


def _not_installed(client: str, name: str, entry: KnownClient) -> errors.UsageError:
    """Return the error for a client that is not on this machine: how to install it, or which clients are known."""
    from cnllm.launch.setup import ANY, clients

    hint = f"{entry.title}: {entry.install}"
    if name == ANY:
        known = [known for known in clients() if known != ANY]
        hint = suggest(client, known, f"known clients: {', '.join(known)}; of any other, give the command or its path")
    return errors.UsageError(f"{client} is not installed", hint)


def _resolve(registry: Registry, name: str, *, needs_key: bool) -> Model | None:
    """Return the model of a name; None for a tier. Raises `UnknownModel`, and `KeyMissing` before anything starts."""
    from cnllm.registry import tiers

    if name.startswith(tiers.PREFIX):
        return None
    model = client_factory.choose_site(registry, name, offline=not needs_key)
    client_factory.print_site(model)
    if needs_key:
        from cnllm.client.credentials import key_for
        from cnllm.engine import build_request

        key_for(build_request(model, "hi"), registry)
    return model


def _script(setup: Setup, names: list[str], model: str, key: str, port: int, *, simulate: bool) -> str:
    """Return the shell script that does the same."""
    from cnllm.launch.script import shell_script

    serve = ["cnllm", "serve", "--port", str(port), "--store", _STORE, "--json"]
    for name in names:
        serve += ["--map", f"{name}={model}"]
    return shell_script(setup, [*serve, "--simulate"] if simulate else serve, key)
