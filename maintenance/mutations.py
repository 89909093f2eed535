"""Change single expressions of the package, and list the changes that no test notices.

A copy of the checkout holds all mutations at once: each is an expression that has its other form while the variable
MUTANT holds its number. The tests run once to record which of them reach which mutation. Then a process that has
collected all tests forks for each mutation, and runs those that reach it until one fails: one that fails twice, and
passes without the mutation. Tests that take much longer than they do without it count as failed, and are listed.
Results are kept, so that a run that was stopped goes on, and one after more tests were recorded runs those alone.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import json
import mmap
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("engine", "leaks", "protocols", "gateway", "batch")
COPIED = ("cnllm", "tests", "docs", "fuzz", "benchmarks", "maintenance", "schemas", "deploy")
OWN = """import os

_ACTIVE = int(os.environ.get("MUTANT", "-1"))
_LOG = os.environ.get("MUTANT_LOG")
_written = set()


def is_active(number):
    if _LOG:
        place = number, os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        if place not in _written:
            _written.add(place)
            try:
                with open(_LOG, "a") as file:
                    file.write(f"{number} {place[1]}\\n")
            except OSError:
                pass  # the test has no space, or no files, left on purpose
    return number == _ACTIVE
"""
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
SECONDS, SLOWER = 30, 10  # a test may take so long, and so many times as long as without the mutation
MEMORY = 4 << 30  # of a process: a loop may fill it without an end


class Mutation(NamedTuple):
    """A place of a file and the other form of the expression that stands there."""

    file: str
    line: int
    place: int  # the number of the candidate in its file
    before: str
    after: str

    @property
    def key(self) -> str:
        """Return what names the mutation as long as its file stays the same."""
        return f"{self.file}:{self.line}:{self.place}: {self.before} -> {self.after}"


class Result(NamedTuple):
    """The outcome of a mutation: the test that noticed it, or all those that did not."""

    outcome: str
    tests: list[str]


# ── the candidates ────────────────────────────────────────────────────────────
def other_form(node: ast.expr) -> ast.expr | None:
    """Return what a mutation puts in the place of an expression; None where there is no such form."""
    changed = copy.deepcopy(node)
    match changed:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            changed.ops = [COMPARISONS[type(op)]()]
        case ast.BoolOp(op=ast.And()):
            changed.op = ast.Or()
        case ast.BoolOp(op=ast.Or()):
            changed.op = ast.And()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            changed.op = OPERATORS[type(op)]()
        case ast.Constant(value=bool() as value):
            changed.value = not value
        case ast.Constant(value=int() | float() as value):
            changed.value = value + 1
        case ast.Constant(value=str() as value) if value and " " not in value:
            changed.value = f"{value}X"
        case _:
            return None
    return changed


class Mutator(ast.NodeTransformer):
    """List the candidates of a file, and give those that are chosen their other form under a condition."""

    def __init__(self, file: str, chosen: dict[int, int]) -> None:
        self.file = file
        self.chosen = chosen  # the numbers of mutations by the number of the candidate
        self.found: list[Mutation] = []
        self._depth = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Change the body of a function: its head runs once, at import."""
        self._depth += 1
        node.body = [self._statement(one) for one in node.body]
        self._depth -= 1
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def _statement(self, node: ast.stmt) -> ast.stmt:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        visited = node if is_docstring else self.visit(node)
        assert isinstance(visited, ast.stmt)
        return visited

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Change the value alone."""
        node.value = self.visit(node.value) if node.value is not None else None
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Leave messages as they are."""
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Leave errors as they are."""
        return node

    def visit_Match(self, node: ast.Match) -> ast.AST:
        """Change subjects, guards and bodies: a pattern holds constants alone."""
        node.subject = self.visit(node.subject)
        for case in node.cases:
            case.guard = self.visit(case.guard) if case.guard is not None else None
            case.body = [self._statement(one) for one in case.body]
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        """Return None in the place of a value."""
        is_none = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
        if not self._depth or is_none:
            return node
        assert node.value is not None
        line, text = node.lineno, ast.unparse(node)
        self.generic_visit(node)
        node.value = self._put(line, text, "return None", node.value, ast.Constant(None))
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Leave a call out whose value nobody takes."""
        if not self._depth or not isinstance(node.value, ast.Call):
            return self.generic_visit(node)
        line, text = node.lineno, ast.unparse(node)
        self.generic_visit(node)
        node.value = self._put(line, text, "pass", node.value, ast.Constant(None))
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Change the parts first, and then the expression itself."""
        other = other_form(node) if self._depth and isinstance(node, ast.expr) else None
        before = ast.unparse(node) if other is not None else ""
        super().generic_visit(node)
        if other is None:
            return node
        assert isinstance(node, ast.expr)
        return self._put(node.lineno, before, ast.unparse(other), node, other)

    def _put(self, line: int, before: str, after: str, node: ast.expr, other: ast.expr) -> ast.expr:
        place = len(self.found)
        self.found.append(Mutation(self.file, line, place, before, after))
        number = self.chosen.get(place)
        if number is None:
            return node
        test = ast.Call(ast.Name("__mutant__", ast.Load()), [ast.Constant(number)], [])
        return ast.IfExp(test, other, node)


def mutations(root: Path, rooms: Sequence[str] = ROOMS) -> list[Mutation]:
    """List all candidates of some rooms."""
    found: list[Mutation] = []
    for path in sorted(path for room in rooms for path in (root / "cnllm" / room).rglob("*.py")):
        mutator = Mutator(path.relative_to(root).as_posix(), {})
        mutator.visit(ast.parse(path.read_text(encoding="utf-8")))
        found += mutator.found
    return found


def write_copy(folder: Path, drawn: list[Mutation]) -> None:
    """Copy the checkout, and write the mutations into its package."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    for path in [*ROOT.glob("*.toml"), *ROOT.glob("*.md"), ROOT / "hatch_build.py", ROOT / "LICENSE"]:
        shutil.copy(path, folder)
    if (ROOT.parent / "shared").exists():  # the recordings of tests/corpus
        (folder.parent / "shared").symlink_to(ROOT.parent / "shared")
    (folder / "cnllm" / "_mutations.py").write_text(OWN)
    by_file: dict[str, dict[int, int]] = defaultdict(dict)
    for number, one in enumerate(drawn):
        by_file[one.file][one.place] = number
    for file, chosen in by_file.items():
        tree = ast.parse((folder / file).read_text(encoding="utf-8"))
        Mutator(file, chosen).visit(tree)
        at = next((i for i, node in enumerate(tree.body) if not _comes_first(node)), 0)
        tree.body.insert(at, ast.parse("from cnllm._mutations import is_active as __mutant__").body[0])
        (folder / file).write_text(ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")


def _comes_first(node: ast.stmt) -> bool:
    """Whether a statement is the docstring of a module or an import from the future."""
    return isinstance(node, ast.Expr) or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


# ── as a plugin of pytest ─────────────────────────────────────────────────────
class Recorder:
    """Write how each test ended and how long it took."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write one phase of a test."""
        with open(os.environ["MUTANT_TIMES"], "a") as file:
            file.write(json.dumps([report.nodeid, report.when, report.outcome, report.duration]) + "\n")


class Ending(NamedTuple):
    """The number of tests that passed in a process of their own, and the outcome of the next one."""

    passed: int
    outcome: Literal["survived", "killed", "timeout"]


class Runner:
    """Run the tests that reach each mutation, in a process for each."""

    def __init__(self, folder: Path, shard: int, shards: int) -> None:
        self.folder, self.shard, self.shards = folder, shard, shards
        self._times = read_times(folder)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge each mutation that no test has noticed yet by the tests that it has not met, the quick ones first."""
        items = {item.nodeid: item for item in session.items}
        results, left = read_results(self.folder), {}
        for number, names in reaching_tests(self.folder).items():
            result = results.get(number)
            tests = [items[name] for name in names if name in items and name not in (result.tests if result else ())]
            if tests and number % self.shards == self.shard and (result is None or result.outcome == "survived"):
                left[number] = tests
        for number in sorted(left, key=lambda one: sum(self._times[item.nodeid] for item in left[one])):
            result = self._judge(number, session, left[number])
            if result.outcome == "survived" and number in results:
                result = Result("survived", results[number].tests + result.tests)
            with (self.folder / "results.jsonl").open("a") as file:
                file.write(json.dumps([number, *result]) + "\n")
        return True

    def _judge(self, number: int, session: pytest.Session, tests: list[pytest.Item]) -> Result:
        """Count a failure that comes again, and only with the mutation: the load of the machine makes tests fail."""
        start = 0
        while start < len(tests) and (ending := self._run(number, session, tests[start:])).outcome != "survived":
            start += ending.passed + 1
            failed = [tests[start - 1]]
            again = self._run(number, session, failed)
            if again.outcome != "survived" and self._run(-1, session, failed).outcome == "survived":
                return Result(again.outcome, [failed[0].nodeid])
        return Result("survived", [test.nodeid for test in tests])

    def _run(self, number: int, session: pytest.Session, tests: list[pytest.Item]) -> Ending:
        passed = mmap.mmap(-1, 8)  # both processes see it
        child = os.fork()
        if not child:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            os.environ["MUTANT"] = str(number)
            sys.modules["cnllm._mutations"]._ACTIVE = number  # type: ignore[attr-defined]
            os.dup2(os.open(self.folder / f"output-{number}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 1)
            failed = 0
            try:
                for place, (item, following) in enumerate(zip(tests, [*tests[1:], None], strict=True)):
                    passed[:] = place.to_bytes(8)
                    signal.alarm(self._seconds(item))
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                    if session.testsfailed:
                        failed = 1
                        break
            except BaseException:  # noqa: BLE001 - a test that ends the process has failed
                failed = 1
            os._exit(failed)
        status = os.waitpid(child, 0)[1]
        if _lives(child):
            os.killpg(child, signal.SIGKILL)
        slow = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
        return Ending(int.from_bytes(passed[:]), "timeout" if slow else "survived" if status == 0 else "killed")

    def _seconds(self, item: pytest.Item) -> int:
        return int(SECONDS + SLOWER * self._times[item.nodeid])


def _lives(group: int) -> bool:
    """Whether a process of a group lives."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def pytest_configure(config: pytest.Config) -> None:
    """Take the part that the environment asks for."""
    if "MUTANT_TIMES" in os.environ and not hasattr(config, "workerinput"):  # a worker hands its reports on
        config.pluginmanager.register(Recorder())
    elif "MUTANT_SHARD" in os.environ:
        shard, _, shards = os.environ["MUTANT_SHARD"].partition("/")
        config.pluginmanager.register(Runner(Path(os.environ["MUTANT_FOLDER"]), int(shard), int(shards)))


# ── files ─────────────────────────────────────────────────────────────────────
def drawn_mutations(folder: Path) -> list[Mutation]:
    """Return the mutations of a run."""
    return [Mutation(*row) for row in json.loads((folder / "drawn.json").read_text())]


def read_results(folder: Path) -> dict[int, Result]:
    """Return the outcomes of mutations, by their numbers."""
    path = folder / "results.jsonl"
    rows = map(json.loads, path.read_text().splitlines() if path.exists() else ())
    return {number: Result(*row) for number, *row in rows}


def read_times(folder: Path) -> dict[str, float]:
    """Return how long the tests take that pass without a mutation."""
    times: dict[str, float] = defaultdict(float)
    bad = set()
    for name, phase, outcome, duration in map(json.loads, (folder / "times.jsonl").read_text().splitlines()):
        if phase == "setup":  # the last run of a test counts
            bad.discard(name)
            times[name] = 0
        times[name] += duration
        if outcome != "passed":
            bad.add(name)
    return {name: seconds for name, seconds in times.items() if name not in bad}


def reaching_tests(folder: Path) -> dict[int, list[str]]:
    """Return the tests that reach each mutation and pass without it, the quick ones first."""
    times = read_times(folder)
    reached: dict[int, set[str]] = defaultdict(set)
    for line in (folder / "reached.txt").read_text().splitlines():
        number, _, test = line.partition(" ")
        reached[int(number)].add(test)
    return {number: sorted(tests & times.keys(), key=lambda name: times[name]) for number, tests in reached.items()}


def _environment(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder / "checkout"), "MUTANT_FOLDER": str(folder), **more}


