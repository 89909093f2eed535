"""Define `cnllm serve`: a gateway between clients of any protocol and every model."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import option_types, options, turn_log
from cnllm.cli.commands.serve_keys import file_key
from cnllm.cli.option_types import file, flag, repeated
from cnllm.cli.output import errors, stdio, stdout
from cnllm.config.settings import check_settings, read_secret
from cnllm.errors import CnllmError
from cnllm.gateway.access import LOOPBACK, digest, key_fault, url_host
from cnllm.gateway.bounds import Bounds, Clients
from cnllm.gateway.monitoring.recent import Recent
from cnllm.gateway.tokens import Keyring
from cnllm.registry.sites import unsure_sites
from cnllm.system.files import create_private_file, read_bounded
from cnllm.types.checks import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from socket import socket

    from cnllm.gateway.asgi import Gateway
    from cnllm.gateway.configuration import GatewayFiles
    from cnllm.gateway.limits.book import KeyBook
    from cnllm.gateway.limits.keys import KeyRecord

__all__ = ["serve"]

_seconds_option = partial(
    click.option, metavar="S", type=option_types.NumberRange(min=0, min_open=True, max=7 * 86_400)
)
_VARIABLE = "CNLLM_SERVE_KEY"
_ADMIN = "CNLLM_ADMIN_KEY"
_KEY_HINT = "write letters, digits and signs without blanks"

_COMMANDS = {
    "keys": "cnllm.cli.commands.serve_keys:keys",
    "teams": "cnllm.cli.commands.serve_keys:teams",
    "top": "cnllm.cli.commands.serve_top:top",
}
_TIMEOUTS = ("head", "body", "idle", "write")


HELP = options.Help(
    "--host --port --key --keys-file --map --store --workers --simulate --ui --json",
    {
        "Address and proxies": "--host --port --public --public-url --trusted-proxy",
        "Keys of clients": "--key --keys-file --no-key --admin-key",
        "Models and state": "--map --simulate --store --workers",
        "Limits of a process": "--head-timeout --body-timeout --idle-timeout --write-timeout "
        "--max-connections --max-requests --max-held",
        "Report and logs": "--json --log --log-calls --ui --no-metrics --otel",
    },
)


@click.group(
    cls=options.Group, lazy=_COMMANDS, invoke_without_command=True, subcommand_metavar="[COMMAND]", layout=HELP
)
@click.option("--host", metavar="H", default="127.0.0.1", help="The address to listen on. Default: this machine alone.")
@option_types.port(metavar="P", help="Where to listen; 0: any free port.")
@click.option("--key", metavar="K", help=f"The key that clients must send. Default: {_VARIABLE}, else a new one.")
@file("--keys-file", type=click.Path(dir_okay=False), help="A file with a key on each line.")
@flag("--no-key", help="Let every program on this machine in, without a key.")
@flag("--public", help="Allow an address that other machines can reach.")
@click.option("--public-url", metavar="URL", help="With --public: the address at which browsers reach /ui.")
@repeated(
    "--map",
    "maps",
    metavar="PATTERN=MODEL",
    help="The model for a client's name or pattern; MODEL?protocol=WIRE chooses its wire.",
)
@click.option(
    "--store", metavar="URL", help="Where to keep state: sqlite:PATH, memory:, redis://HOST. Default: a file."
)
@click.option("--workers", metavar="N", type=click.IntRange(1, 256), default=1, help="The number of processes.")
@repeated(
    "--trusted-proxy",
    "proxies",
    metavar="ADDRESS",
    help="A proxy, or a network of them, whose X-Forwarded-For names the client.",
)
@_seconds_option("--head-timeout", help="Seconds for the head of each request. Default: 20.")
@_seconds_option("--body-timeout", help="Seconds for the body of a request. Default: 120.")
@_seconds_option("--idle-timeout", help="Seconds until an idle connection is closed. Default: 75.")
@_seconds_option("--write-timeout", help="Seconds for a client to read its answer. Default: 60.")
@option_types.count("--max-connections", help="The most connections of a process. Default: 4096, or half of its files.")
@option_types.count("--max-requests", help="The most requests of a process at once. Default: 2048.")
@option_types.count("--max-held", metavar="MB", help="The most megabytes of bodies that a process holds. Default: 512.")
@flag("--simulate", help="Answer from the built-in simulator: no key, no network.")
@file("--log", "log", help="Write a JSON line for each request; -: to stderr.")
@click.option(
    "--log-calls/--no-log-calls",
    default=None,
    help="Write what calls cost to the file of cnllm logs, without their words. Default: as cnllm logs says.",
)
@click.option("--admin-key", metavar="K", help=f"The key of /metrics and /ui. Default: {_ADMIN}, else that of --key.")
@flag("--ui", help="Keep the last requests and show them at /ui, with their bodies.")
@flag("--no-metrics", help="Count nothing, and have no /metrics.")
@flag("--otel", help="Make OpenTelemetry spans, for the provider that the process has.")
@flag("--json", "as_json", help="Print url and pid as JSON when the server is ready.")
@click.pass_context
def serve(context: click.Context, /, **params: Any) -> None:
    """Serve every model to clients of four protocols.

    A client gets the printed address as its base URL and the key as its API key, and names any model of the registry.
    The paths are /v1/chat/completions, /v1/responses, /v1/messages and /v1beta/models/MODEL:generateContent. Ctrl-C
    ends the server after the streams that run.

    Examples:
      cnllm serve --port 8641 --key a-key-of-your-choice
      cnllm serve --map 'claude-*=glm-4.7' --map 'gpt-*=deepseek-v4-pro'
      cnllm serve --simulate
      cnllm serve --port 8641 --ui
      cnllm serve keys add team-a --rpm 100 --budget 20 --currency CNY
    """
    if context.invoked_subcommand is not None:
        return
    from cnllm.client.credentials import untrusted_models
    from cnllm.gateway.configuration import Configuration, GatewayFiles
    from cnllm.gateway.limits.book import check_book, open_book
    from cnllm.gateway.server import listen, run, run_workers
    from cnllm.gateway.store import check_store
    from cnllm.registry import Registry

    check_settings()
    _check_words(params)
    host, public, workers, keys_file = params["host"], params["public"], params["workers"], params["keys_file"]
    models = _mapped_models(params["maps"])
    if workers > 1 and params["store"] in ("memory", "memory:"):
        raise errors.UsageError(
            "--store memory: is for one process, and --workers starts several that would not share it",
            "--store sqlite: for one machine, --store redis://HOST for several",
        )
    try:
        Clients(params["proxies"])
    except ValueError as error:
        raise errors.UsageError(
            f"--trusted-proxy {error.args[0].split()[0]}: this is no address and no network",
            "an address or a network: 10.0.0.5, 10.0.0.0/8",
        ) from error
    bounds = _bounds(params)
    _check_reach(params, is_local=is_loopback(host))
    url = params["store"] or "sqlite:"
    with _name_option("--store"):
        key_book = None if params["no_key"] else open_book(url)
        has_keys = check_book(key_book)
    keys, new_key = _client_keys(params["key"], keys_file, no_key=params["no_key"], has_keys=has_keys)
    if params["ui"] and not (params["admin_key"] or read_secret("admin_key") or keys or keys_file):
        raise errors.UsageError("--ui needs a key that opens the page", f"--admin-key K, or set {_ADMIN}")
    _start_log(params["log"])
    logs_calls = turn_log.logs_calls(params["log_calls"])
    with _name_option("--store"):
        check_store(url)
    folder = tempfile.TemporaryDirectory(prefix="cnllm-ui-") if params["ui"] and workers > 1 else None

    def own_book() -> AbstractContextManager[KeyBook | None]:
        """Open the book once more: requests that run go on with theirs when this one is closed."""
        book = None if params["no_key"] else open_book(url)
        return contextlib.nullcontext() if book is None else contextlib.closing(book)

    def read() -> GatewayFiles:
        registry = Registry.load()
        untrusted = {} if params["simulate"] else untrusted_models(registry)
        with own_book() as book:
            free, limits = _file_keys(keys_file, book, keys)
        return GatewayFiles(registry, (*keys, *free), untrusted, limits)

    def keep(limits: Mapping[str, KeyRecord]) -> None:
        if not limits:
            return
        with own_book() as book:
            if book is not None:
                book.add_all({digest(key): record for key, record in limits.items()})

    def make(settings: GatewayFiles) -> Gateway:
        from cnllm.gateway.asgi import Gateway
        from cnllm.gateway.monitoring.spans import ServerSpans
        from cnllm.store.call_log import CallLog

        return Gateway(
            settings.registry,
            simulate=params["simulate"],
            models=models,
            keys=settings.keys,
            store=url,
            token_keys=Keyring.load(),
            hosts=None if public else LOOPBACK,
            public_url=params["public_url"],
            key_book=key_book,
            limited_keys=[*settings.limits],
            admin_key=params["admin_key"],
            metrics=not params["no_metrics"],
            recent=Recent(folder.name if folder is not None else None) if params["ui"] else None,
            call_log=CallLog(logger="cnllm.gateway") if logs_calls else None,
            spans=ServerSpans() if params["otel"] else None,
            bounds=bounds,
            trusted_proxies=params["proxies"],
        )

    configuration = Configuration(read, make, keep)
    unsure = [] if params["simulate"] else unsure_sites(configuration.registry)
    beginnings = [f"{name}={model}" for name, model in models.items()]
    with _name_option("--map", *beginnings) if beginnings else contextlib.nullcontext():
        gateway = configuration.gateway()  # a wrong file or name is an error before the address is printed
    with folder or contextlib.nullcontext():

        def open_listener() -> socket:
            return listen(host, params["port"])

        def ready(address: str) -> None:
            _print_ready(params, address, new_key, unsure)

        def reload(gateway: Gateway) -> None:
            if configuration.reload(gateway):
                stdio.print_line("the configuration was read again")

        if workers == 1:
            run(gateway, open_listener, ready, reload)
        else:
            run_workers(configuration, open_listener, workers, ready)


def _bounds(params: dict[str, Any]) -> Bounds:
    """Return the bounds of a process: the defaults, and the options that were given."""
    values = {f"{name}_seconds": params[f"{name}_timeout"] for name in _TIMEOUTS}
    values |= {"connections": params["max_connections"], "requests": params["max_requests"]}
    values["held_bytes"] = None if params["max_held"] is None else params["max_held"] * 1024 * 1024
    return Bounds(**{name: value for name, value in values.items() if value is not None})


def _print_ready(params: dict[str, Any], address: str, new_key: str | None, unsure: list[Any]) -> None:
    """Print the address, the key if it is new, and what the operator has to know. `unsure` are notes on sites."""
    stdout.print_line(json.dumps({"url": address, "pid": os.getpid()}) if params["as_json"] else address)
    if new_key is not None:
        stdio.print_line(f"key: {new_key} (new at each start; set {_VARIABLE} to choose one)")
    if params["simulate"]:
        stdio.print_line("cnllm: simulated: every answer is made up on this machine; no model is asked")
    for note in unsure:
        stdio.print_line(f"note: {note}")
    if params["ui"]:
        has_admin = bool(params["admin_key"] or read_secret("admin_key"))
        opener = "log in with the key of --admin-key" if has_admin else "log in with a key of the gateway"
        stdio.print_line(f"operator page: {address}/ui ({opener})")
    if params["public"]:
        stdio.print_line(
            f"{params['host']} is open to other machines: everyone who has the key uses your providers' keys"
        )


def _check_reach(params: dict[str, Any], *, is_local: bool) -> None:
    """Raise `UsageError` for an address that others reach without leave, and for options that need such an address."""
    if not is_local and not params["public"]:
        raise errors.UsageError(
            f"--host {params['host']} can be reached by other machines",
            "add --public if they may use this gateway, and with it the keys of your providers",
        )
    if params["public"] and params["no_key"]:
        raise errors.UsageError("--public without a key lets everybody spend your money", "leave --no-key out")
    if params["public_url"] is not None:
        if not params["public"]:
            raise errors.UsageError("--public-url is for a gateway that others reach", "add --public")
        with errors.correcting("--public-url: ", "--public-url https://llm.example.org"):
            url_host(params["public_url"])


@contextlib.contextmanager
def _name_option(option: str, *beginnings: str) -> Iterator[None]:
    """Name an option in an error: in each one, or in those that begin with one of some words."""
    try:
        yield
    except CnllmError as error:
        if beginnings and not error.message.startswith(beginnings):
            raise
        separator = " " if beginnings else ": "
        raise errors.UsageError(f"{option}{separator}{error.message}", error.hint) from error


def _check_words(params: dict[str, Any]) -> None:
    """Raise `UsageError` for an option that is empty, and for a key that no client can send."""
    for option in ("--host", "--store", "--keys-file", "--log"):
        if params[option.removeprefix("--").replace("-", "_")] == "":
            raise errors.UsageError(f"{option} is empty", f"write its value, or leave {option} out")
    keys = {
        "--key": params["key"],
        "--admin-key": params["admin_key"],
        _VARIABLE: read_secret("serve_key"),
        _ADMIN: read_secret("admin_key"),
    }
    for option, key in keys.items():
        if key is not None and (fault := key_fault(key)):
            raise errors.UsageError(f"{option}: this is not a key, because {fault}", _KEY_HINT)


def _mapped_models(maps: tuple[str, ...]) -> dict[str, str]:
    """Return patterns with their models. Raise `UsageError` for one without a model."""
    models: dict[str, str] = {}
    for text in maps:
        pattern, separator, model = text.partition("=")
        if not (pattern and separator and model):
            raise errors.UsageError(f"--map {text}: a pattern and a model are expected", "--map 'PATTERN=MODEL'")
        if models.setdefault(pattern, model) != model:
            raise errors.UsageError(f"--map names two models for {pattern}", "leave one of them out")
    return models


def _client_keys(
    key: str | None, keys_file: str | None, *, no_key: bool, has_keys: bool
) -> tuple[list[str], str | None]:
    """Return the keys of clients that stand in no file, and the one that was made for this start, if there is none."""
    if no_key:
        if key or keys_file:
            raise errors.UsageError("--no-key with a key", "leave one of them out")
        return [], None
    key = key or (read_secret("serve_key") if keys_file is None else None)
    if key or keys_file is not None or has_keys:
        return [key] if key else [], None
    new_key = f"sk-cnllm-{secrets.token_urlsafe(24)}"
    return [new_key], new_key


def _file_keys(path: str | None, book: KeyBook | None, others: Sequence[str]) -> tuple[list[str], dict[str, KeyRecord]]:
    """Return the keys of a file: those without limits, and those with, each with its limits.

    Raise `CnllmError` where it cannot be read, holds none, or has a key with limits that stands twice, there or among
    the `others`: one without limits would count.
    """
    if path is None:
        return [], {}
    try:
        lines = [line.strip() for line in read_bounded(path).decode("utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise CnllmError(f"--keys-file {path} cannot be read: {reason}", hint="name a text file of keys") from error
    keys: list[str] = []
    limited: dict[str, KeyRecord] = {}
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        text, blank, options = line.partition(" --")
        key = text.strip()
        if fault := key_fault(key):
            raise CnllmError(f"--keys-file {path}:{number}: this is not a key, because {fault}", hint=_KEY_HINT)
        if key in limited or (blank and key in (*others, *keys)):
            message = f"--keys-file {path}:{number}: this key stands twice, with limits and without, or with two"
            raise CnllmError(message, hint="leave one of them out")
        if blank:
            limited[key] = _limits_of(f"--keys-file {path}:{number}", key, f"--{options}", book)
        else:
            keys.append(key)
    if not keys and not limited:
        raise CnllmError(f"--keys-file {path} holds no key", hint="write a key on each line")
    return keys, limited


def _limits_of(where: str, key: str, options: str, book: KeyBook | None) -> KeyRecord:
    """Return the limits of a key in a file. Raise `CnllmError` that names the line."""
    if book is None:
        raise CnllmError(f"{where}: a key with limits needs a store that lasts", hint="--store sqlite: or redis://HOST")
    try:
        return file_key(book, key, options)
    except (CnllmError, click.ClickException) as error:
        text = error.message
        raise CnllmError(f"{where}: {text}", hint=getattr(error, "hint", None)) from error


def _start_log(log: str | None) -> None:
    """Send the log to a file or to stderr."""
    from cnllm.gateway.access_log import LineHandler, stderr_handler

    logger = logging.getLogger("cnllm.gateway")
    logger.propagate = False
    warnings = stderr_handler()
    warnings.setLevel(logging.WARNING)
    logger.addHandler(warnings)
    if log is not None:
        with errors.writing(f"--log {log}"):
            if log != "-":
                create_private_file(log)
            lines = stderr_handler() if log == "-" else LineHandler(log)
        lines.addFilter(lambda record: record.levelno == logging.INFO)
        logger.addHandler(lines)
        logger.setLevel(logging.INFO)
