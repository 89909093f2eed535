"""Define `cnllm probe`: ask an endpoint what it takes, and describe it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import option_types, options, probe_target
from cnllm.cli.language.messages import colon, localize, localize_word, translate, translate_word
from cnllm.cli.option_types import flag
from cnllm.cli.output import errors, stdio, stdout
from cnllm.cli.output.table import truncate_end
from cnllm.errors import CnllmError
from cnllm.types.checks import plural

if TYPE_CHECKING:
    from cnllm.probe import Report
    from cnllm.probe.state import ProbeStep

__all__ = ["probe"]

_FIRST = 3
"""The requests before the first question."""

_WIRES = click.Choice(["openai-chat", "anthropic-messages", "gemini", "openai-responses"])


@click.command(cls=options.Command)
@click.argument("target", metavar="URL|PROVIDER")
@click.option("--model", "id", metavar="ID", help="The model's id on the wire; else the first that the endpoint lists.")
@click.option("--protocol", metavar="P", type=_WIRES, help="The wire; else each is tried.")
@click.option("--key-env", metavar="NAME", help="The variable that holds the key. A provider's own is known.")
@option_types.count(
    "--max-requests", default=60, show_default=True, help="The most requests, retries and metadata included."
)
@option_types.number(
    "--max-cost",
    metavar="X",
    help="Stop where another answer of 500 tokens may pass X; a longer one can pass it. Needs a price.",
)
@option_types.assume_price(help="The prices of a million tokens; one number stands for both.")
@option_types.output(metavar="OVERLAY.toml", help="Write the description there.")
@flag("--dry-run", help="Show the questions and their cost; send nothing.")
@options.as_json("facts and the number of requests")
def probe(target: str, **params: Any) -> int:
    """Ask an endpoint what it takes, and describe it in a registry file.

    Every question has a control that differs in one field. What two runs agree on goes into the file; the rest stays
    unknown. With -o, a report for people (.md) and the exchanges without secrets (.jsonl) stand beside the file; else
    the file goes to stdout. After a stop the same command goes on, within a day.

    Examples:
      cnllm probe http://127.0.0.1:8080 -o home.toml
      cnllm probe https://api.example.com/v1 --model big-1 --key-env EXAMPLE_KEY --max-requests 200
      cnllm probe zai --model glm-4.7 --dry-run
    """
    from cnllm.registry import Registry

    registry = Registry.load()
    goal = probe_target.find(registry, target, params)
    if params["max_cost"] is not None and goal.price is None:
        raise errors.UsageError("--max-cost without a price", "name it: --assume-price IN/OUT, for a million tokens")
    if params["output"] is not None:
        probe_target.require_own(params["output"])
    if params["dry_run"]:
        _print_plan(params["max_requests"], goal.price)
        return errors.WHOLE
    from cnllm.probe.recording import state_file
    from cnllm.probe.run import ProbeSettings, run_target

    state = state_file(goal.base_url, goal.id, goal.protocol)
    settings = ProbeSettings(
        max_requests=params["max_requests"], max_cost=params["max_cost"], on_step=_show, record=state
    )
    try:
        report = run_target(goal, registry, settings)
    except CnllmError:  # nothing was found: the same command asks anew
        state.unlink(missing_ok=True)  # ours: a name in our data folder
        raise
    _write(report, state, params["output"], as_json=params["as_json"])
    for remark in report.remarks:
        stdio.print_line(f"note: {remark}")
    if report.stopped:
        stdio.print_line(f"cnllm: {report.stopped}; what is unknown was not asked, or not twice")
        return errors.PARTIAL if report.found is not None else errors.FAILED
    state.unlink(missing_ok=True)  # ours: a name in our data folder
    return errors.WHOLE


def _print_plan(most: int, price: tuple[float, float] | None) -> None:
    """Print the questions of a probe, and what it may cost."""
    from cnllm.probe.questions import QUESTIONS
    from cnllm.probe.report import estimate

    lines = ["Questions in their order, and the most requests of each (twice, if it finds something):", ""]
    lines.append(f"{_FIRST:>4}  {localize('the list of models, a first request, the same without the key')}")
    lines += [f"{question.requests:>4}  {localize_word(question.name)}" for question in QUESTIONS]
    lines += ["", f"It ends after {most} request{plural(most)} (--max-requests)."]
    if price is not None:
        cost = f"{estimate(most, price):.3g}"
        lines.append(f"About {cost} at this price, without the prompt that is too long.")
    else:
        lines.append("The price is not known: --assume-price IN/OUT shows the cost.")
    stdout.print_line("\n".join(map(localize, lines)))


def _show(step: ProbeStep) -> None:
    """Show what a question taught, on stderr."""
    from cnllm.probe.report import sentence

    known = "; ".join(sentence(f) for f in step.findings if f.answer != "unknown")
    text = f"{translate_word(step.question)}{colon()}{known or translate('nothing was proven')}"
    stdio.print_line(truncate_end(f"{step.requests:>4}/{step.most}  {text}", 79))


def _write(report: Report, state: Path, output: str | None, *, as_json: bool) -> None:
    """Write the description, the report and the recording, and print what was learnt."""
    from cnllm.probe.report import differs

    if output is not None and report.overlay:
        path = Path(output)
        for file, text in ((path, report.overlay), (path.with_suffix(".md"), report.text())):
            probe_target.replace_own(file, text.encode())
        if state.exists():
            probe_target.replace_own(path.with_suffix(".jsonl"), state.read_bytes())
        stdio.print_line(f"{path}: {report.name}; the report is in {path.with_suffix('.md')}")
    if as_json:
        facts = [{"flag": f.flag, "value": f.value, "answer": f.answer} for f in report.facts]
        stdout.print_json({"facts": facts, "requests": report.requests})
    elif output is None and report.overlay:
        stdout.print_line(report.overlay.rstrip("\n"))
    proven = sum(f.answer != "unknown" for f in report.facts)
    stdio.print_line(
        f"{report.requests} request{plural(report.requests)}; {proven} flag{plural(proven)} proven, "
        f"{len(report.facts) - proven} unknown; "
        f"{sum(map(differs, report.facts))} differ from the protocol"
    )
