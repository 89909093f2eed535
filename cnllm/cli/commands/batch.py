"""Define the options of `cnllm batch`."""

from __future__ import annotations

from typing import Any

import click

from cnllm.cli import completion, option_types, options
from cnllm.cli.option_types import flag, repeated

__all__ = ["batch"]

HELP = options.Help(
    "--model --out --prompt --system --reasoning --schema --max-cost --concurrency --dry-run --simulate",
    {
        "Rows and answers": "--out --prompt --system --schema --format --encoding --strict --input-order --group-by "
        "--unsure --keep-old --redo --cache",
        "Cost and speed": "--max-cost --currency --assume-price --assume-output --concurrency --rpm --tpm --attempts "
        "--vendor-batch --ray --timeout",
        "Model and endpoint": "--model --reasoning -p --extra-body --base-url --key-env --protocol --simulate",
        "Tools of the model": "--tool --max-steps --approve --mcp --mcp-env",
        "Report and logs": "--dry-run --json --tag --no-log --no-plot",
    },
)


@click.command(cls=options.ModelCommand, layout=HELP)
@click.argument("source", metavar="IN", shell_complete=completion.complete_files)
@options.model(
    "models", multiple=True, text="A short name, or PROVIDER/ID. Repeat it for more endpoints of the same model."
)
@click.option(
    "-o", "--out", metavar="OUT", type=option_types.FilePath(), required=True, help="The file of the answers."
)
@click.option("--prompt", metavar="TEMPLATE", help="The prompt of a row: 'Translate: {text}' fills in its columns.")
@click.option("-s", "--system", metavar="TEXT", help="The system message of every row.")
@options.reasoning("off, on, minimal … max, or tokens.")
@click.option(
    "--schema",
    metavar="FILE|FIELDS",
    shell_complete=completion.complete_files,
    help="The answers' JSON Schema, or 'name, age int, tags [str]'.",
)
@options.tool
@options.mcp
@click.option(
    "--approve",
    type=click.Choice(["all", "none"]),
    default="none",
    help="Calls of tools that are not built in: run them (all), or refuse them (none, the default).",
)
@option_types.count("--max-steps", help="The most calls of the model in a tool loop.")
@options.parameters
@click.option("--extra-body", metavar="JSON", help="JSON for the request bodies, sent as it is. @FILE reads a file.")
@click.option(
    "--concurrency",
    metavar="N|auto",
    type=options.count_or("auto"),
    default="auto",
    help="Requests at a time. Default: auto.",
)
@click.option("--rpm", metavar="N", type=option_types.NumberRange(0, min_open=True), help="The most requests a minute.")
@click.option("--tpm", metavar="N", type=option_types.NumberRange(0, min_open=True), help="The most tokens a minute.")
@click.option("--max-cost", metavar="X", help="The most that OUT may cost, earlier runs included.")
@click.option("--currency", metavar="C", help="That of --max-cost (default: the price's) and --assume-price.")
@option_types.assume_price(help="Prices of a million tokens, where none is known: 2/8.")
@option_types.count("--assume-output", help="The most tokens of a reply, where no limit is known.")
@option_types.count("--attempts", default=3, help="Tries of a row that fails. Default: 3.")
@click.option(
    "--unsure",
    type=click.Choice(["ask", "skip"]),
    default="ask",
    help="Rows that were sent before a crash and have no answer: ask them again (the default), or skip them.",
)
@repeated("--keep-old", "changed", flag_value="keep", help="Keep answers to requests that were different.")
@repeated("--redo", "changed", flag_value="redo", help="Ask again what was asked differently.")
@flag("--input-order", "order", help="In the end, put the answers in the order of IN.")
@click.option(
    "--group-by", type=click.Choice(["prefix"]), help="Send rows with the same beginning one after the other."
)
@flag("--cache", help="Share answers with other runs of equal requests.")
@flag("--vendor-batch", help="Use the vendor's own batch interface: cheaper, and done within hours.")
@flag("--strict", help="Stop at the first line that is not a request.")
@flag("--dry-run", help="Estimate tokens, cost and time; send nothing.")
@flag("--simulate", help="Make up the answers on this machine: no key, no network.")
@click.option(
    "--format",
    "format",
    type=click.Choice(["jsonl", "lines", "csv", "tsv", "parquet"]),
    help="The format of IN. Default: by its name, else by its first byte.",
)
@click.option("--encoding", metavar="E", help="The encoding of IN. Default: UTF-8, else GB18030.")
@repeated("--key-env", "key_env", metavar="NAME", help="A variable that holds a key. Repeatable.")
@click.option("--base-url", metavar="URL", help="Another address that serves the model.")
@click.option("--protocol", metavar="P", help="Another protocol of the endpoint.")
@click.option("--ray", metavar="ADDRESS", help="Send from a Ray cluster: auto, local, HOST:PORT or ray://HOST:PORT.")
@option_types.seconds("--timeout", help="Seconds for an answer.")
@options.tag
@flag("--no-log", help="Do not log what the calls cost; see cnllm logs.")
@flag("--no-plot", help="Write no OUT.svg with rate and latency over time.")
@options.as_json("the report")
def batch(**params: Any) -> int:
    """Ask a model every row of a file, below a cap on cost.

    IN is a file or - for stdin: JSON lines with id and messages or prompt, lines of OpenAI's batch format, plain
    lines, CSV or Parquet, also as .gz. OUT gets one JSON line a row, with reply or error. Run the same command again
    and it goes on: what has an answer is not asked again. Ctrl-C once waits for what is on its way, twice does not.

    Examples:
      cnllm batch questions.jsonl -m glm-4.7 -o answers.jsonl
      cnllm batch texts.csv -m zhipuai/glm-4.7 -o out.jsonl --prompt 'Translate: {text}' --max-cost 20 --currency CNY
      cnllm batch lines.txt.gz -m qwen3.7-max -o out.jsonl --dry-run
      zcat rows.gz | cnllm batch - -m glm-4.7 -o out.jsonl --schema 'name, age int'
      cnllm batch rows.jsonl -m glm-4.7 -o out.jsonl --key-env KEY_A --key-env KEY_B
      cnllm batch rows.jsonl -m glm-4.7 -o out.jsonl --vendor-batch
      cnllm batch rows.jsonl -m glm-4.7 -o out.jsonl --ray auto
      cnllm batch rows.jsonl -m glm-4.7 -o try.jsonl --simulate
    """
    from cnllm.cli.batch_runner import run_batch  # imports what a run needs; help and completion do not need it

    return run_batch(params)
