"""Arrows point one way between the folders of the package, those of `engine/`, `cli/` and `gateway/` too."""

from __future__ import annotations

import ast

import pytest

from cnllm import _MODULE_BY_NAME
from docs.generate.rooms import PACKAGE, WIRES, file_of, files, imported_names, room

TOP = {"__init__", "__main__", "_version", "errors", "sentences", "jsonpath"}
"""The only modules at the top level."""

# What each room may import, from the ground up: a room names only rooms that stand before it.
VALUES = {"_version", "errors", "system", "types", "jsonpath"}
FLAGS = VALUES | {"registry"}
ENGINE = {"engine/adjustments", "engine/options", "engine/similar_names"}
MAY: dict[str, set[str]] = {
    "_version": set(),
    "jsonpath": set(),
    "types": set(),
    "errors": {"types"},
    "system": {"errors"},
    "schemas": set(),
    "config": {"_version", "errors", "system", "types"},
    "sentences": {"errors", "system", "types"},
    "tools": {"errors", "schemas", "types"},
    "leaks": VALUES | {"schemas"},
    "registry": VALUES | {"config"},
    "registry_files": FLAGS | {"config", "schemas"},
    "model_facts": FLAGS | {"config"},
    "registry_export": FLAGS | {"model_facts", "registry_files"},
    "protocols": FLAGS | {"schemas"},
    **dict.fromkeys(sorted(WIRES), FLAGS | {"protocols"}),
    "store": {"config", "errors", "system", "types"},
    "simulator": FLAGS | {"protocols", "schemas"},
    "engine/adjustments": FLAGS,
    "engine/similar_names": set(),
    "engine/options": FLAGS | {"engine/similar_names", "schemas", "tools"},
    "engine/history": FLAGS | ENGINE | {"leaks", "protocols", "tools"},
    "engine/encode": FLAGS | ENGINE | {"config", "engine/history", "protocols", "schemas", "tools"},
    "engine/decode": FLAGS | ENGINE | {"engine/encode", "engine/history", "leaks", "protocols", "schemas", "tools"},
    "engine/run": FLAGS | {"engine/decode", "engine/encode", "engine/history", "leaks"},
    "engine": FLAGS | {"engine/decode", "engine/encode", "protocols"},
    "transports": VALUES | {"config", "engine/encode"},
    "cassette": VALUES | {"config"},
    "estimates": FLAGS | {"engine/decode", "engine/encode", "engine/options", "protocols"},
    "client": FLAGS
    | {"cassette", "config", "estimates", "leaks", "schemas", "sentences", "simulator", "store", "tools", "transports"}
    | {"engine/decode", "engine/encode", "engine/options", "engine/run"},
    "bills": FLAGS | {"config", "engine/decode", "store"},
    "gateway/store": {"config", "errors", "store", "system", "types"},
    "gateway/limits": FLAGS | {"config", "engine/decode", "engine/encode", "estimates", "gateway/store", "store"},
    "gateway/monitoring": FLAGS | {"client", "config", "engine/encode"},
    "gateway": FLAGS
    | {
        "client",
        "config",
        "engine",
        "engine/encode",
        "estimates",
        "gateway/limits",
        "gateway/monitoring",
        "gateway/store",
        "protocols",
        "store",
    },
    "batch": FLAGS
    | {"client", "config", "engine/decode", "engine/encode", "estimates", "protocols", "simulator", "transports"},
    "ray": VALUES | {"batch", "config", "engine/encode", "registry"},
    "probe": FLAGS
    | {"cassette", "client", "config", "engine", "engine/decode", "engine/encode", "protocols", "transports"},
    "tool_trial": VALUES | {"client", "engine", "estimates", "registry", "schemas", "tools"},
    "comparison": FLAGS
    | {"cassette", "client", "config", "engine", "estimates", "protocols", "schemas", "simulator"}
    | {"tool_trial", "transports"},
    "mcp_client": {"client", "config", "errors", "system", "tools", "transports", "types"},
    "sdk": FLAGS | {"client", "config", "gateway", "gateway/store", "protocols"},
    "daft": VALUES | {"client", "config", "registry", "tools"},
    "launch": {"config", "errors", "system"},
    "cli/language": set(),
    "cli/output": FLAGS
    | {
        "batch",
        "cli/language",
        "comparison",
        "config",
        "model_facts",
        "probe",
        "registry_files",
        "store",
        "tool_trial",
    },
    "cli/matrix": FLAGS | {"cli/language", "cli/output", "config", "model_facts"},
    "cli": FLAGS
    | {"batch", "cassette", "cli/language", "cli/output", "client", "config", "estimates", "mcp_client", "probe", "ray"}
    | {"bills", "schemas"}
    | {"engine", "engine/history", "model_facts", "registry_files", "simulator", "store", "tools", "transports"},
    "cli/commands": FLAGS
    | {
        "cli",
        "cli/language",
        "cli/matrix",
        "cli/output",
        "client",
        "comparison",
        "config",
        "engine",
        "estimates",
        "gateway",
        "gateway/limits",
        "gateway/monitoring",
        "launch",
        "model_facts",
        "probe",
        "registry_export",
        "registry_files",
        "simulator",
        "store",
        "tool_trial",
    },
    "__main__": {"cli"},
}

