"""Other programs read from the document what cnllm itself knows: every fact, its source, and what is unknown."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import program
import pytest
from home_folders import SHARED_CACHE
from jsonschema.validators import validator_for
from small import small_file

from cnllm import Registry
from cnllm.registry.model import Fact, Model
from cnllm.registry.read import read
from cnllm.registry_export.document import build_document, document_schema, encode_document

from .support import resolved, same

OWN = """
[providers.home]
title    = "A server at home"
protocol = "openai-chat"
base_url = "http://user:secret-word@127.0.0.1:9/v1"
keys     = []
headers  = { X-Own = "secret-header" }

[models."home/new"]
limits.context = 4096

[models."home/old"]
status = { is = "retired", since = 2026-01-01 }
price  = { input = 0, output = 0, currency = "USD" }
tools.parallel = false

[models."home/other-wire"]
protocol = "anthropic-messages"
"""


TINY = """
[protocols.openai-chat]
path    = "/chat/completions"
headers = { X-Version = "7" }

[protocols.anthropic-messages]
path = "/messages"
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    """A few providers of the built-in file, and a file of a user's."""
    own = tmp_path_factory.mktemp("own") / "own.toml"
    own.write_text(OWN)
    builtin = small_file(Path(os.environ[SHARED_CACHE]) / "small")
    return Registry([read(builtin, builtin=True), read(own)])


@pytest.fixture(scope="module")
def document(registry: Registry) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(encode_document(build_document(registry)))
    return document


def models(registry: Registry, *, catalogue: bool = False) -> Iterator[tuple[str, Model]]:
    """Every model, over each of its wires."""
    for name in registry.names(catalogue=catalogue):
        yield from ((name, registry.resolve(name, protocol=wire)) for wire in registry.wires(name))


def require_same(registry: Registry, document: dict[str, Any], *, catalogue: bool = False) -> int:
    """Check that a program of ten lines reads every fact of every model as cnllm has it. Return how many there are."""
    count = 0
    for name, model in models(registry, catalogue=catalogue):
        facts = resolved(document, name, model.protocol)
        explained = {fact.flag: fact for fact in model.explain()}
        known = {flag for flag, fact in facts.items() if fact["how"] != "unknown" or fact["value"] != "unknown"}
        assert known == set(explained), name
        for flag, fact in explained.items():
            assert same(facts[flag]["value"], fact.value), (name, flag)
            assert (facts[flag]["url"], facts[flag]["seen"]) == (fact.source or "unknown", fact.seen or "unknown")
            assert facts[flag]["how"] == how(fact), (name, flag)
            assert facts[flag].get("rounded", False) == fact.rounded
            count += 1
    return count


def leaves(value: Any) -> list[Any]:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if inner is None else [leaf for one in inner for leaf in leaves(one)]


def how(fact: Fact) -> str:
    return fact.how or ("default" if fact.layer == "defaults" else "unknown")


def test_a_program_reads_what_cnllm_knows(registry: Registry, document: dict[str, Any]) -> None:
    assert require_same(registry, document) > 5_000


@pytest.mark.long
def test_the_whole_registry_and_the_catalogue_are_what_cnllm_knows() -> None:
    registry = Registry.load()
    content = encode_document(build_document(registry, catalogue=True))
    assert require_same(registry, json.loads(content), catalogue=True) > 500_000


def test_the_document_is_valid_against_its_schema(document: dict[str, Any]) -> None:
    schema = document_schema()
    validator = validator_for(schema)
    validator.check_schema(schema)
    validator(schema).validate(document)
    assert document["$schema"] == "registry-export.schema.json"
    published = Path(__file__).parents[2] / "schemas" / document["$schema"]
    assert json.loads(published.read_text(encoding="utf-8")) == schema


def test_unknown_is_the_word_and_known_is_the_value(document: dict[str, Any]) -> None:
    new, old = resolved(document, "home/new"), resolved(document, "home/old")
    assert new["limits.context"]["value"] == 4096
    for flag in ("limits.output", "price.input", "price.cached", "input", "tools.parallel", "params.top_k"):
        assert new[flag] == {"value": "unknown", "url": "unknown", "seen": "unknown", "how": "unknown"}, flag
    assert document["models"]["home/new"]["facts"]["price.input"]["value"] == "unknown", "in the document, too"
    assert document["models"]["home/new"]["can"]["tools"] == "unknown"
    assert (old["price.input"]["value"], old["price.output"]["value"]) == (0, 0)
    assert old["tools.parallel"]["value"] is False
    assert None not in leaves(document)


def test_a_model_may_have_a_wire_that_its_provider_has_not(document: dict[str, Any]) -> None:
    assert document["models"]["home/other-wire"]["wire"] == "anthropic-messages"
    assert resolved(document, "home/other-wire")["protocol"]["value"] == "anthropic-messages"


def test_retired_models_are_there_and_marked(document: dict[str, Any]) -> None:
    assert document["models"]["home/old"]["status"] == "retired"
    assert resolved(document, "home/old")["status.since"]["value"] == "2026-01-01"
    assert document["models"]["home/new"]["status"] == "unknown"


