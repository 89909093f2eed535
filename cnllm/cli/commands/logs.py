"""`cnllm logs`: the conversations on disk."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from cnllm.cli import completion, options
from cnllm.cli.output import answer, errors, stdio, terminal
from cnllm.config.log_mode import Mode

if TYPE_CHECKING:
    from cnllm.store import Store
    from cnllm.store.records import ConversationSummary, SearchHit

__all__ = ["logs"]


@click.group(cls=options.Group)
def logs() -> None:
    """Conversations on disk: list, show, search, export.

    Every `cnllm call` is kept, simulated ones too, marked as such; no key is. CNLLM_LOG=off or --no-log leaves one out.
    """


def _count(default: int) -> options.Decorator:
    return click.option(
        "-n", "count", metavar="N", type=click.IntRange(min=1), default=default, show_default=True, help="At most N."
    )


@logs.command("list", epilog=options.examples("cnllm logs list -n 5", "cnllm logs list --json | jq -r '.[0].id'"))
@_count(20)
@options.as_json("an array")
def list_(count: int, as_json: bool) -> None:
    """List the conversations, the last one first."""
    from cnllm.cli.output import transcript
    from cnllm.cli.output.columns import fit_columns
    from cnllm.store import Store

    with Store.open() as store:
        found = store.summaries(count)
        _name_damage(store)
    if as_json:
        _dump(found)
    elif found:
        heads = ("ID", "LAST", "TURNS", "MODEL", "STATE", "PROMPT")
        rows = [_row(one, transcript.local_time(one.last)) for one in found]
        answer.print_line(
            fit_columns(heads, rows, give={3: 10, 4: 10, 5: 16}, middles=frozenset([3]), right=frozenset([2]))
        )
    else:
        stdio.print_line("no conversation is kept yet; cnllm call begins one")


def _row(one: ConversationSummary, when: str) -> tuple[str, ...]:
    made_up = [origin for origin in one.origins if origin != "endpoint"]
    state = ", ".join([one.state, *made_up])
    return one.id, when, str(one.turns), one.models[-1], state, " ".join(one.prompt.split())


@logs.command(
    epilog=options.examples("cnllm logs show", "cnllm logs show 3f2a --reasoning", "cnllm logs show 3f2a --json | jq")
)
@click.argument("ident", metavar="[ID]", default="last", shell_complete=completion.complete_conversations)
@click.option("--reasoning", is_flag=True, help="What the models thought, too.")
@click.option("--raw", is_flag=True, help="Let control characters through to a terminal.")
@options.as_json("the conversation")
def show(ident: str, reasoning: bool, raw: bool, as_json: bool) -> None:
    """Show a conversation: the last one, or that whose ID begins so."""
    from cnllm.cli.output import transcript
    from cnllm.store import Store

    with Store.open() as store:
        (found,) = store.records([store.conversation(ident).id])
        _name_damage(store)
    if as_json:
        answer.print_json(_plain(found))
    else:
        transcript.print_transcript(found, reasoning=reasoning, raw=raw)


@logs.command(epilog=options.examples("cnllm logs search sunset", "cnllm logs search 天空 蓝色"))
@click.argument("words", nargs=-1, required=True)
@_count(20)
@options.as_json("an array")
def search(words: tuple[str, ...], count: int, as_json: bool) -> None:
    """Find messages in which all WORDS occur, in text or reasoning, the newest first.

    Parts of words are found too, in upper or lower case. Several words in quotes are one.
    """
    from cnllm.cli.output import transcript
    from cnllm.store import Store

    with Store.open() as store:
        found = store.search(words, count)
    if as_json:
        _dump(found)
    elif found:
        answer.print_line(
            "\n".join(transcript.escape_for_stdout(_line(one, transcript.local_time(one.began))) for one in found)
        )
    else:
        stdio.print_line("nothing is found")


def _line(one: SearchHit, when: str) -> str:
    who = one.role if one.role != "assistant" else one.model
    thought = " (reasoning)" if one.where == "reasoning" else ""
    return f"{one.conversation}  {when}  {who}{thought}: {one.excerpt}"


@logs.command(
    epilog=options.examples(
        "cnllm logs export > conversations.jsonl",
        "cnllm logs export 3f2a | jq -c '.turns[].exchanges[]' > tape.jsonl",
    )
)
@click.argument("ident", metavar="[ID]", required=False, shell_complete=completion.complete_conversations)
def export(ident: str | None) -> None:
    """Print all conversations, or one, as JSON, one a line, with their requests and responses.

    The exchanges are such as `cnllm call --replay` takes.
    """
    from cnllm.store import Store
    from cnllm.store.text import as_json

    with Store.open() as store:
        ids = None if ident is None else [store.conversation(ident).id]
        for one in store.records(ids, exchanges=True):
            line = as_json(one)
            answer.print_line(terminal.escape_json(line) if sys.stdout.isatty() else line)
        _name_damage(store)


@logs.command(epilog=options.examples('sqlite3 "$(cnllm logs path)" "SELECT model, usage FROM turns"'))
def path() -> None:
    """Print where the file is, whether or not it exists."""
    from cnllm.store.store import store_path

    answer.print_line(str(store_path()))


@logs.command(epilog=options.examples("cnllm logs on", "cnllm logs on --no-exchanges"))
@click.option("--no-exchanges", is_flag=True, help="Without the requests and responses as they were on the wire.")
def on(no_exchanges: bool) -> None:
    """From now on keep every call, as it is to begin with."""
    _keep("no-exchanges" if no_exchanges else "on")
    stdio.print_line(f"calls are kept from now on{', without requests and responses' if no_exchanges else ''}")


@logs.command(epilog=options.examples("cnllm logs off"))
def off() -> None:
    """From now on keep no call. What is kept already stays."""
    _keep("off")
    stdio.print_line("calls are not kept from now on; what was kept stays (cnllm logs path)")


def _keep(chosen: Mode) -> None:
    import os

    from cnllm.config import log_mode

    log_mode.set_mode(chosen)
    said = os.environ.get("CNLLM_LOG")
    if said and log_mode.mode() != chosen:
        errors.print_error(f"CNLLM_LOG={said} goes before this", "unset CNLLM_LOG")


def _name_damage(store: Store) -> None:
    """Say what of the file cannot be read; the rest is shown."""
    for line in store.damaged:
        stdio.print_line(f"cnllm: {store.path}: damaged: {line}")


def _plain(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)


def _dump(value: Any) -> None:
    answer.print_json(_plain(value))