FACE = {"errors", "types/__init__", "tools/__init__", "registry/__init__", "transports/__init__"}
PUBLIC = {f"{module}.{name}" for name, module in _MODULE_BY_NAME.items()}
"""What a program outside imports: these modules, and the names of `cnllm`, here each from the module that defines it. A
room at the edge imports the same, and nothing else without a reason."""

EDGE: dict[str, dict[str, str]] = {
    "launch": {
        "system/files": "the client's files are for their owner alone, and are replaced as a whole",
        "system/processes": "the gateway is a process beside the client's",
    },
    "tool_trial": {
        "engine/__init__": "the type of a request that is counted",
        "estimates/money": "money is counted in whole units, as everywhere",
        "estimates/worst_case": "the most that a request can cost is computed in one place",
        "registry/flags/__init__": "`Model.derive` takes and returns flags",
        "schemas/validate": "arguments count as they arrived: `problem_with` decodes what a client would repair",
    },
    "mcp_client": {
        "client/credentials": "the rule for addresses that a key may go to has one place",
        "system/event_loop": "a call waits for another thread in asyncio and in trio",
        "config/distribution": "the command that installs the extra",
        "config/keys": "the user's keys file",
        "config/redact": "no message has a secret",
        "system/closing": "a stream ends with its block",
        "system/processes": "a forked child opens a session of its own, and systems differ in pipes",
        "transports/content_encoding": "bounds on what a compressed body may become",
        "transports/httpx_async": "the pieces of a body, decoded in time",
        "transports/address": "the environment's proxies and the certificates, as for every request",
        "types/checks": "errors for wrong arguments as in the rest of `cnllm`",
        "types/json_form": "a text that was cut inside a character is mended in one way",
    },
    "ray": {
        "batch/shared/__init__": "what is asked and counted in several processes is a part of a batch, with one face",
        "config/distribution": "the command that installs the extra",
    },
    "daft": {
        "config/settings_files": "a `prompt` without a model takes the user's default one, as the command does",
        "config/distribution": "the command that installs the extra",
        "config/redact": "no option that travels to the workers has a secret",
        "registry/sites": "a name is asked at the site of its vendor whose key is set, as everywhere",
        "registry/tiers": "a tier is no model before a worker takes one that it has a key for",
        "types/checks": "errors for wrong arguments as in the rest of `cnllm`",
        "types/totals": "costs are rounded in the exact context, as everywhere",
    },
    "cli/matrix": {
        "cli/language/messages": "known issues are said in Chinese as `models show --issues` says them",
        "cli/output/flag_table": "values look as in `models show --explain`",
        "cli/output/terminal": "no control character of a registry file reaches the page",
        "model_facts/capabilities": "the page shows what `models list` filters by",
        "model_facts/known_issues": "the page shows what `models show --issues` lists",
        "model_facts/summary": "short names, addresses and levels as in `models show`",
    },
}
"""The rooms at the edge. What they import beside the public face and themselves, each module with its reason."""