def record(folder: Path, tests: list[str], workers: str) -> None:
    """Run tests once without a mutation, and record which of them reach which mutation."""
    environment = _environment(folder, MUTANT_TIMES=str(folder / "times.jsonl"), MUTANT_LOG=str(folder / "reached.txt"))
    command = [sys.executable, "-m", "pytest", "-p", "maintenance.mutations", "-n", workers, *tests]
    subprocess.run(command, cwd=folder / "checkout", env=environment, check=False)


def run(folder: Path, tests: list[str], shards: int) -> None:
    """Run the tests that reach each mutation."""
    command = [sys.executable, "-m", "pytest", "-p", "maintenance.mutations", "-n", "0", *tests]
    running = [
        subprocess.Popen(command, cwd=folder / "checkout", env=_environment(folder, MUTANT_SHARD=f"{shard}/{shards}"))
        for shard in range(shards)
    ]
    for process in running:
        process.wait()


def report(folder: Path) -> Iterator[str]:
    """Yield the mutations that survived, each with its change, and the counts."""
    results = read_results(folder)
    counts: dict[str, int] = defaultdict(int)
    for number, one in enumerate(drawn_mutations(folder)):
        outcome = results[number].outcome if number in results else "not reached"
        counts[outcome] += 1
        if outcome in ("survived", "not reached", "timeout"):
            yield f"{number} {one.file}:{one.line}: {outcome}"
            yield from list(difflib.ndiff(one.before.splitlines(), one.after.splitlines()))
    killed = counts["killed"] + counts["timeout"]
    yield f"killed {killed} of {sum(counts.values())}: {dict(counts)}"


