"""Many cases in one test: `each` runs a test once for each case and reports every case that fails.

A test with thousands of parameters takes minutes of collection and bookkeeping. With `each` the cases are made when
the test runs, so the collection does no work. `pytest --case WORD` runs only the cases whose name holds the word.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from examples import SHARE, TURN, has_turn

__all__ = ["CASE", "Failures", "each"]

CASE = "TEST_CASE_OF_CNLLM"  # the value of `--case`, for all processes of one run
_SHOWN = 12  # so many failures are shown with their traceback; the others with one line
_LABEL = 100

Label = Callable[[Any], object]


class Failures:
    """The failures of the cases of one test."""

    def __init__(self) -> None:
        self._failed: list[tuple[str, BaseException]] = []
        self._skipped: list[str] = []
        self._passed = 0

    @contextmanager
    def of(self, case: str) -> Iterator[None]:
        """Keep the failure of this case for the report."""
        try:
            yield
        except pytest.skip.Exception as skipped:
            self._skipped.append(str(skipped))
        except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - reported with all others
            self._failed.append((case, failure))
        else:
            self._passed += 1

    def report(self) -> None:
        """Fail if a case failed, skip if all cases were skipped."""
        __tracebackhide__ = True
        if self._failed:
            names = ", ".join(case for case, _ in self._failed)
            names = names if len(names) <= 300 else f"{names[:300]}…"
            count = len(self._failed) + self._passed + len(self._skipped)
            several = f"{len(self._failed)} of {count} cases failed: {names}"
            texts = [_full(case, failure) for case, failure in self._failed[:_SHOWN]]
            texts += [f"{case}: {_line(failure)}" for case, failure in self._failed[_SHOWN:]]
            pytest.fail("\n\n".join([several, *texts]), pytrace=False)
        if self._skipped and not self._passed:
            pytest.skip("; ".join(dict.fromkeys(self._skipped)))
        if not self._passed and not os.environ.get(CASE):
            pytest.fail("the test has no case", pytrace=False)


def _full(case: str, failure: BaseException) -> str:
    shown = pytest.ExceptionInfo.from_exception(failure)
    shown.traceback = shown.traceback.filter(lambda entry: str(entry.path) != __file__)
    return f"── case {case} " + "─" * max(0, 100 - len(case)) + f"\n{shown.getrepr(style='short')}"


def _line(failure: BaseException) -> str:
    lines = str(failure).splitlines() or [""]
    return f"{type(failure).__name__}: {lines[0]}"


@dataclass(frozen=True)
class _Dimension:
    """The names and values that one `each` gives."""

    names: list[str]
    cases: Callable[[], Iterable[Any]] | Iterable[Any]
    ids: Label | Iterable[object] | None

    def all(self) -> list[_Case]:
        found = list(self.cases() if callable(self.cases) else self.cases)
        labels: list[str | None] = [None] * len(found)
        if self.ids is not None and not callable(self.ids):
            labels = [str(label) for label in self.ids]
        return [self._one(case, label) for case, label in zip(found, labels, strict=True)]

    def _one(self, case: Any, label: str | None) -> _Case:
        skip: str | None = None
        if hasattr(case, "values") and hasattr(case, "marks"):  # what pytest.param makes
            label = case.id or label
            if others := sorted({mark.name for mark in case.marks} - {"skip"}):
                raise pytest.UsageError(
                    f"case {label or case.values!r} has the mark {', '.join(others)}: each knows only skip; "
                    "use pytest.mark.parametrize, or skip in the test"
                )
            skip = next((str(mark.kwargs.get("reason", "")) for mark in case.marks if mark.name == "skip"), None)
            case = case.values if len(self.names) > 1 else case.values[0]
        values = dict(zip(self.names, case if len(self.names) > 1 else (case,), strict=True))
        shown = self.ids if callable(self.ids) else None
        return _Case(values, label or "-".join(_named(value, shown) for value in values.values()), skip)


@dataclass(frozen=True)
class _Case:
    values: Mapping[str, Any]
    label: str
    skip: str | None


def each(
    names: str,
    cases: Callable[[], Iterable[Any]] | Iterable[Any],
    *,
    ids: Label | Iterable[object] | None = None,
    parts: int = 1,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the decorated test once for each case, as `pytest.mark.parametrize` does, but as one test.

    `cases` may be a function, which is called when the test runs. `parts` splits the cases over that many tests, for
    the workers of xdist. Where it is used several times, every combination is a case. Of a test with the
    marker `share`, or with several drivers, .ci/run tries the cases whose turn it is. Each case has a `tmp_path` and a
    `monkeypatch` of its own, and a fixture that is a list is empty when the case begins; all other fixtures are shared.
    A test whose cases need fresh ones stays with `pytest.mark.parametrize`.
    """
    own = _Dimension([name.strip() for name in names.split(",")], cases, ids)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        inner: Callable[..., None]
        inner, dimensions, most = getattr(test, "_each", (test, [], 1))
        dimensions, most = [*dimensions, own], max(parts, most)
        given = [name for one in dimensions for name in one.names]
        signature = inspect.signature(inner)
        fixtures = [one for name, one in signature.parameters.items() if name not in given]
        if "request" not in signature.parameters:
            fixtures.append(inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY))
        if most > 1:
            fixtures.append(inspect.Parameter("part", inspect.Parameter.KEYWORD_ONLY))

        @functools.wraps(inner)
        def every(*, part: int = 0, request: pytest.FixtureRequest | None = None, **fixtures: Any) -> None:
            __tracebackhide__ = True
            failures = Failures()
            word = os.environ.get(CASE, "")
            turn = (0, 1)
            if request is not None and not word and SHARE > 1:
                turn = request.node.stash.get(TURN, turn)
            if "request" in signature.parameters:
                fixtures["request"] = request
            found = list(itertools.product(*(one.all() for one in dimensions)))
            own_part = part % len(found) if found else part  # of fewer cases than parts, a part repeats one
            own_cases = range(own_part, len(found), most)
            for place, number in enumerate(own_cases):
                combined = found[number]
                label = "-".join(one.label for one in combined)
                if word not in label or not has_turn(turn, place, len(own_cases)):
                    continue
                values = {name: value for one in combined for name, value in one.values.items()}
                with failures.of(label), _fresh(fixtures, number) as own:
                    if (skip := next((one.skip for one in combined if one.skip is not None), None)) is not None:
                        pytest.skip(skip)
                    inner(**own, **values)
            failures.report()

        every.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        if most > 1:
            every = pytest.mark.parametrize("part", range(most))(every)
        every._each = (inner, dimensions, most)  # type: ignore[attr-defined]
        return every

    return decorate


@contextmanager
def _fresh(fixtures: Mapping[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """The fixtures of one case."""
    own = dict(fixtures)
    for fixture in own.values():
        if type(fixture) is list:
            fixture.clear()
    if "tmp_path" in own:
        own["tmp_path"] = own["tmp_path"] / str(number)
        own["tmp_path"].mkdir()
    if "monkeypatch" not in own:
        yield own
        return
    with pytest.MonkeyPatch.context() as own["monkeypatch"]:
        yield own


def _named(value: Any, label: Label | None) -> str:
    said = label(value) if label is not None else None
    text = str(said) if said is not None else value if isinstance(value, str) else repr(value)
    return text if len(text) <= _LABEL else f"{text[:_LABEL]}…"
