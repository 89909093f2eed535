"""README is the manual: its tables and help texts are those of the program, its commands are those that CI runs.

`pytest --update` writes the generated parts.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import types as types_of
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from msgspec import Struct

from cnllm import types
from cnllm.cli.app import root
from cnllm.cli.output import answer
from cnllm.cli.output.json_types import LISTINGS
from cnllm.client.api import Fitted
from cnllm.client.sanitizer import Sanitized
from cnllm.registry import Registry, flags
from cnllm.registry.schema import json_schema
from cnllm.store import records

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def bare(kind: Any) -> Any:
    """A type without its description and without None."""
    while typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    rest = [a for a in typing.get_args(kind) if a is not type(None)]
    if type(None) in typing.get_args(kind) and len(rest) == 1:
        return bare(rest[0])
    return kind


def described(kind: Any) -> str:
    return str(typing.get_args(kind)[-1].description) if typing.get_origin(kind) is typing.Annotated else ""


def values(kind: Any) -> str:
    kind = bare(kind)
    if typing.get_origin(kind) is typing.Literal:
        return " ".join(f"`{a}`" for a in typing.get_args(kind))
    if typing.get_origin(kind) is list:
        inner = values(typing.get_args(kind)[0])
        return f"list of {inner}" if inner else "list"
    if typing.get_origin(kind) in (types_of.UnionType, typing.Union):
        several = [one for one in typing.get_args(kind) if one is not type(None)]
        tables = [
            "{ " + ", ".join(one.__struct_fields__) + " }" for one in several if hasattr(one, "__struct_fields__")
        ]
        words = [values(one) for one in several if typing.get_origin(one) is typing.Literal]
        return " ".join([*words, *(f"`{table}`" for table in tables)]) if words and tables else ""
    names = {bool: "true false", int: "number", float: "number", str: "text"}
    return names.get(kind, "table" if typing.get_origin(kind) is dict else "")


LISTED = (flags.ErrorRule, flags.Refusal, flags.Leak)
LEVEL, WHAT = "LEVEL", "WHAT"
NAMED = {
    "reasoning.effort.": (LEVEL, set(flags.LEVELS)),
    "usage.": (WHAT, {*flags.UsagePaths.__struct_fields__} - {"at", "excluded_from_totals"}),
}
"""Tables whose keys are names of one kind: one flag each, as `params.NAME` and `finish.WORD` are."""


def collapsed(name: str) -> str:
    """`reasoning.effort.low` is the flag `reasoning.effort.LEVEL`."""
    for prefix, (shown, keys) in NAMED.items():
        if name.startswith(prefix) and name.removeprefix(prefix) in keys:
            return prefix + shown
    return name


def rows(table: type[Struct], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(flag, values, description) of every flag, nested tables flattened."""
    seen: set[str] = set()
    for field in msgspec.structs.fields(table):
        kind = bare(field.type)
        name = collapsed(f"{prefix}{field.encode_name}")
        if name in seen:
            continue
        seen.add(name)
        if name == "params":
            yield (
                "params.NAME",
                'text, `false`, `"ignored"` or `{ ' + ", ".join(keys(flags.Param)) + " }`",
                described(field.type),
            )
        elif name == "finish":
            yield "finish.WORD", values(kind) or "text", described(field.type)
        elif name == "call":
            yield name, "`{ " + ", ".join(keys(flags.Call)) + " }`", described(field.type)
        elif isinstance(kind, type) and issubclass(kind, Struct) and kind is not flags.Patch:
            yield from rows(kind, f"{name}.")
        elif typing.get_origin(kind) is list and typing.get_args(kind)[0] in LISTED:
            yield name, "list of `{ " + ", ".join(keys(typing.get_args(kind)[0])) + " }`", described(field.type)
        elif kind is flags.Patch:
            yield name, "`{ set, drop }`", described(field.type)
        else:
            yield name, values(field.type), described(field.type)