def main(arguments: list[str]) -> None:
    """Draw, record and run, or go on with what is there; print the report. The exit status is 1 for too few."""
    parser = argparse.ArgumentParser(prog="python -m maintenance.mutations", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutations")
    parser.add_argument("--rooms", default=",".join(ROOMS), help="the folders of the package to draw from")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--least", type=float, default=0.9, help="the share that tests have to notice")
    parser.add_argument("--only", choices=("record", "run", "report"), help="do one step of the work")
    parser.add_argument("tests", nargs="*", default=["tests"])
    given = parser.parse_args(arguments)
    folder = given.folder.resolve()
    if not (folder / "drawn.json").exists():
        drawn = random.Random(given.seed).sample(mutations(ROOT, given.rooms.split(",")), given.count)
        shutil.rmtree(folder, ignore_errors=True)
        write_copy(folder / "checkout", drawn)
        (folder / "drawn.json").write_text(json.dumps(drawn))
    if given.only == "record" or (given.only is None and not (folder / "times.jsonl").exists()):
        record(folder, given.tests, str(given.workers))
    if given.only in ("run", None):
        run(folder, given.tests, given.workers)
    print("\n".join(report(folder)))
    killed = sum(result.outcome != "survived" for result in read_results(folder).values())
    sys.exit(given.only is None and killed < given.least * len(drawn_mutations(folder)))


if __name__ == "__main__":
    main(sys.argv[1:])
