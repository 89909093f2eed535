"""README's two commands are those that CI runs, and the published schemas are those of what the program prints.

`pytest --update` writes the schemas.
"""

from __future__ import annotations

import inspect
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import program
import pytest
from listings import LISTINGS

from cnllm import types
from cnllm.bills import BillReport
from cnllm.cli.commands.logs_cache import CacheReport
from cnllm.cli.output import answer
from cnllm.client.api import Fitted
from cnllm.client.sanitizer import Sanitized
from cnllm.registry_export.document import document_schema
from cnllm.registry_files.schema import describe_flags, json_schema
from cnllm.store import records
from cnllm.store.costs import CostReport

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def test_ci_runs_the_very_command_that_readme_gives_for_the_tests() -> None:
    found = re.findall(r"^.*pip install -e '\.\[dev\]' && \.venv/bin/pytest$", README.read_text(), re.MULTILINE)
    assert len(found) == 1
    assert "pip install -e '.[dev]' && .venv/bin/pytest" in (ROOT / ".ci" / "run").read_text()


def test_ci_runs_the_very_command_with_which_readme_installs_the_package() -> None:
    run = (ROOT / ".ci" / "run").read_text()
    (pattern,) = re.findall(r"^install=\$\(grep -m1 \"(.+)\" README\.md \| sed ", run, re.MULTILINE)
    assert len(re.findall(f"^python3 -m venv .*{re.escape(pattern)}.*$", README.read_text(), re.MULTILINE)) == 1


SHAPES: dict[str, Any] = {
    "reply": types.Reply,
    "events": answer.Line,
    "sanitize": Sanitized,
    "fit": Fitted,
    "logs-list": list[records.ConversationSummary],
    "logs-show": records.RecordedConversation,
    "logs-search": list[records.SearchHit],
    "logs-cost": CostReport,
    "logs-cost-against": BillReport,
    "logs-cache": CacheReport,
    **LISTINGS,
}


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """What the command line prints as JSON, as JSON Schemas."""

    def anything(kind: type) -> dict[str, Any]:
        assert kind is object, kind
        return {"description": "any value"}

    made = {name: msgspec.json.schema(shape, schema_hook=anything) for name, shape in SHAPES.items()}
    for schema in made.values():
        describe_flags(schema.get("$defs", {}))
    made["providers"] = json_schema()
    made["registry-export"] = document_schema()
    note = msgspec.json.schema(types.Note)["$defs"]["Note"]
    made["plan"] = {
        "title": "Plan",
        "type": "object",
        "properties": {
            "method": {"type": "string"},
            "url": {"type": "string"},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "body": {"type": "object"},
            "notes": {"type": "array", "items": note},
        },
        "required": ["method", "url", "headers", "body", "notes"],
    }
    cleaned: dict[str, dict[str, Any]] = clean_descriptions(made)
    return cleaned


def clean_descriptions(value: Any) -> Any:
    """Return a schema whose descriptions have no indent: Python 3.13 and later remove it from docstrings."""
    if isinstance(value, dict):
        cleaned = {key: clean_descriptions(one) for key, one in value.items()}
        if isinstance(text := cleaned.get("description"), str):
            cleaned["description"] = inspect.cleandoc(text)
        return cleaned
    return [clean_descriptions(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["plan", "providers", "registry-export", *SHAPES])
def test_the_published_schemas_are_those_of_the_values(name: str, update: bool) -> None:
    file = ROOT / "schemas" / f"{name}.schema.json"
    meant = json.dumps(schemas()[name], indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if update:
        file.parent.mkdir(exist_ok=True)
        file.write_text(meant)
    else:
        assert file.read_text() == meant, "pytest --update -n 0 writes it"


@pytest.mark.usefixtures("small_builtin")
def test_what_the_command_line_prints_is_valid_against_its_schema() -> None:
    from jsonschema.validators import validator_for

    validators = {name: validator_for(schema)(schema) for name, schema in schemas().items()}
    for name, schema in schemas().items():
        validators[name].check_schema(schema)

    def said(*args: str) -> str:
        run = program.completed(args)
        assert run.returncode == 0, run.stderr
        return run.stdout

    call = ("call", "--model", "glm-4.7", "hi")
    validators["reply"].validate(json.loads(said(*call, "--simulate", "--json")))
    validators["plan"].validate(json.loads(said(*call, "--plan")))
    for more in ((), ("--tool", "calc")):
        for line in said(*call, "--simulate", "--events", *more).splitlines():
            validators["events"].validate(json.loads(line))
    commands = {
        "models-list": ("models", "list", "glm"),
        "models-show": ("models", "show", "glm-4.7"),
        "models-show-explain": ("models", "show", "glm-4.7", "--explain"),
        "models-show-issues": ("models", "show", "glm-4.7", "--issues"),
        "models-diff": ("models", "diff", "glm-4.7", "deepseek-flash"),
        "registry-check": ("registry", "check"),
        "registry-check-older": ("registry", "check", "--older", "0"),
        "registry-check-unbacked": ("registry", "check", "--unbacked"),
        "registry-path": ("registry", "path"),
        "keys-list": ("keys", "list"),
        "aliases-list": ("aliases", "list", "--all"),
        "prefer": ("prefer",),
        "templates-list": ("templates", "list"),
        "logs-cost": ("logs", "cost"),
        "logs-cache": ("logs", "cache"),
        "serve-keys-list": ("serve", "keys", "list"),
    }
    said("serve", "keys", "add", "team", "--rpm", "9", "--budget", "1", "--currency", "CNY")
    for name, command in commands.items():
        validators[name].validate(json.loads(said(*command, "--json")))
    validators["logs-list"].validate(json.loads(said("logs", "list", "--json")))
    validators["logs-show"].validate(json.loads(said("logs", "show", "--json")))
    validators["logs-search"].validate(json.loads(said("logs", "search", "simulated", "--json")))
    for line in said("logs", "export").splitlines():
        validators["logs-show"].validate(json.loads(line))
