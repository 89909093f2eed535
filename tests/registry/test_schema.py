"""The JSON Schema that editors use says the same as the checks."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import jsonschema
import msgspec
import pytest

from cnllm.registry.flags import Flags
from cnllm.registry_files.schema import json_schema

from .support import BUILTIN, HOME, ROOT, Files
from .test_files import WRONG

VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def faults(text: str) -> list[str]:
    data = msgspec.to_builtins(tomllib.loads(text))
    return [error.message for error in VALIDATOR.iter_errors(data)]


def test_the_schema_of_the_registry_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


def test_the_schema_is_the_one_in_the_repository() -> None:
    """What the checks accept has changed: `pytest --update -n 0`, and count `_FORMAT` up in
    cnllm/registry/read.py."""
    assert json.loads((ROOT / "schemas" / "providers.schema.json").read_text()) == json_schema()


def test_the_built_in_file_names_it_and_keeps_to_it() -> None:
    text = BUILTIN.read_text()
    assert text.startswith("#:schema ./schemas/providers.schema.json\n")
    assert faults(text) == []


# Only the checks know: TOML has one spelling of a condition too many, `unset` holds paths, and text may be no day.
BEYOND = ("arg-pairs need", "there is no flag", "says 'stream+tools' twice", "status.since = 'soon'")


@pytest.mark.parametrize(("text", "said"), [(text, said) for text, _, said, _ in WRONG], ids=lambda value: None)
def test_the_schema_refuses_what_the_checks_refuse(files: Files, text: str, said: str) -> None:
    files.refused(text)
    assert bool(faults(text)) is not said.startswith(BEYOND)


GOOD = [
    HOME,
    "schema = 1\nprefer = ['zai']\n[aliases]\na = 'zai/x'\n",
    "[providers.zai]\nwhen.'no-reasoning + stream'.limits.output = 1\nwhen.tools.base_url = 'http://127.0.0.1'\n",
    "[providers.zai]\nparams = { a = 'b', c = false, d = { as = 'e', min = 1, max = 2.5, fixed = [1] } }\n",
    "[providers.zai.on.openai-chat]\nunset = ['reasoning.off', 'when.stream+tools']\nbody.set.any = [1, 'a']\n",
    "[models.'zai/glm-4.7']\nstatus = { is = 'retired', since = 2026-11-20, use = 'zai/glm-5' }\n",
    "[models.'zai/x']\nprice = { currency = 'USD', input = 1, output = 2.5, tiers = [{ above = 1000, input = 2 }] }\n",
    "[families.glm]\nerrors = [{ kind = 'rate', status = [429], code = ['1'], text = ['x'], retry = true }]\n",
    "[providers.zai.sources]\na = { url = 'u', seen = 2026-11-20, how = 'docs', backs = ['keys'], quote = 'q' }\n",
    "[providers.zai]\nkeys = []\nsources = { list = ['keys', { backs = ['keys'], path = 'a.json', rounded = true }] }\n"
    "[sources]\nlist = { url = 'u', seen = 2026-11-20, how = 'code', path = 'b.json' }\n",
    "[providers.zai]\nkeys = []\nsources = { list = 'keys?', page = 'keys' }\n"
    "[sources]\nlist = 'code 2026-11-20 https://a.example b.json'\npage = 'docs 2026-11-20 owner/name#1'\n",
]


@pytest.mark.parametrize("text", GOOD, ids=lambda value: None)
def test_the_schema_takes_what_the_checks_take(files: Files, text: str) -> None:
    assert faults(text) == []
    files.load(text)


def test_every_flag_is_in_it_with_its_description() -> None:
    def described(part: dict[str, Any], name: str) -> None:
        for key, flag in part.get("properties", {}).items():
            assert flag.get("description"), f"{name}.{key}"

    parts = json_schema()["$defs"]
    for name, part in parts.items():
        described(part, name)
    assert set(parts["Table"]["properties"]) > {field.encode_name for field in msgspec.structs.fields(Flags)}


def test_absent_is_the_only_way_to_say_unknown() -> None:
    assert '"type": "null"' not in json.dumps(json_schema())