KNOWN: dict[tuple[str, str], str] = {}
"""Arrows that run back up, each with its reason. One that is gone has to leave this table."""


def test_no_other_module_stands_at_the_top() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} <= TOP


def test_the_table_itself_points_one_way() -> None:
    before: set[str] = set()
    for name, below in MAY.items():
        assert below <= before, f"{name} names rooms that stand above it: {', '.join(sorted(below - before))}"
        before.add(name)


def test_a_module_imports_only_what_is_below_it() -> None:
    wrong, used = [], set()
    for module, found in files().items():
        here = room(module)
        for there in sorted({room(other) for other in found} - MAY[here] - {here, "__init__"}):
            if (f"{module}.py", there) in KNOWN:
                used.add((f"{module}.py", there))
            else:
                wrong.append(f"{module}.py may not import {there}")
    assert wrong == []
    assert used == set(KNOWN), "these arrows are gone: strike them out of KNOWN"


def test_neither_side_of_a_wire_imports_the_other() -> None:
    """The simulator and the servers' sides must not be able to agree with a wrong engine by sharing its code."""
    wrong = []
    for module, found in files().items():
        here = room(module)
        if here == "simulator" or (here in WIRES and not side(module, "client")):
            wrong += [(module, other) for other in found if side(other, "client")]
        if here in WIRES and side(module, "client"):
            wrong += [(module, other) for other in found if not side(other, "client") and room(other) in WIRES]
        if here in WIRES:
            wrong += [(module, other) for other in found if room(other) in WIRES - {here}]
    assert wrong == []


def side(module: str, which: str) -> bool:
    """Whether a module of a wire belongs to the side that asks an endpoint."""
    name = module.rpartition("/")[2]
    return room(module) in WIRES and (name.startswith(which) or name == "partial_args")


def test_the_engine_does_no_input_or_output() -> None:
    never = {"httpx", "anyio", "pydantic", "jsonschema", "rich"}
    never |= {"socket", "ssl", "os", "subprocess", "threading", "asyncio"}
    for path in [*(PACKAGE / "engine").rglob("*.py"), *(PACKAGE / "protocols").rglob("*.py")]:
        names = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add((node.module or "").split(".")[0])
        assert not never & names, path


PAIRS: set[frozenset[str]] = set()
"""Files that still import each other. A circle that is gone has to leave this table."""


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports in functions and for type checkers count, too: who reads one file of a circle has to read them all."""
    assert {frozenset(circle) for circle in circles(files())} == PAIRS


def test_no_module_imports_the_top_level_of_the_package() -> None:
    """The top level imports everything else: a module that needs a name takes it from the module that defines it."""
    assert [module for module, found in files().items() if "__init__" in found] == []


@pytest.mark.parametrize("edge", EDGE)
def test_a_room_at_the_edge_imports_the_public_face(edge: str) -> None:
    names = {name for module in files() if room(module) == edge for name in imported_names(PACKAGE / f"{module}.py")}
    beyond = {file_of(name) for name in names - PUBLIC}
    assert {file for file in beyond if room(file) != edge} - FACE == set(EDGE[edge]), (
        "modules behind the public face need a reason in EDGE, and one that is gone leaves it"
    )


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """Return the groups of files of which each imports all others, straight or through each other."""
    reach = {module: set(found) & imports.keys() for module, found in imports.items()}
    grew = True
    while grew:
        grew = False
        for found in reach.values():
            before = len(found)
            for other in list(found):
                found |= reach[other]
            grew |= len(found) > before
    rings = {frozenset(o for o in found if module in reach[o]) for module, found in reach.items() if module in found}
    return [set(ring) for ring in rings]