def keys(table: type[Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(table)]


def setters() -> dict[str, list[str]]:
    """flag → whose table sets it: providers (their models included), families, wires, `defaults`."""
    names = [name for name, _, _ in rows(flags.Flags)]
    found: dict[str, dict[str, None]] = {name: {} for name in names}

    def walk(who: str, table: dict[str, Any], prefix: str = "") -> None:
        for key, value in table.items():
            if not prefix and key in ("when", "on", "families"):
                for inner in value.values():
                    walk(who, inner)
                continue
            name = collapsed(prefix + key)
            for shown in (name, "params.NAME" if name.startswith("params.") else "finish.WORD"):
                if shown in found and (shown == name or name.startswith(shown.split(".")[0] + ".")):
                    found[shown][who] = None
            if isinstance(value, dict):
                walk(who, value, f"{prefix}{key}.")

    document = tomllib.loads((ROOT / "providers.toml").read_text())
    for kind, label in (("providers", "{}"), ("models", "{}"), ("families", "{} (family)"), ("protocols", "{} (wire)")):
        for name, table in document[kind].items():
            walk(label.format(name.split("/")[0] if kind == "models" else name), table)
    walk("the defaults", document["defaults"])
    return {name: list(who) for name, who in found.items()}


def flag_table() -> str:
    lines = ["| flag | values | | set by |", "|---|---|---|---|"]
    by = setters()
    for name, shown, text in rows(flags.Flags):
        who = by[name]
        more = f" and {len(who) - 3} more" if len(who) > 3 else ""
        lines.append(f"| `{name}` | {shown} | {text.replace('|', chr(92) + '|')} | {', '.join(who[:3])}{more} |")
    return "\n".join(lines)


INNER: dict[str, type[Struct]] = {
    "params.NAME": flags.Param,
    "errors": flags.ErrorRule,
    "simulator.refusals": flags.Refusal,
    "leaks": flags.Leak,
    "call": flags.Call,
    "sources.NAME": flags.Source,
}


def inner_table() -> str:
    """The keys of the tables that stand inside a flag."""
    lines = ["| table | key | values | |", "|---|---|---|---|"]
    for name, table in INNER.items():
        for field in msgspec.structs.fields(table):
            text = described(field.type).replace("|", chr(92) + "|")
            lines.append(f"| `{name}` | `{field.encode_name}` | {values(field.type)} | {text} |")
    return "\n".join(lines)


def provider_table() -> str:
    registry = Registry.load()
    lines = ["| provider | | models described | wires | key |", "|---|---|---|---|---|"]
    for provider in registry.providers:
        resolved = registry.resolve(f"{provider}/any").flags
        count = sum(name.startswith(f"{provider}/") for name in registry.names())
        keys = ", ".join(f"`{k}`" for k in resolved.keys or ()) or "none"
        wires = ", ".join(registry.wires(f"{provider}/any"))
        lines.append(f"| `{provider}` | {resolved.title} | {count or ''} | {wires} | {keys} |")
    return "\n".join(lines)


def help_texts() -> str:
    """The help of every command."""
    out: list[str] = []

    def add(command: click.Command, path: list[str]) -> None:
        shown = CliRunner().invoke(root, [*path, "--help"], prog_name="cnllm", terminal_width=100)
        assert shown.exit_code == 0, shown.output
        out.append(f"```\n$ {' '.join(['cnllm', *path, '--help'])}\n{shown.output.rstrip()}\n```")
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                add(inner, [*path, name])

    add(root, [])
    return "\n\n".join(out)


GENERATED = {"flags": flag_table, "inner": inner_table, "providers": provider_table, "help": help_texts}


@pytest.mark.parametrize("part", list(GENERATED))
def test_the_generated_parts_are_what_the_program_says(part: str, update: bool) -> None:
    text = README.read_text()
    begin, end = f"<!-- {part} -->\n", f"<!-- /{part} -->"
    head, rest = text.split(begin)
    now, tail = rest.split(end)
    meant = GENERATED[part]() + "\n"
    if update:
        README.write_text(head + begin + meant + end + tail)
    else:
        assert now == meant, "pytest --update -n 0 writes it"


def test_ci_runs_the_very_command_that_readme_gives_for_the_tests() -> None:
    found = re.findall(r"^.*pip install -e '\.\[dev\]' && \.venv/bin/pytest$", README.read_text(), re.MULTILINE)
    assert len(found) == 1
    assert "pip install -e '.[dev]' && .venv/bin/pytest" in (ROOT / ".ci" / "run").read_text()


def test_every_flag_has_a_description_and_somebody_who_needs_it() -> None:
    assert [name for name, _, text in rows(flags.Flags) if not text] == []
    # Two that a user's own gateway may need, and one of a wire where streams have another address.
    assert {name for name, who in setters().items() if not who} <= {"stream_path", "headers", "body.drop"}
    # A budget, so that nobody adds one lightly: 89 before files, prefill, recovery and the form of strict tools came.
    assert len(list(rows(flags.Flags))) < 100


SHAPES: dict[str, Any] = {
    "reply": types.Reply,
    "events": answer.Line,
    "sanitize": Sanitized,
    "fit": Fitted,
    "logs-list": list[records.Summary],
    "logs-show": records.Recorded,
    "logs-search": list[records.Found],
    **LISTINGS,
}


def schemas() -> dict[str, dict[str, Any]]:
    """What the command line prints as JSON, as JSON Schemas."""

    def anything(kind: type) -> dict[str, Any]:
        assert kind is object, kind
        return {"description": "any value"}

    made = {name: msgspec.json.schema(shape, schema_hook=anything) for name, shape in SHAPES.items()}
    made["providers"] = json_schema()
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
    return made


@pytest.mark.parametrize("name", ["plan", "providers", *SHAPES])
def test_the_published_schemas_are_those_of_the_values(name: str, update: bool) -> None:
    file = ROOT / "schemas" / f"{name}.schema.json"
    meant = json.dumps(schemas()[name], indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if update:
        file.parent.mkdir(exist_ok=True)
        file.write_text(meant)
    else:
        assert file.read_text() == meant, "pytest --update -n 0 writes it"


def test_what_the_command_line_prints_is_valid_against_its_schema() -> None:
    import jsonschema

    def said(*args: str) -> str:
        run = subprocess.run([sys.executable, "-m", "cnllm", *args], capture_output=True, text=True, check=True)
        return run.stdout

    call = ("call", "--model", "glm-4.7", "hi")
    jsonschema.validate(json.loads(said(*call, "--simulate", "--json")), schemas()["reply"])
    jsonschema.validate(json.loads(said(*call, "--plan")), schemas()["plan"])
    for more in ((), ("--tool", "calc")):
        for line in said(*call, "--simulate", "--events", *more).splitlines():
            jsonschema.validate(json.loads(line), schemas()["events"])
    commands = {
        "models-list": ("models", "list", "glm"),
        "models-show": ("models", "show", "glm-4.7"),
        "models-show-explain": ("models", "show", "glm-4.7", "--explain"),
        "models-diff": ("models", "diff", "glm-4.7", "deepseek-flash"),
        "registry-check": ("registry", "check"),
        "registry-check-older": ("registry", "check", "--older", "0"),
        "registry-check-unbacked": ("registry", "check", "--unbacked"),
        "registry-path": ("registry", "path"),
        "keys-list": ("keys", "list"),
    }
    for name, command in commands.items():
        jsonschema.validate(json.loads(said(*command, "--json")), schemas()[name])
    jsonschema.validate(json.loads(said("logs", "list", "--json")), schemas()["logs-list"])
    jsonschema.validate(json.loads(said("logs", "show", "--json")), schemas()["logs-show"])
    jsonschema.validate(json.loads(said("logs", "search", "simulated", "--json")), schemas()["logs-search"])
    for line in said("logs", "export").splitlines():
        jsonschema.validate(json.loads(line), schemas()["logs-show"])
