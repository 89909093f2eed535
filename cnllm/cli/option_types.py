"""Define the types of values that several options have, and options of one kind each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

__all__ = [
    "FilePath",
    "NumberRange",
    "assume_price",
    "count",
    "file",
    "flag",
    "number",
    "output",
    "port",
    "prices",
    "repeated",
    "seconds",
]


class NumberRange(click.FloatRange):
    """A number within bounds. NaN is none: it is neither above nor below any bound, so that no cap would hold it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is not a valid {self.name}", param, ctx)
        return float(number)


class FilePath(click.Path):
    """The path of a file to write. - is none: what goes there is read again, and stdout has other lines."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if value == "-":
            self.fail("a file is expected; - (stdout) does not work here", param, ctx)
        return super().convert(value, param, ctx)


def prices(word: str | None = None) -> Callable[[str], str | tuple[float, float]]:
    """Return the type of an option that takes prices, `IN/OUT` or `IN,OUT`; a single number stands for both.

    With a word it takes that word too, and no single number.
    """

    def convert(value: str) -> str | tuple[float, float]:
        if value == word:
            return value
        from cnllm.cli.prices import read_prices

        return read_prices(value, 1 if word is None else 2)

    return convert


flag = partial(click.option, is_flag=True)
"""Returns an option without a value."""
repeated = partial(click.option, multiple=True)
"""Returns an option that may be repeated."""
file = partial(click.option, metavar="FILE", type=click.Path())
"""Returns an option that takes the path of a file."""
output = partial(click.option, "-o", "output", type=click.Path(dir_okay=False))
"""Returns the option of a file to write, `-o`."""
port = partial(click.option, "--port", type=click.IntRange(0, 65535), default=0)
"""Returns the option `--port`; 0 is any free one."""
count = partial(click.option, metavar="N", type=click.IntRange(min=1))
"""Returns an option that takes a whole number from 1."""
number = partial(click.option, type=NumberRange(min=0))
"""Returns an option that takes a number from 0."""
assume_price = partial(click.option, "--assume-price", metavar="IN/OUT", type=prices())
"""Returns the option `--assume-price`."""
seconds = partial(click.option, metavar="S", type=NumberRange(min=0, min_open=True))
"""Returns an option that takes a time above 0."""
