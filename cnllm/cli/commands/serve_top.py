"""Define `cnllm serve top`: a live table of a gateway's metrics."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import click

from cnllm.cli import options
from cnllm.cli.language.messages import localize_word
from cnllm.cli.option_types import NumberRange, flag
from cnllm.cli.output import errors, stdout
from cnllm.cli.output.table import table
from cnllm.config.distribution import install_command
from cnllm.config.settings import read_secret
from cnllm.errors import CnllmError, TransportError
from cnllm.gateway.monitoring.table import HEADS, Scrape, parse_scrape, rows

__all__ = ["top"]

_CLEAR = "\x1b[H\x1b[2J"


@click.command(epilog=options.examples("cnllm serve top --url http://127.0.0.1:8641", "cnllm serve top --once --key K"))
@click.option("--url", metavar="URL", default="http://127.0.0.1:8641", show_default=True, help="The gateway.")
@click.option("--key", metavar="K", help="The operator's key. Default: CNLLM_ADMIN_KEY, else CNLLM_SERVE_KEY.")
@click.option("--interval", metavar="S", type=NumberRange(0.2, 3600), default=2.0, help="Seconds between two updates.")
@flag("--once", help="Print the table once and end.")
def top(url: str, key: str | None, interval: float, *, once: bool) -> None:
    """Show a live table of a gateway's calls by model. Ctrl-C ends it.

    The live table leaves out columns without a value. Times and speeds come from histograms, so they are about right.
    A ? in the cost stands for calls of unknown price.
    """
    key = key or read_secret("admin_key") or read_secret("serve_key")
    if key is None:
        raise errors.UsageError("/metrics needs a key", "--key K, or set CNLLM_ADMIN_KEY")
    before: Scrape | None = None
    while True:
        now = _scrape(url, key)
        lines = [(localize_word(name) if name == "all" else name, *cells) for name, *cells in rows(now, before)]
        if once or not sys.stdout.isatty():
            stdout.print_line(table(HEADS, lines, right=range(1, len(HEADS))))
        else:
            text = _filled_columns(HEADS, lines)
            sys.stdout.write(f"{_CLEAR}{url}  {time.strftime('%H:%M:%S')}\n\n{text}\n")
            sys.stdout.flush()
        if once:
            return
        before = now
        time.sleep(interval)


def _filled_columns(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return the table without its empty columns, so that it fits a terminal."""
    filled = [column for column, head in enumerate(heads) if any(line[column] for line in lines)]
    cells = [[line[column] for column in filled] for line in [heads, *lines]]
    return table(cells[0], cells[1:], right=range(1, len(filled)))


def _scrape(url: str, key: str) -> Scrape:
    """Return the metrics of a gateway. Raise `CnllmError` where there are none."""
    import httpx

    address = f"{url.rstrip('/')}/metrics"
    try:
        response = httpx.get(
            address, headers={"authorization": f"Bearer {key}", "accept": "text/plain"}, timeout=10, trust_env=False
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise TransportError(f"no gateway answers at {url}: {error}", hint="name it: --url URL") from error
    if response.status_code == 401:
        raise errors.UsageError("the gateway refuses this key for /metrics", "send the operator's key: --key K")
    if response.status_code != 200:
        raise CnllmError(f"{address} answered with status {response.status_code}", hint="is it a gateway of cnllm?")
    try:
        return parse_scrape(response.text, time.monotonic())
    except ImportError as error:
        raise CnllmError("the table needs prometheus-client", hint=install_command("serve")) from error
    except ValueError as error:
        raise CnllmError(f"{address} answered with something else than metrics", hint="name a gateway") from error