def test_what_is_shared_stands_once(document: dict[str, Any]) -> None:
    model = document["models"]["zai/glm-4.7"]
    assert set(model["facts"]) < set(resolved(document, "zai/glm-4.7"))
    assert "base_url" not in model["facts"]
    assert document["providers"]["zai"]["wires"]["openai-chat"]["facts"]["base_url"]["value"].startswith("https://")
    assert document["families"][model["family"]]["match"]
    sources = [tuple(source.values()) for source in document["sources"].values()]
    assert len(sources) == len(set(sources))


def test_no_password_leaves_the_file(document: dict[str, Any]) -> None:
    assert "secret-" not in json.dumps(document)
    assert resolved(document, "home/new")["headers.X-Own"]["value"] != "unknown"
    assert "127.0.0.1:9" in resolved(document, "home/new")["base_url"]["value"]


def test_the_licence_and_the_sources_travel_with_it(document: dict[str, Any]) -> None:
    top = Path(__file__).parents[2]
    assert document["licenses"] == {n: (top / n).read_text(encoding="utf-8") for n in ("LICENSE", "DATA_SOURCES.md")}


def test_the_same_data_give_the_same_bytes(tmp_path: Path) -> None:
    """In every process, whatever the order of the tables; other data have another version."""
    code = (
        "import sys; from pathlib import Path; from cnllm import Registry; from cnllm.registry.read import read;"
        "from cnllm.registry_export.document import *;"
        "made = build_document(Registry([read(Path(sys.argv[1]), builtin=True)]));"
        "sys.stdout.buffer.write(encode_document(made))"
    )

    def made(text: str, seed: str) -> bytes:
        (tmp_path / "providers.toml").write_text(text)
        command = [sys.executable, "-c", code, str(tmp_path / "providers.toml")]
        env = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run(command, env=env, capture_output=True, check=True).stdout

    head, sep, body = OWN.partition("[models")
    one = made(TINY + OWN, "1")
    wire = json.loads(one)["wires"]["openai-chat"]["facts"]
    assert wire["headers.X-Version"]["value"] == "7", "a built-in file holds no secret"
    assert one == made(f"# a comment\n{sep}{body}\n{head}{TINY}", "2")
    assert json.loads(one)["version"] != json.loads(made(TINY + OWN.replace("4096", "8192"), "1"))["version"]


# ── the command ──────────────────────────────────────────────────────────────
@pytest.mark.usefixtures("small_builtin")
def test_the_command_writes_the_document(tmp_path: Path) -> None:
    packed = tmp_path / "registry.json.gz"
    done = program.completed(["registry", "export", "--format", "json", "-o", str(packed)])
    assert (done.returncode, done.stdout) == (0, "")
    assert "bytes" in done.stderr
    printed = program.completed(["registry", "export", "-o", "-"])
    assert gzip.decompress(packed.read_bytes()) == printed.stdout.encode()


@pytest.mark.usefixtures("small_builtin")
def test_own_files_are_in_it_and_named_unless_they_are_left_out(tmp_path: Path) -> None:
    own, out = tmp_path / "own.toml", tmp_path / "registry.json"
    own.write_text(OWN)
    env = {"CNLLM_PROVIDERS": str(own)}
    done = program.completed(["registry", "export", "-o", str(out)], env=env)
    assert "home/new" in json.loads(out.read_text(encoding="utf-8"))["models"]
    assert "own.toml" in done.stderr
    done = program.completed(["registry", "export", "-o", str(out), "--builtin"], env=env)
    assert "home/new" not in json.loads(out.read_text(encoding="utf-8"))["models"]
    assert "own.toml" not in done.stderr


@pytest.mark.usefixtures("small_builtin")
@pytest.mark.parametrize("form", ["json", "litellm"])
def test_one_provider_alone(tmp_path: Path, form: str) -> None:
    out = tmp_path / "some.json"
    command = ["registry", "export", "--format", form, "--provider", "zai", "-o", str(out)]
    assert program.completed(command).returncode == 0
    made = json.loads(out.read_text(encoding="utf-8"))
    models = made["models"] if form == "json" else made
    assert "zai/glm-4.7" in models
    assert {name.partition("/")[0] for name in models} == {"zai"}
    if form == "json":
        assert set(made["providers"]) == {"zai"}
        assert set(made["aliases"].values()) <= set(models)


@pytest.mark.usefixtures("small_builtin")
def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    for args, word in (
        (["-o", str(tmp_path / "none" / "x.json")], "cannot be written"),
        (["--format", "typescript", "-o", "-"], "is a folder"),
        (["--format", "models.dev", "--catalogue", "-o", str(tmp_path)], "--catalogue"),
        (["--provider", "nobody", "-o", str(tmp_path / "x.json")], "nobody"),
        (["--format", "xml", "-o", str(tmp_path)], "xml"),
        ([], "-o"),
    ):
        done = program.completed(["registry", "export", *args])
        assert done.returncode == 2, args
        assert word in done.stderr


@pytest.mark.usefixtures("small_builtin")
def test_an_id_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    own, out = tmp_path / "own.toml", tmp_path / "a" / "out"
    own.write_text(OWN.replace("home/new", "home/../../../../../new"))
    done = program.completed(
        ["registry", "export", "--format", "models.dev", "-o", str(out)], env={"CNLLM_PROVIDERS": str(own)}
    )
    assert done.returncode == 2
    assert "leads out of the folder" in done.stderr
    assert [path.name for path in tmp_path.rglob("new*")] == []
