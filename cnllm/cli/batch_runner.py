"""Run `cnllm batch`: build the settings, show the run, print the report."""

from __future__ import annotations

import contextlib
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cnllm.batch import estimate_session, run_session
from cnllm.batch.report import BatchReport, Progress
from cnllm.batch.session import BatchSession
from cnllm.batch.settings import BatchSettings, Changed, make_settings
from cnllm.batch.shared.remote import STAND_IN
from cnllm.cli import client_factory, option_parsing, tools, turn_log
from cnllm.cli.output import errors, stdio, stdout
from cnllm.cli.output.batch_view import BatchView, estimate_lines, report_lines
from cnllm.cli.prices import assumed_price, read_amount
from cnllm.cli.tools import CommandTools
from cnllm.config.settings import check_settings
from cnllm.ray.transport import RayTransport
from cnllm.registry import Registry
from cnllm.registry.model import Model

__all__ = ["run_batch"]

_SETTINGS = (
    *("prompt", "currency", "assume_output", "rpm", "tpm", "attempts", "unsure", "strict", "order", "group_by"),
    *("cache", "simulate", "format", "encoding", "vendor_batch", "tag"),
)
"""The options that are settings of a batch, under the same name."""
SIMULATED = "simulated: these answers are made up on this machine; no model was asked"


def run_batch(params: dict[str, Any]) -> int:
    """Run a batch and return the exit status."""
    check_settings()
    if params["simulate"] and params["ray"] is not None:
        raise errors.UsageError("--simulate and --ray exclude each other", "give one of them")
    box = tools.command_tools(params, None)
    try:
        if box is not None:
            box.open()
        settings = _settings(params, box)
        if params["dry_run"]:
            return _estimate(settings, as_json=params["as_json"])
        return _run(settings, params)
    finally:
        if box is not None:
            box.close()


def _estimate(settings: BatchSettings, *, as_json: bool) -> int:
    """Print what a run would take."""
    with errors.correcting():
        estimate = estimate_session(settings)
    stdout.print_report(estimate, estimate_lines(estimate), as_json=as_json)
    return errors.WHOLE


def _run(settings: BatchSettings, params: dict[str, Any]) -> int:
    announced = not params["simulate"]

    def announce() -> None:  # with the first answer: a wrong call has none
        nonlocal announced
        if not announced:
            announced = True
            stdio.print_line(f"cnllm: {SIMULATED}")

    on_ray = params["ray"] is not None
    # Ray writes what happens in the cluster to stdout, where only the report belongs.
    with contextlib.redirect_stdout(sys.stderr) if on_ray else contextlib.nullcontext():
        if on_ray:  # the requests leave from the nodes of the cluster
            settings = replace(settings, transport=RayTransport(params["ray"]))
        view = BatchView()

        def show(progress: Progress) -> None:
            announce()
            view.show(progress)

        with view.live or contextlib.nullcontext():
            with errors.correcting():  # an option that no request can have
                session = BatchSession(replace(settings, on_progress=show))
            report = run_session(session)
    announce()
    stdout.print_report(report.to_dict(), report_lines(report), as_json=params["as_json"])
    return _status(report)


def _status(report: BatchReport) -> int:
    if report.stop_kind == "interrupted":
        return errors.INTERRUPTED
    return errors.WHOLE if report.complete else errors.PARTIAL


def _changed(flags: tuple[Changed, ...]) -> Changed:
    """Return what becomes of finished rows whose request is another one now. Raises `UsageError`."""
    if len(set(flags)) > 1:
        raise errors.UsageError("--keep-old and --redo exclude each other", "give one of them")
    return flags[0] if flags else "stop"


def _settings(params: dict[str, Any], box: CommandTools | None) -> BatchSettings:
    """Return the settings of the options. Raises `UsageError`."""
    registry = Registry.load()
    options = option_parsing.call_options(
        params["parameters"],
        params["extra_body"],
        schema_file=params["schema"],
        reasoning=params["reasoning"],
        system=params["system"],
        timeout=params["timeout"],
    )
    if box is not None:
        options |= {"tools": box.tools, "approve": box.approve}
    models, keys = _models_and_keys(params, registry)
    with errors.correcting():
        return make_settings(
            params["source"],
            models,
            **{name: params[name] for name in _SETTINGS},
            out=Path(params["out"]),
            concurrency=params["concurrency"],
            max_cost=_amount(params["max_cost"]),
            assume_price=assumed_price(params["assume_price"], params["currency"]),
            changed=_changed(params["changed"]),
            registry=registry,
            api_keys=keys,
            max_steps=(params["max_steps"] or 10) if box is not None else params["max_steps"],
            plot=not params["no_plot"],
            log_calls=turn_log.logs_calls(False if params["no_log"] else None),
            **options,
        )


def _models_and_keys(params: dict[str, Any], registry: Registry) -> tuple[list[Any], list[str]]:
    """Return the models, names where no address is given, and the keys of the variables that the user names."""
    base_url, protocol = params["base_url"], params["protocol"]
    models: list[Any] = []
    keys: list[str] = []
    foreign: set[str] = set()  # variables of other endpoints than the first one, which find them by themselves
    elsewhere = params["ray"] is not None  # the workers have the keys
    resolved: list[Model] = []
    for name in params["models"]:
        place = {"protocol": protocol, "base_url": base_url, "key_env": next(iter(params["key_env"]), None)}
        offline = params["simulate"] or params["dry_run"]
        model = client_factory.choose_site(registry, name, offline=offline, **place)
        client_factory.print_site(model)
        models.append(name if base_url is None and protocol is None else model)
        resolved.append(model)
        if model.flags.base_url != resolved[0].flags.base_url:
            foreign |= {*(model.flags.keys or ())} - {*(resolved[0].flags.keys or ())}
        if not elsewhere:
            client_factory.read_key(model, None)
    for variable in params["key_env"]:
        if variable in foreign:
            continue
        if elsewhere:
            client_factory.require_key_name(variable)
            keys.append(STAND_IN + variable)
        else:
            key = client_factory.named_key(variable, required=not params["simulate"])
            keys += [] if key is None else [key]
    return models, list(dict.fromkeys(keys))


def _amount(text: str | None) -> Decimal | None:
    amount = None if text is None else read_amount(text)
    if text is not None and not amount:
        raise errors.UsageError(f"--max-cost {text} is not an amount above 0", "for example: --max-cost 20")
    return amount
