"""The suites: each takes a Bench and gives its rows. What they are for stands in `describe.py`."""

from collections.abc import Callable

from benchmarks.bench import Bench
from benchmarks.results import Row
from benchmarks.suites import batch, cold, gateway, memory, parsing, registry, requests, streams

SUITES: dict[str, Callable[[Bench], list[Row]]] = {
    "cold": cold.cold,
    "request": requests.request,
    "stream": streams.stream,
    "wires": streams.wires,
    "concurrent": streams.concurrent,
    "memory": memory.memory,
    "build": requests.build,
    "parse": parsing.parse,
    "filters": parsing.filters,
    "validate": parsing.validate,
    "registry": registry.registry,
    "gateway": gateway.gateway,
    "batch": batch.batch,
}
"""In the order in which they run and are reported."""
