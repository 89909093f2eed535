"""Measure how far the estimate of a request's tokens is from what endpoints counted, for each family of models.

    python -m maintenance.tokens RECORDINGS > cnllm/estimates/families.toml

RECORDINGS is a folder of recorded traffic: `PROVIDER/NAME.json` with `model` and `exchanges` (`protocol`, `stream`,
`request.body`, `response`). Three numbers are fitted for each family: tokens of each request, tokens of one with
tools, and a factor. The errors are those of recordings that had no part in the fit: a tenth of the files is left out
ten times.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from cnllm import CnllmError, Registry, engine
from cnllm.estimates.tokens import TokenFamily, estimate_text

__all__ = ["Sample", "fit", "main", "measure", "samples"]

FEWEST = 10
"""The recordings without which a family is not measured."""
OTHER = "other"
_FOLDS = 10
_SMALLEST = 50  # tokens: an error of few tokens is no large share
_STARTS = (0, 4, 8, 12, 20, 40, 60, 80)
_TOOLS = (*range(0, 300, 20), *range(300, 601, 50))
_TEXTS = (0.8, 0.9, 1.0, 1.1, 1.2)


class Sample(NamedTuple):
    """A recorded request: the estimate that knows no family, and what the endpoint counted."""

    file: str
    family: str
    estimate: int
    has_tools: bool
    counted: int


def main() -> int:
    """Print the families as TOML."""
    parser = argparse.ArgumentParser(prog="python -m maintenance.tokens", description=__doc__)
    parser.add_argument("recordings", type=Path)
    families = measure(list(samples(parser.parse_args().recordings)))
    sys.stdout.write("# Written by python -m maintenance.tokens; see `TokenFamily`.\n")
    for name, family in families.items():
        sys.stdout.write(
            f"\n[{name}]\nrecordings = {family.recordings}\nstart = {family.start}\ntools = {family.tools}\n"
            f"text = {family.text}\n" + (f"errors = {list(family.errors)}\n" if family.errors else "")
        )
    return 0


def samples(folder: Path) -> Iterator[Sample]:
    """Yield the requests whose replies count the input. Those of a web search are left out: pages are added to them."""
    registry = Registry.load()
    for path in sorted(folder.glob("*/*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        for exchange in record["exchanges"]:
            sample = _sample(registry, f"{path.parent.name}/{path.stem}", record["model"], exchange)
            if sample is not None:
                yield sample


def _sample(registry: Registry, file: str, name: str, exchange: dict[str, Any]) -> Sample | None:
    """Return the sample of an exchange; None where nothing was counted or the request cannot be built again."""
    request, response, protocol = exchange["request"], exchange["response"], exchange["protocol"]
    if request is None or response["status"] != 200:
        return None
    body = request["body"]
    model = registry.resolve(
        f"openai-compatible/{body.get('model') or name}", base_url="http://127.0.0.1:9", protocol=protocol
    )
    try:
        asked = engine.decode_request(protocol, body)
        plan = engine.build_request(model, list(asked.messages), stream=exchange["stream"], **asked.options)
        counted = _counted(model, exchange)
    except (CnllmError, TypeError, ValueError):
        return None
    if not counted or plan.search is not None or "web_search" in json.dumps(body.get("tools")):
        return None
    return Sample(file, model.family or OTHER, estimate_text(plan), bool(plan.body.get("tools")), counted)


def _counted(model: Any, exchange: dict[str, Any]) -> int | None:
    """Return the tokens of input that the endpoint counted."""
    response = exchange["response"]
    headers, content = {"content-type": response["content_type"]}, response["body"].encode()
    if not exchange["stream"]:
        return engine.parse_response(model, 200, headers, content).usage.input
    stream = engine.StreamParser(model, status=200, headers=headers)
    stream.feed(content)
    stream.end()
    return stream.close().usage.input


def measure(found: Sequence[Sample]) -> dict[str, TokenFamily]:
    """Return the families that have enough samples, by name; the samples of the others together are `other`."""
    groups: dict[str, list[Sample]] = {}
    for sample in found:
        groups.setdefault(sample.family, []).append(sample)
    few = [name for name, group in groups.items() if len(group) < FEWEST and name != OTHER]
    rest = groups.setdefault(OTHER, [])
    for name in few:
        rest += groups.pop(name)
    return {name: _measure_family(group) for name, group in sorted(groups.items())}


def _measure_family(group: Sequence[Sample]) -> TokenFamily:
    """Return the family of samples; without numbers of its own where these are no better on samples left out."""
    files = sorted({sample.file for sample in group})
    fold = {file: number % _FOLDS for number, file in enumerate(files)}
    plain, errors = TokenFamily(len(group)), list[float]()
    for number in range(_FOLDS):
        left_out = [sample for sample in group if fold[sample.file] == number]
        if left_out and (rest := [sample for sample in group if fold[sample.file] != number]):
            family = fit(rest)
            errors += [_error(family, sample) for sample in left_out]
    plain_errors = [_error(plain, sample) for sample in group]
    if sum(min(error, 1.0) for error in plain_errors) <= sum(min(error, 1.0) for error in errors):
        return replace(plain, errors=_shares(plain_errors))
    return replace(fit(group), errors=_shares(errors))


def _shares(errors: list[float]) -> tuple[float, float] | None:
    """Return the errors that half and nine tenths of the samples do not exceed; None where there are too few."""
    if len(errors) < FEWEST:
        return None
    half, most = (round(sorted(errors)[int(share * (len(errors) - 1))], 2) for share in (0.5, 0.9))
    return half, most


def fit(group: Sequence[Sample]) -> TokenFamily:
    """Return the family whose estimates differ least from what was counted. One large difference counts once."""
    tools = _TOOLS if any(sample.has_tools for sample in group) else (0,)
    choices = (
        TokenFamily(len(group), start, more, text) for start, more, text in itertools.product(_STARTS, tools, _TEXTS)
    )
    return min(choices, key=lambda family: sum(min(_error(family, sample), 1.0) for sample in group))


def _error(family: TokenFamily, sample: Sample) -> float:
    """Return by which share of the counted tokens an estimate differs."""
    tokens = family.tokens(sample.estimate, has_tools=sample.has_tools)
    return abs(tokens - sample.counted) / max(sample.counted, _SMALLEST)


if __name__ == "__main__":
    sys.exit(main())
