"""Ask a validator first whether it can tell good arguments from bad ones."""

import json
from collections.abc import Callable
from typing import Any

from benchmarks.tokens import ARGUMENTS

GOOD: dict[str, Any] = json.loads(ARGUMENTS)
BAD: tuple[dict[str, Any], ...] = (
    {**GOOD, "days": 15},
    {**GOOD, "days": "3"},
    {**GOOD, "unit": "kelvin"},
    {**GOOD, "fields": [1]},
    {**GOOD, "wind": True},
    {name: value for name, value in GOOD.items() if name != "city"},
)


def judged(fits: Callable[[dict[str, Any]], bool]) -> Callable[[], int]:
    """Validate good arguments once, after the validator has refused six bad ones."""
    for bad in BAD:
        if fits(bad):
            raise SystemExit(f"wrong result: took {bad}")
    return lambda: fits(GOOD)
